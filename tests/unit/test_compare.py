"""Comparing results: what is equal is equal to the last integer."""

import json

import pytest

from ptanalyze.analysis.compare import compare, compare_rows
from ptanalyze.analysis.frames import whatif_frame
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.formats.record import read_rows, write_result
from replay_cases import HEAP
from strategies import PAGE, build_snapshot, build_trace, small_machine

VAS = [HEAP + k * PAGE for k in range(20)]
SNAPSHOT = build_snapshot([(va, k) for k, va in enumerate(VAS)], vmas=[(HEAP, HEAP + 64 * PAGE, "h")])


def results(trace_pages, *policies):
    trace = build_trace([(0, VAS), (1, VAS[:trace_pages])])
    costs = load_costs(load_machine("sapphire-rapids"))
    setup = Setup.of(machine=small_machine(2), costs=costs, cold=True)
    return replay_snapshot(SNAPSHOT, trace, [(name, {}) for name in policies], setup)


def rows(found):
    return [result.row() for result in found]


def test_a_result_does_not_differ_from_itself():
    found = rows(results(9, "hydra", "mitosis"))
    assert compare_rows(found, found).exact
    assert compare_rows(found, found).alike > 3 * 40


def test_one_more_walk_shows_as_one_more():
    changed = {d.quantity: d for d in compare_rows(rows(results(9)), rows(results(10))).differences}
    assert changed["walks"].change == 1
    assert changed["walks"].ratio == 30 / 29
    assert "pt_bytes" not in changed


def test_policies_that_only_one_side_has_are_named():
    found = compare_rows(rows(results(9, "hydra", "mitosis")), rows(results(9, "mitosis", "ideal")))
    assert not found.exact and not found.differences
    assert found.only_b == ("ideal",) and found.only_a[0].startswith("hydra ")


def test_two_policies_of_one_capture_are_compared_with_each_other():
    both = results(9, "hydra", "mitosis")
    found = compare_rows(rows(both[1:2]), rows(both[2:]))
    assert {d.policy for d in found.differences} == {"hydra / mitosis"}


@pytest.mark.parametrize("name", ["found.json", "found.csv", "found.parquet"])
def test_written_results_are_read_again_as_they_were(tmp_path, name):
    found = results(9, "hydra")
    table = whatif_frame(found)
    write_result(tmp_path / name, "whatif", lambda: [result.to_json() for result in found], lambda: table)
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    both = compare_rows(rows(found), read_rows(tmp_path / name))
    assert both.exact and both.alike == compare_rows(rows(found), rows(found)).alike
    assert compare(table, tmp_path / name).attrs["exact"]


HOSTILE = {
    "cut": b'{"schema": 2, "what": "whatif", "result": [{"pol',
    "binary": b"\x80\x81\x82\x00",
    "list": b"[]",
    "other": json.dumps({"schema": 2, "what": "check", "result": []}).encode(),
    "newer": json.dumps({"schema": 99, "what": "whatif", "result": []}).encode(),
    "no policy": json.dumps({"schema": 2, "what": "whatif", "result": [{}]}).encode(),
}


@pytest.mark.parametrize("contents", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("name", ["found.json", "found.csv", "found.parquet"])
def test_a_file_that_holds_no_results_is_refused_in_one_line(tmp_path, contents, name):
    path = tmp_path / name
    path.write_bytes(contents)
    with pytest.raises(CaptureError) as refused:
        read_rows(path)
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_rows(tmp_path / "none.json")


def test_of_walks_of_a_trace_and_of_mapped_pages_a_note_says_which_is_which():
    setup = Setup.of(machine=small_machine(2), costs=load_costs(load_machine("sapphire-rapids")), cold=True)
    traced, untraced = rows(results(9)), rows(replay_snapshot(SNAPSHOT, None, [], setup))
    assert compare_rows(traced, untraced).note.startswith("A has a trace, B has none: A's walks are those of")
    assert compare_rows(untraced, traced).note.startswith("B has a trace, A has none: B's walks are those of")
    assert compare_rows(traced, traced).note == compare_rows(untraced, untraced).note == ""
