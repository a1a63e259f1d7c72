"""A whole trace as `record --every` would have left it."""

from dataclasses import replace

import numpy as np

from ptanalyze.core.trace import EVENT_DTYPE, SLOT_BITS, Event, Touches


def cut(trace, every_ns, window_ns):
    """Trace of windows; between them each thread's first touch of each page, unmapped in between or not."""
    chunks, thread = trace.chunks.copy(), trace.chunks["thread"]
    since = chunks["time"] - chunks["time"][0]
    window = np.where(since % every_ns < window_ns, since // every_ns + 1, 0)
    seen = np.zeros((int(thread.max()) + 1, len(trace.regions) << SLOT_BITS), bool)
    kept = [_kept(batch, chunks, window, thread, seen) for batch in trace.batches(1 << 20)]
    for batch in kept:
        chunks["touches"][batch.chunks] = batch.touches
    chunks["first"] = np.cumsum(chunks["touches"]) - chunks["touches"]
    facts = trace.facts | {"every_ns": int(every_ns), "window_ns": int(window_ns)}
    events = np.concatenate([trace.events, _turns(chunks, window, thread)])
    events = events[np.argsort(events["chunk"], kind="stable")]
    touches = [one.kept for one in kept]
    return replace(trace, chunks=chunks, events=events, facts=facts, batches=lambda _: iter(touches))


class _Kept:
    def __init__(self, kept, touches):
        self.kept, self.chunks, self.touches = kept, kept.chunks, touches


def _kept(batch, chunks, window, thread, seen):
    number = np.arange(batch.chunks.start, batch.chunks.stop)
    chunk = np.repeat(number, chunks["touches"][batch.chunks])
    outside = window[chunk] == 0
    at = np.flatnonzero(outside)
    _, first = np.unique(thread[chunk[at]].astype(np.int64) << 32 | batch.page[at], return_index=True)
    first, new = at[first], np.zeros(len(chunk), bool)
    new[first] = ~seen[thread[chunk[first]], batch.page[first]]
    seen[thread[chunk[new]], batch.page[new]] = True
    stays = ~outside | new
    touches = np.bincount(chunk[stays] - batch.chunks.start, minlength=len(number))
    return _Kept(Touches(batch.chunks, batch.page[stays], batch.write[stays], batch.count[stays]), touches)


def _turns(chunks, window, thread):
    """Events before the first chunk of each thread in each window, and after."""
    rows = []
    for one in np.unique(thread):
        mine = np.flatnonzero(thread == one)
        turned = mine[np.flatnonzero(np.diff(window[mine], prepend=-1))]
        events = np.zeros(len(turned), EVENT_DTYPE)
        events["chunk"], events["kind"], events["thread"] = turned, Event.WINDOW, one
        events["time"], events["a"], events["cpu"] = chunks["time"][turned], window[turned], -1
        rows.append(events)
    return np.concatenate(rows)
