"""Where the live threads of a trace run, event by event."""

from collections import Counter

import numpy as np

from ptanalyze.core.trace import Event


class Majority:
    """Node on which most live threads run."""

    def __init__(self, trace, placement):
        self.trace, self.placement = trace, placement
        chunks = trace.chunks["thread"].tolist()
        self.at = {t: int(placement.chunk_cpu[chunks.index(t)]) for t in set(chunks)}
        starts = {int(e["thread"]) for e in trace.events if e["kind"] == Event.THREAD_START}
        self.live = set(self.at) - starts
        counts = self.counts()
        main = self.node(self.at[0]) if 0 in self.at else 0
        self.home = counts.index(max(counts)) if self.live else main

    def node(self, cpu):
        return int(self.placement.cpu_node[cpu])

    def counts(self):
        found = Counter(self.node(self.at[t]) for t in self.live)
        return [found[n] for n in range(int(self.placement.cpu_node.max(initial=0)) + 1)]

    def changed(self):
        """The new home, or None."""
        counts = self.counts()
        if max(counts) <= counts[self.home]:
            return None
        self.home = counts.index(max(counts))
        return self.home

    def event(self, number):
        event, thread = self.trace.events[number], int(self.trace.events["thread"][number])
        if event["kind"] == Event.THREAD_START:
            self.at.setdefault(thread, int(self.placement.event_cpu[number]))
            self.live.add(thread)
        elif event["kind"] == Event.THREAD_EXIT:
            self.live.discard(thread)
        return self.changed()

    def chunk(self, number):
        self.at[int(self.trace.chunks["thread"][number])] = int(self.placement.chunk_cpu[number])
        return self.changed()


def alive(trace, placement, chunk):
    """CPUs with a live thread while a chunk runs."""
    state = Majority(trace, placement)
    for k in range(chunk + 1):
        for number in np.flatnonzero(trace.events["chunk"] == k).tolist():
            state.event(number)
        state.chunk(k)
    return {state.at[t] for t in state.live}
