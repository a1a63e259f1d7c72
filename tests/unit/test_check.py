import numpy as np
import pytest

from ptanalyze.capture.check import FAILED, PARTIAL, Finding, check_trace, exit_code
from ptanalyze.capture.check.tables import check_tables
from ptanalyze.core.snapshot import TORN
from ptanalyze.core.trace import Event
from strategies import PAGE, REGION, Page, build_snapshot, build_trace

VA = 0x7F00_0000_0000


def wrong(findings):
    return {finding.name: finding.wrong for finding in findings if finding.wrong}


@pytest.fixture
def snapshot():
    return build_snapshot([(VA + k * PAGE, 900 + k) for k in range(600)] + [Page(VA + 8 * REGION, 1024, 2)])


@pytest.mark.parametrize("host", [None, []])
def test_a_whole_tree_passes_every_check(host):
    pages = [(VA, 9), (VA + REGION, 10), Page(VA + 8 * REGION, 1024, 2)]
    assert wrong(check_tables(build_snapshot(pages, host))) == {}


def test_an_entry_that_points_elsewhere_is_a_broken_link(snapshot):
    upper = int(np.flatnonzero(snapshot.guest.level == 2)[0])
    slot = int(np.flatnonzero(snapshot.guest.entries[upper])[0])
    snapshot.guest.entries[upper, slot] += np.uint64(1 << 12)
    assert wrong(check_tables(snapshot)) == {"gpt: links": 1}


def test_a_table_that_was_not_dumped_leaves_the_tree_open(snapshot):
    upper = int(np.flatnonzero(snapshot.guest.level == 2)[0])
    snapshot.guest.entries[upper, 300] = 77 << 12 | 0x67
    assert wrong(check_tables(snapshot)) == {"gpt: closed": 1}


def test_a_frame_that_holds_two_tables_is_found(snapshot):
    first, second = np.flatnonzero(snapshot.guest.level == 1)
    snapshot.guest.frame[second] = snapshot.guest.frame[first]
    assert wrong(check_tables(snapshot)) == {"gpt: links": 1, "gpt: frames once": 1}


def test_a_table_outside_every_node_is_found():
    snapshot = build_snapshot([(VA, 9)], nodes=1, table_nodes=(3,))
    found = wrong(check_tables(snapshot))
    assert found["gpt: frames in nodes"] == 4


def test_a_page_in_no_vma_is_found():
    snapshot = build_snapshot([(VA, 9), (VA + PAGE, 10)], vmas=[(VA, VA + PAGE, "heap")])
    assert wrong(check_tables(snapshot)) == {"pages: in VMAs": 1}
    assert exit_code(check_tables(snapshot)) == 1
    snapshot.facts["quiescence"] = {"quiet": False}  # read alive, while it mapped and unmapped
    assert exit_code(check_tables(snapshot)) == 3


def test_a_torn_table_makes_the_capture_partial(snapshot):
    snapshot.guest.flags[2] |= TORN
    findings = list(check_tables(snapshot))
    assert exit_code(findings) == 3


def test_what_the_dumper_recorded_about_itself_is_judged(snapshot):
    snapshot.facts["quiescence"] = {"quiet": False}
    snapshot.facts["verify"] = {"checked": 10, "mismatched": 2, "hidden": 1}
    verdicts = {finding.name: finding.verdict for finding in check_tables(snapshot) if finding.wrong}
    assert verdicts == {"dump: quiet": PARTIAL, "dump: pagemap agrees": FAILED, "dump: pagemap shows": "note"}


def dumped(levels, beyond, explained):
    """A snapshot with one huge page, of a kernel that counts `beyond` tables more than there are."""
    snapshot = build_snapshot([(VA, 9), Page(VA + 8 * REGION, 1024, 2)], levels=levels)
    snapshot.facts["completeness"] = {
        "tables": len(snapshot.guest), "counted_by_kernel": 3 + beyond, "huge_leaves": 1,
        "difference": 3 + beyond - (len(snapshot.guest) - 1), "explained": explained, "explanation": "so so",
    }  # fmt: skip
    return snapshot


@pytest.mark.parametrize("levels", [4, 5])
@pytest.mark.parametrize(("beyond", "complete"), [(-1, False), (0, True), (1, True), (2, False)])
@pytest.mark.parametrize("explained", [True, False])
def test_tables_are_missing_by_the_kernels_count_of_three_levels(levels, beyond, complete, explained):
    found = [one for one in check_tables(dumped(levels, beyond, explained)) if one.name == "dump: complete"]
    assert [one.verdict for one in found] == ["ok" if complete else PARTIAL]


@pytest.mark.parametrize("explained", [True, False])
def test_without_the_kernels_count_the_dumper_is_believed(explained):
    snapshot = dumped(5, 0, explained)
    snapshot.facts["completeness"] |= {"counted_by_kernel": None, "difference": None}
    assert ("dump: complete" in wrong(check_tables(snapshot))) is not explained


def test_a_trace_of_another_process_is_not_covered():
    snapshot = build_snapshot([(VA, 9)], vmas=[(VA, VA + REGION, "heap")])
    trace = build_trace([(0, [VA, 0x1000, 0x5000])])
    findings = {finding.name: finding for finding in check_trace(trace, snapshot)}
    covered = findings["trace: covered by VMAs"]
    assert (covered.wrong, covered.verdict) == (2, FAILED)
    assert covered.reason.endswith("the first at 0x1000")


def test_memory_that_the_trace_itself_mapped_and_unmapped_is_covered():
    snapshot = build_snapshot([(VA, 9)], vmas=[(VA, VA + REGION, "heap")])
    mmap = (0, 0, Event.MMAP, (0, 4 * PAGE, 3, 0x22), 0x10_0000)
    trace = build_trace([(0, [VA, 0x10_3000])], [mmap])
    findings = {finding.name: finding for finding in check_trace(trace, snapshot)}
    assert findings["trace: covered by VMAs"].wrong == 0


def test_an_empty_trace_fails():
    findings = list(check_trace(build_trace([(0, [])])))
    assert exit_code(findings) == 1
    assert wrong(findings)["trace: touches"] == 1


@pytest.mark.parametrize(
    ("verdicts", "code"), [(["ok"], 0), (["ok", "note"], 0), (["partial"], 3), (["partial", "failed"], 1)]
)
def test_the_exit_code_is_that_of_the_worst_finding(verdicts, code):
    assert exit_code([Finding("x", 1, 1, verdict) for verdict in verdicts]) == code
