"""Pages that several processes map, counted as by a naive reader of lists; captures of several processes."""

import itertools
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from families import make_family
from naive import shared_pages as naive
from ptanalyze.analysis.classify import classify
from ptanalyze.analysis.frames import shared_tables_frame
from ptanalyze.capture.check import check_capture, exit_code
from ptanalyze.cli import run
from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.formats.capture import open_capture
from ptanalyze.world.trees import NO_GROUP, shared_pages
from strategies import REGION, Page, build_tree

pytestmark = pytest.mark.twin
SMALL = st.tuples(st.integers(0, 3 * 512 - 1), st.integers(0, 1100), st.just(1))
HUGE = st.tuples(st.integers(4, 6), st.integers(0, 2), st.just(2))
PROCESS = st.lists(st.one_of(SMALL, SMALL, HUGE), max_size=12, unique_by=lambda one: (one[0], one[2]))


def mapping(place, frame, level):
    return (place << 12, frame, 1) if level == 1 else (place * REGION, frame << 9, 2)


@settings(max_examples=30)
@given(st.lists(PROCESS, min_size=1, max_size=4))
def test_shared_pages_and_the_tables_that_map_them_are_those_of_a_naive_count(processes):
    of = {7 + k: [mapping(*one) for one in mine] for k, mine in enumerate(processes)}
    trees = {
        pid: build_tree([Page(*one) for one in mine], itertools.count(pid << 30)) for pid, mine in of.items()
    }
    found, (pages, common, counted) = shared_pages(trees), naive.shared(of)
    assert (found.pages, found.shared) == (pages, common)
    rows, labels = {}, {}
    for pid, tables in found.tables.items():
        columns = (found.mapped[pid], found.with_others[pid], found.group[pid])
        for table, entries, both, group in zip(tables, *columns, strict=True):
            place = pid, int(trees[pid].base[table]) >> 21
            rows[place] = int(entries), int(both)
            labels.setdefault(int(group), set()).add(place)
    assert rows == counted
    labels.pop(NO_GROUP, None)
    assert {frozenset(group) for group in labels.values()} == naive.groups(of)
    assert sorted(labels) == list(range(len(labels)))


@pytest.fixture
def family(tmp_path):
    return make_family(tmp_path / "c")


def test_a_capture_knows_the_processes_inside_it_and_nothing_else_that_lies_there(family):
    (family / "pid-x").mkdir()
    (family / "pid-10").symlink_to(family / "pid-9")
    (family / "pid-11").write_text("")
    assert [*open_capture(family).processes] == [8, 9] and [*open_capture(family).members] == [7, 8, 9]


def test_leaf_tables_of_the_same_pages_stand_together(family):
    table = shared_tables_frame(open_capture(family))
    rows = table[["pid", "base", "pages", "shared_pages", "group"]].to_numpy().tolist()
    assert rows == [[9, REGION, 1, 1, -1], [7, REGION, 2, 2, 0], [8, 4 * REGION, 2, 2, 0]]


def test_every_process_is_checked_and_a_missing_or_damaged_one_is_named(family):
    assert [one.verdict for one in check_capture(open_capture(family)) if "process" in one.name] == ["ok"] * 3
    with open(family / "pid-8" / "gpt.entries", "r+b") as file:
        file.write(b"x")
    shutil.rmtree(family / "pid-9")
    findings = {one.name: one for one in check_capture(open_capture(family))}
    assert findings["processes: there"].reason == "not in it: pid-9"
    assert findings["process 8"].verdict == "failed" and "gpt.entries" in findings["process 8"].reason
    assert exit_code(findings.values()) == 1


@pytest.mark.parametrize("also", [[], ["pid-8"]], ids=["one", "all"])
def test_what_counts_all_processes_refuses_a_capture_that_lost_one(family, also):
    for name in ["pid-9", *also]:
        shutil.rmtree(family / name)
    for ask in (lambda: classify(family, by="process"), lambda: shared_tables_frame(open_capture(family))):
        with pytest.raises(CaptureError, match=r"pid-\d.*missing"):
            ask()
    assert run(["info", str(family)]) == run(["info", "--shared", str(family)]) == 1
    assert run(["redact", str(family), "-o", str(family.parent / "r")]) == 0, "it copies the first alone"


def test_processes_are_classified_one_by_one(family):
    table = classify(family, by="process")
    assert table[table["class"] == "Local"].groupby("group")["count"].max().to_dict() == {
        "7 p7": 3,
        "8 p8": 2,
        "9 p9": 1,
    }
    with pytest.raises(UsageError, match="by = process: with weight"):
        classify(family, by="process", weight="walks")
