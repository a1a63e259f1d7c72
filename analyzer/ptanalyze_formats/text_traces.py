"""Import the output of `valgrind --tool=lackey --trace-mem=yes`."""

from os import PathLike
from typing import IO

import numpy as np

import ptanalyze as pt

from .inputs import bad_line, blocks, open_input
from .kernels import parse_lackey
from .trace_writer import UNKNOWN_THREAD, new_trace

ROWS_A_LINE = 4
SHORTEST_LINE = 6
WHAT = "no line of lackey's --trace-mem=yes (I, L, S or M, blank, address, comma, size)"


def import_lackey(source: str | PathLike[str] | IO[bytes], out: str | PathLike[str]) -> int:
    """Write the trace of `source` (path or binary stream) to the file `out`; returns the number of accesses.

    Valgrind runs one thread at a time and lackey does not say which: it all becomes thread 0. It has no clock
    either: an instruction counts as a nanosecond. Instruction fetches are counted, not traced.
    CaptureError names the first line that lackey did not print; `out` is not made then.
    """
    instructions = 0
    facts = {"tracer": "valgrind lackey, 1 ns = 1 instruction", "instructions": True}
    with open_input(source) as (file, name), new_trace(out, **facts) as writer:
        writer.event(pt.trace.Event.THREAD_START, b=UNKNOWN_THREAD)
        for block, before in blocks(file, name):
            room = (len(block) // SHORTEST_LINE + 1) * ROWS_A_LINE
            page, write, time = np.empty(room, np.int64), np.empty(room, np.bool_), np.empty(room, np.int64)
            n, instructions, bad = parse_lackey(block, instructions, page, write, time)
            page, write, time = page[:n], write[:n], time[:n]
            writer.accesses_of(page, write, thread=0, time=time, instructions=time)
            if bad >= 0:
                raise bad_line(name, block, before, bad, WHAT)
        if not writer.accesses:
            raise pt.errors.CaptureError(
                name, "accesses", 0, "nothing to import; was lackey run with --trace-mem=yes?"
            )
        return writer.accesses
