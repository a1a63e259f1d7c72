"""Plots of policies that come out alike: each is named, and a title calls none of them the fastest alone."""

import pandas as pd
import pytest

from plot_texts import readable, words
from ptanalyze.core.errors import UsageError
from ptanalyze.show import plots

LAW = "0.5 to 0.9 of walk cycles stall the program; idle latencies"
FASTER = {"first-touch": 0.0, "hydra": 0.1, "mitosis": 0.1, "interleave": 0.04}


def swept(faster=FASTER, nodes=(2, 4, 8)):
    """A sweep's table: a policy's speed-up rises by so much per node."""
    rows = [
        {
            "nodes": str(n), "policy": policy, "params": "", "baseline": "first-touch", "walks": 10,
            "machine": "fast-machine" if n == 4 else f"fast-machine, {n} nodes",
            "placement": f"round-robin over {n} nodes", "walk_cycles": 1.0, "management_cycles": 0.0,
            "once_cycles": 0.0, "pt_bytes_peak": 4096, "ept_bytes": 0, "aside_bytes": 0, "held_bytes": 0,
            "speedup_low": 1 + more * n / 2, "speedup": 1 + more * n, "speedup_high": 1 + more * n * 2,
        }
        for n in nodes
        for policy, more in faster.items()
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    table.attrs = {"swept": ["nodes"], "notes": [LAW], "provenance": {"capture": "app"}}
    return table


def at(table, notes=(LAW,)):
    """One point of a sweep as whatif's table."""
    found = table[table["nodes"] == "4"].drop(columns="nodes").reset_index(drop=True)
    found.attrs = {"notes": list(notes), "provenance": {"machine": "fast-machine"}}
    return found


def test_policies_whose_curves_lie_on_each_other_are_one_line_and_win_together():
    figure = plots.curve(swept())
    labels = {line.get_label() for line in figure.axes[0].lines}
    assert labels == {"first-touch", "hydra, mitosis", "interleave"}
    assert len(figure.axes[0].collections) == 2  # bands of those two
    assert (
        figure.get_suptitle()
        == "hydra and mitosis are fastest at nodes = 8: 1.80 times as fast as first-touch"
    )
    assert readable(figure)


def test_one_that_is_fastest_is_named_alone():
    figure = plots.curve(swept({**FASTER, "mitosis": 0.11}))
    assert figure.get_suptitle().startswith("mitosis is fastest at nodes = 8: 1.88")


def test_without_a_trace_a_sweep_is_of_bounds():
    table = swept()
    untimed = table.assign(speedup=None, speedup_low=None, speedup_high=None)
    untimed["walk_cycles"] = 1 / table["speedup"]
    untimed.attrs = {**table.attrs, "notes": []}
    figure = plots.curve(untimed)
    assert " ".join(figure.get_suptitle().split()) == (
        "No trace, so a bound: cycles of first-touch / those of hydra, mitosis at nodes = 8 are at most 1.80"
    )
    assert "faster" not in figure.axes[0].get_ylabel() and readable(figure)


def test_differences_of_less_than_a_percent_do_not_fill_a_plot():
    figure = plots.curve(swept({"first-touch": 0.0, "hydra": 0.00001}))
    low, high = figure.axes[0].get_ylim()
    assert low <= 0.99 and high >= 1.01
    assert not any(axis.get_offset_text().get_text() for axis in (figure.axes[0].yaxis, figure.axes[0].xaxis))


def test_below_a_sweep_stand_machine_threads_and_what_the_bands_are():
    (below,) = (text for text in words(plots.curve(swept())) if text.startswith("app"))
    told = " ".join(below.split())
    assert told == f"app; fast-machine; threads round-robin; bands: {LAW}"


def test_a_table_joined_by_pandas_says_what_to_name():
    joined = pd.concat([swept(nodes=(2,)), swept(nodes=(8,))])
    joined.attrs = {}
    with pytest.raises(UsageError, match=r'table.attrs\["swept"\]'):
        plots.curve(joined)
    joined.attrs["swept"] = ["nodes"]
    assert plots.curve(joined).get_suptitle().startswith("hydra and mitosis are fastest")


def test_when_all_are_as_fast_each_has_its_row_and_the_title_says_so():
    names = ("first-touch", "hydra", "mitosis", "interleave", "bind")
    figure = plots.speedup(at(swept(dict.fromkeys(names, 0.0))))
    assert figure.get_suptitle() == "All are as fast as first-touch"
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == list(names)
    low, high = figure.axes[0].get_xlim()
    assert low <= 0.9 and high >= 1.1 and readable(figure)


def test_a_plot_says_whether_it_is_of_the_steady_state_or_of_the_run_as_traced():
    steady, traced = (
        plots.speedup(at(swept(), (LAW, *more))) for more in ((), ("as traced: TLBs and caches empty",))
    )
    assert "as traced" not in " ".join(words(steady))
    assert any(
        "steady state: one-time costs are not in it" in " ".join(text.split()) for text in words(steady)
    )
    assert " ".join(traced.get_suptitle().split()).endswith("in the run as traced")
    assert any("as traced, caches empty at first" in " ".join(text.split()) for text in words(traced))
