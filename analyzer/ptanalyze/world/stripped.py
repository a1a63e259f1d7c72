"""Whether a trace that lacks accesses, stripped or sampled, still tells which accesses miss a TLB."""

import numpy as np

from ..core.errors import UsageError
from ..core.machine import Array, Tlb
from ..core.trace import Trace

NAMES = {1: "l1_4k", 2: "l1_2m", 3: "l1_1g"}


def must_be_no_sample(trace: Trace) -> None:
    """UsageError for samples of accesses: a TLB that is shown one access in thousands misses always."""
    if trace.facts.get("sampled") and not trace.facts.get("walks"):
        raise UsageError(
            "trace: samples of accesses, from which no TLB miss follows; sample TLB misses instead (perf "
            "record -d -e mem_inst_retired.stlb_miss_loads:P), or trace the program with `ptanalyze record`"
        )


def must_fit(trace: Trace, tlb: Tlb, tlb_level: np.ndarray) -> None:
    """UsageError unless each first-level array that the trace's pages use is one that the trace is exact for.

    A stripped trace (facts["stripped"], pintool/strip.h) lacks touches that hit in certain first-level arrays
    and change nothing there, so that the second level never sees them. tlb_level  uint8[R], page size of
    each region
    """
    reach = trace.facts.get("stripped", ())
    for size in np.unique(tlb_level).tolist() if reach else ():
        array: Array = getattr(tlb, NAMES[size])
        served = [(sets, ways) for of, sets, ways in reach if of == size]
        if not any(array.sets % sets == 0 and array.ways >= ways for sets, ways in served):
            shape = f"{array.entries} entries, {array.ways} ways"
            raise UsageError(
                f"tlb.{NAMES[size]} = {shape}: the trace was stripped of touches that hit in TLBs with "
                f"{_in_words(served)}, not in this one; record with --strip off, or name another machine"
            )


def _in_words(served: list[tuple[int, int]]) -> str:
    words = [
        f"{ways} ways or more" if sets == 1 else f"a multiple of {sets} sets of {ways} ways or more"
        for sets, ways in served
    ]
    return " or ".join(words)
