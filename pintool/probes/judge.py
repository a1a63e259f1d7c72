"""Compare a capture of a probe with what the probe is known to touch: judge.py PROBE CAPTURE BASE (hexadecimal)."""

import sys
from pathlib import Path

from ptanalyze.formats.trace_file import read_trace

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
    children = sorted(capture.glob("pid-*"))
    if len(children) != 1:
        return f"{len(children)} children traced, not 1"
    found, _ = seen(children[0] / "trace.ptt", base)
    want = dict.fromkeys(range(PAGES // 2, PAGES), TOUCHED)
    plain = {page: one[:2] for page, one in found.items()}
    return "" if plain == want else f"child: {len(plain)} pages, not pages 32 to 63 with {TOUCHED} each"


if __name__ == "__main__":
    wrong = judge(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3], 16))
    print(wrong or "ok")
    sys.exit(1 if wrong else 0)
