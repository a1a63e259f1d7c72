"""A policy's name in tables, sentences and plots: with the settings that are not the defaults."""

import pandas
import pytest

from ptanalyze.policies import label, plan_for
from ptanalyze.show.plots.style import broken, policy_labels


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("mitosis", {}, "mitosis"),
        ("mitosis", {"nodes": ""}, "mitosis"),
        ("mitosis", {"nodes": "0,2"}, "mitosis:nodes=0,2"),
        ("mitosis", {"mode": "migrate"}, "mitosis:mode=migrate"),
        ("hydra", {"prefetch": "3", "tlbflush": "off"}, "hydra:prefetch=3:tlbflush=off"),
        ("ptemagnet+mitosis", {"nodes": "2"}, "ptemagnet+mitosis:mitosis.nodes=2"),
        ("bind", {"node": "0"}, "bind"),
        ("linux", {}, "linux"),
    ],
)
def test_settings_that_are_not_the_defaults_belong_to_the_name(name, settings, said):
    plan = plan_for(name, settings)
    assert sorted(label(plan.name, plan.params).split(":")) == sorted(said.split(":"))


def test_a_table_says_the_same():
    plans = [plan_for("mitosis"), plan_for("mitosis", {"nodes": "0,2"}), plan_for("interleave")]
    params = [" ".join(f"{k}={v}" for k, v in plan.params.items() if v != "") for plan in plans]
    table = pandas.DataFrame({"policy": [plan.name for plan in plans], "params": params})
    assert policy_labels(table).tolist() == ["mitosis", "mitosis:nodes=0,2", "interleave"]
    assert policy_labels(table[1:2]).tolist() == ["mitosis:nodes=0,2"]


def test_of_what_is_no_policy_here_only_what_differs_is_known():
    one, other = {"a": 1, "b": "", "c": 2}, {"a": 3, "b": 4, "c": 2}
    assert label("of-a-file", one) == "of-a-file"
    assert label("of-a-file", one, [one, other]) == "of-a-file:a=1"
    assert label("of-a-file", other, [one, other]) == "of-a-file:a=3:b=4"


def test_a_long_label_is_broken_before_a_setting():
    assert broken("vmitosis-replicate:mode=no-p", 20) == "vmitosis-replicate:\nmode=no-p"
