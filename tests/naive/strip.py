"""Touches of a chunk without those that change no TLB: a twin of pintool/strip.h for traces of tests."""

import numpy as np

from ptanalyze.kernels.jit import allocating_kernel, called_hook
from ptanalyze.kernels.trace_codec import COUNT_MAX

# A touch between two touches of the same page can be left out when fewer than k other pages of its set came
# in between: an LRU set of k ways or more holds the page all the time (Kaplan, Smaragdakis, Wilson, "Trace
# reduction for virtual memory simulations", SIGMETRICS 1999). Page sizes are unknown here, so that it must
# hold for the page among 16 sets of 4, for its 2 MiB region among 4 sets of 4 (more than 8 sets of 4 and 4
# sets of 8 ask for), and among the 64 pages of an array without sets.

REACH = ((1, 16, 4), (1, 1, 64), (2, 8, 4), (2, 4, 8), (2, 1, 64), (3, 1, 64))  # PTT_REACH of pintool/slots.h
WAYS = 4
LISTED = WAYS + 1  # entries a set remembers: one that fell out has met WAYS others
EPOCH = 32  # pages; within two epochs in a row no page meets more than 63 others
# of an entry: its last touch surely kept, its last one, whether it has a store
NUMBER, KEPT, LAST, WROTE = range(4)
IN_PAGES, IN_REGIONS, STORE = 1, 2, 4  # bits of a verdict: where a touch can be left out; a first store


@allocating_kernel
def keep(page, write, count):
    """bool[n]: touches of a chunk to keep; `count` of the others is added to a kept touch of their page.

    page int64[n], write bool[n], count int64[n] (1 to COUNT_MAX)
    """
    n = len(page)
    sets = np.full((20, LISTED, 4), -1, np.int64)  # of pages, from 16 on of regions; the last touched first
    verdict, epoch, holder = np.zeros(n, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64)
    now = pages = 0
    for i in range(n):
        of_page, of_region = sets[page[i] & 15], sets[16 + (page[i] >> 9 & 3)]
        at = find(of_page, page[i])
        if at == LISTED or epoch[of_page[at, LAST]] != now:
            pages += 1
        if pages > EPOCH:
            now, pages = now + 1, 1
        epoch[i] = now
        stored = at < LISTED and of_page[at, WROTE] == 1
        if write[i] and not stored:
            verdict[i] = STORE
        judge(of_page, page[i], i, IN_PAGES, epoch, verdict, holder)
        of_page[0, WROTE] = stored or write[i]
        judge(of_region, page[i] >> 9, i, IN_REGIONS, epoch, verdict, holder)
    kept = verdict != IN_PAGES | IN_REGIONS
    for i in range(n):
        if not kept[i]:
            kept[i] = count[holder[i]] + count[i] > COUNT_MAX
            if not kept[i]:
                count[holder[i]] += count[i]
    return kept


@called_hook
def judge(entries, number, i, where, epoch, verdict, holder):
    """Touch i of `number` comes to its set: the one before can be left out `where`, or is surely kept."""
    at = find(entries, number)
    kept = before = i
    if at < LISTED:
        kept, before = entries[at, KEPT], entries[at, LAST]
        others = at
        for other in range(at + 1, LISTED):
            others += entries[other, NUMBER] >= 0 and entries[other, LAST] > kept
        if before != kept and others < WAYS and epoch[i] - epoch[kept] <= 1:
            verdict[before] |= where
            if where == IN_PAGES:
                holder[before] = kept
        else:
            kept = before
    for k in range(min(at, LISTED - 1), 0, -1):
        for field in range(4):
            entries[k, field] = entries[k - 1, field]
    entries[0, NUMBER], entries[0, KEPT], entries[0, LAST] = number, kept, i


@called_hook
def find(entries, number):
    """Position of `number` in its set, LISTED if it is not there."""
    for at in range(LISTED):
        if entries[at, NUMBER] == number:
            return at
    return LISTED
