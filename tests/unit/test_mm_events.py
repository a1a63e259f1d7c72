"""Which byte ranges the kernel takes translations away from."""

import pytest

from ptanalyze.core.trace import Event
from ptanalyze.world.mm_events import invalidations
from strategies import build_trace

M = 1 << 20


def ranges(*events):
    rows = invalidations(build_trace([], [(0, 0, *event) for event in events]).events)
    return [(int(r["event"]), int(r["start"]), int(r["end"])) for r in rows]


@pytest.mark.parametrize(
    ("kind", "arguments", "result", "expected"),
    [
        (Event.MUNMAP, (M, 5000), 0, (M, M + 8192)),
        (Event.MPROTECT, (M, 4096, 1), 0, (M, M + 4096)),
        (Event.MADVISE, (M, 4096, 4), 0, (M, M + 4096)),
        (Event.MADVISE, (M, 4096, 14), 0, None),  # MADV_HUGEPAGE changes no translation
        (Event.MMAP, (0, 4096, 3, 0x22), M, None),
        (Event.MMAP, (M, 4096, 3, 0x32), M, (M, M + 4096)),
        (Event.MMAP, (M, 4096, 3, 0x100032), M, None),
        (Event.MREMAP, (M, 8192, 16384, 1), 2 * M, (M, M + 8192)),
        (Event.MREMAP, (M, 8192, 16384, 1), M, None),
        (Event.MREMAP, (M, 8192, 4096, 0), M, (M + 4096, M + 8192)),
        (Event.MUNMAP, (M, 4096), -22, None),
        (Event.MMAP, (M, 4096, 3, 0x32), -12, None),
        (Event.MUNMAP, (M, 0), 0, None),
        (Event.ROI_START, (M, 4096), 0, None),
    ],
)
def test_an_event_invalidates_what_the_kernel_unmaps(kind, arguments, result, expected):
    assert ranges((kind, arguments, result)) == ([(0, *expected)] if expected else [])


def test_mremap_onto_a_fixed_address_also_unmaps_what_was_there():
    assert ranges((Event.MREMAP, (M, 4096, 8192, 3), 4 * M)) == [(0, M, M + 4096), (0, 4 * M, 4 * M + 8192)]


def test_a_shrinking_brk_is_measured_against_the_break_before_it():
    calls = [
        (Event.BRK, (0,), 4 * M),
        (Event.BRK, (8 * M,), 8 * M),
        (Event.BRK, (5 * M,), 5 * M),
        (Event.BRK, (M,), 5 * M),
    ]
    assert ranges(*calls) == [(2, 5 * M, 8 * M)]


def test_a_length_beyond_the_address_space_is_cut_off_at_its_end():
    ((_, start, end),) = ranges((Event.MUNMAP, (M, (1 << 64) - 1), 0))
    assert start == M and end == (1 << 64) - 4096


def test_events_outside_the_region_of_interest_take_nothing_away():
    unmap = (Event.MUNMAP, (M, 4096), 0)
    begin, end = ((kind, (), 0) for kind in (Event.ROI_START, Event.ROI_END))
    assert ranges(unmap, begin, unmap, end, unmap) == [(2, M, M + 4096)]
    assert ranges((Event.BRK, (), 4 * M), begin, (Event.BRK, (M,), M)) == [(2, M, 4 * M)]
