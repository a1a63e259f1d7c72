"""Compare a capture of a probe with what it is known to touch: judge.py PROBE CAPTURE BASE (hexadecimal)."""

import sys
from contextlib import suppress
from pathlib import Path

from ptanalyze.core.errors import CaptureError
from ptanalyze.formats.trace import read_trace

PAGES, THREADS = 64, 4
TOUCHED = (6, True)  # three loads and three stores
GATHERED = (1, False)


def seen(path, base):
    """{page of the probe: (accesses, whether one was a store, threads)}, and the trace."""
    trace, found = read_trace(path), {}
    thread = trace.chunks["thread"].repeat(trace.chunks["touches"])
    at = 0
    for batch in trace.batches(1 << 16):
        for page, store, count in zip(batch.page.tolist(), batch.write, batch.count, strict=True):
            number = (int(trace.regions[page >> 9]) << 9 | page & 511) - (base >> 12)
            if 0 <= number < PAGES:
                times, stored, who = found.get(number, (0, False, frozenset()))
                found[number] = times + int(count), stored or bool(store), who | {int(thread[at])}
            at += 1
    return found, trace


def expected(probe):
    """{page: (accesses, whether one was a store)} of the traced process itself."""
    pages = PAGES // 2 if probe in ("fork", "exec") else PAGES
    return dict.fromkeys(range(pages), GATHERED if probe == "gather" else TOUCHED)


def judge(probe, capture, base):
    """Words that say what is wrong; "" where nothing is."""
    found, trace = seen(capture / "trace.ptt", base)
    plain, want = {page: one[:2] for page, one in found.items()}, expected(probe)
    if plain != want:
        page = min(p for p in plain.keys() | want.keys() if plain.get(p) != want.get(p))
        here, there = plain.get(page), want.get(page)
        return f"page {page} has (accesses, store) {here}, not {there}; {len(plain)} pages seen"
    ended = "exec" if probe == "exec" else "exit"
    if trace.facts["ended"] != ended:
        return f"the trace ended by {trace.facts['ended']}, not {ended}"
    part = PAGES // THREADS
    quarters = [range(first, first + part) for first in range(0, PAGES, part) if first in found]
    by_thread = [frozenset().union(*(found[page][2] for page in quarter)) for quarter in quarters]
    if probe == "threads" and (len(set(by_thread)) != THREADS or any(len(who) != 1 for who in by_thread)):
        return f"threads of the four quarters: {[sorted(who) for who in by_thread]}, not four different ones"
    if probe == "fork":
        return judge_child(capture, base)
    return ""


def judge_child(capture, base):
    """Of the two children one touches pages: the other runs another program at once."""
    children = []
    for path in sorted(capture.glob("pid-*/trace.ptt")):
        with suppress(CaptureError):  # a trace without any touch
            children.append({page: one[:2] for page, one in seen(path, base)[0].items()})
    touching = [pages for pages in children if pages]
    if len(touching) != 1:
        return f"{len(touching)} children with touched pages, not 1"
    want = dict.fromkeys(range(PAGES // 2, PAGES), TOUCHED)
    return "" if touching[0] == want else f"child: {len(touching[0])} pages, not 32 to 63 with {TOUCHED} each"


if __name__ == "__main__":
    wrong = judge(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3], 16))
    print(wrong or "ok")
    sys.exit(1 if wrong else 0)
