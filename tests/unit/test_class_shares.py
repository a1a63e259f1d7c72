"""Shares of walks by class from the output of classify."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.core.errors import CaptureError
from ptanalyze.cost.law import placement
from ptanalyze.formats.measured.perf_stat import read_class_shares


def rows(*counts, names=("Local-Local", "Local-Remote", "Remote-Local", "Remote-Remote")):
    return [
        {"group": "all", "socket": k // len(names), "class": names[k % len(names)], "count": count}
        for k, count in enumerate(counts)
    ]


@pytest.fixture
def file(tmp_path):
    def write(*parts, what="classify"):
        path = tmp_path / "classes.json"
        path.write_text(json.dumps({"what": what, "result": parts}))
        return path

    return write


def test_sockets_count_by_their_walks(file):
    leaf = {"weight": "leaf", "rows": rows(1, 0, 0, 0)}
    walks = {"weight": "walks", "rows": rows(10, 20, 30, 40, 0, 0, 0, 100)}
    assert read_class_shares(file(leaf, walks)) == "LL:0.050000,LR:0.100000,RL:0.150000,RR:0.700000"
    assert read_class_shares(file(leaf)) == "LL:1.000000,LR:0.000000,RL:0.000000,RR:0.000000"
    native = {"weight": "walks", "rows": rows(1, 3, names=("Local", "Remote"))}
    assert read_class_shares(file(native)) == "L:0.250000,R:0.750000"


@given(st.lists(st.integers(0, 10**12), min_size=4, max_size=16).filter(any))
def test_any_counts_are_a_placement(tmp_path_factory, counts):
    path = tmp_path_factory.mktemp("c") / "c.json"
    path.write_text(json.dumps({"what": "classify", "result": [{"weight": "walks", "rows": rows(*counts)}]}))
    found = placement(read_class_shares(path))
    assert found.ept is not None and 0 <= found.gpt_share <= 1 and 0 <= found.ept_share <= 1


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([], "weight"),
        ([3, None], "weight"),
        ([{"weight": "thread"}], "weight = thread"),
        ([{"weight": "walks"}], "no leaf entry"),
        ([{"weight": "walks", "rows": rows(0, 0, 0, 0)}], "rows = 0"),
        ([{"weight": "walks", "rows": rows(-1, 0, 0, 0)}], "expected a class and a count"),
        ([{"weight": "walks", "rows": rows(1.5)}], "expected a class and a count"),
        ([{"weight": "walks", "rows": rows(True)}], "expected a class and a count"),
        ([{"weight": "walks", "rows": [{"class": "Elsewhere", "count": 1}]}], "Elsewhere"),
        ([{"weight": "walks", "rows": [7]}], "rows = 7"),
        ([{"weight": ["walks"]}], "weight = "),
        ([{"weight": "walks", "rows": [{"class": {}, "count": 1}]}], "expected a class and a count"),
    ],
)
def test_another_content_is_refused_by_field(file, parts, why):
    with pytest.raises(CaptureError, match=why) as refused:
        read_class_shares(file(*parts))
    assert "classes.json" in str(refused.value) and "\n" not in str(refused.value)


def test_another_answer_is_refused(file):
    with pytest.raises(CaptureError, match="what = whatif: expected the output of ptanalyze classify"):
        read_class_shares(file(what="whatif"))


@given(st.binary(max_size=60))
def test_no_other_bytes_are_read(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("c") / "c.json"
    path.write_bytes(content)
    with pytest.raises(CaptureError):
        read_class_shares(path)
