"""Who touched memory first, before the region of interest: the plugin against a program known in detail."""

import pytest

from native import tracing
from native.tracing import run
from ptanalyze.core.trace import Event

pytestmark = pytest.mark.native
REGION = 1 << 21
MAIN = 0


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    tracing.build_plugin()
    return tracing.build(tmp_path_factory.mktemp("programs"), "first_touches")


def noted(trace, base):
    """[(region counted from `base`, thread)] of the FIRST_TOUCH events of the program's 16 regions."""
    events = trace.events[trace.events["kind"] == Event.FIRST_TOUCH]
    assert not (events["a"] % REGION).any()
    found = [((int(event["a"]) - base) // REGION, int(event["thread"])) for event in events]
    return [(region, thread) for region, thread in found if 0 <= region < 16]


def test_each_region_s_first_thread_is_noted_and_after_an_unmapping_the_next_one(program, tmp_path):
    trace, (base,), status = run(program, out=tmp_path / "t.ptt", roi_marker="on")
    assert status == 0
    assert noted(trace, base) == [
        (0, MAIN), (1, 1), (2, 2), (3, 4), (4, 4),
        (5, 5), (5, 6), (5, 7),  # unmapped, then mapped over
        (6, 8),  # half of it unmapped: its table stays
        (7, MAIN),  # populated by mmap
        (8, 11), (9, MAIN), (8, 13),  # moved by mremap
    ]  # fmt: skip


def test_nothing_is_noted_once_the_region_of_interest_has_begun_and_its_touches_are_all_there(
    program, tmp_path
):
    trace, (base,), _ = run(program, out=tmp_path / "t.ptt", roi_marker="on")
    kinds = trace.events["kind"].tolist()
    assert Event.FIRST_TOUCH not in kinds[kinds.index(Event.ROI_START) :]
    touched = {int(region) - (base >> 21) for region in trace.regions}
    assert touched & set(range(16)) == {10, 12}


def test_first_touches_carry_the_cpu_and_come_before_all_chunks(program, tmp_path):
    trace, _, _ = run(program, out=tmp_path / "t.ptt", roi_marker="on")
    events = trace.events[trace.events["kind"] == Event.FIRST_TOUCH]
    assert (events["cpu"] >= 0).all() and (events["chunk"] == 0).all()


def test_a_trace_of_the_whole_run_needs_no_first_touches(program, tmp_path):
    trace, _, _ = run(program, out=tmp_path / "t.ptt")
    assert Event.FIRST_TOUCH not in trace.events["kind"]


def test_a_region_of_interest_by_number_of_accesses_has_first_touches_before_it_too(program, tmp_path):
    trace, _, _ = run(program, out=tmp_path / "t.ptt", roi_start_access=1000, roi_accesses=1000)
    kinds = trace.events["kind"].tolist()
    begin = kinds.index(Event.ROI_START)
    assert Event.FIRST_TOUCH in kinds[:begin] and Event.FIRST_TOUCH not in kinds[begin:]
