"""The replay loop of the guest's table alone, which counts by group of pages, such as VMAs."""

from functools import cache
from typing import NamedTuple

import numpy as np

from .hooks import called_hook, kernel
from .replay import ONE, PAGES_ZEROED, CallCounters, served


class Grouped(NamedTuple):
    """Counts of G groups, the guest's table alone; the last group is of what belongs to no page.

    reads   int64[G, nodes, nodes, 2]  as Counters.reads, all levels together
    walks   int64[G, nodes]            by walker's node
    events  int64[G, calls, kinds, nodes, nodes]
    unused  int64[kinds, nodes, nodes]  the host's, which nobody counts
    pages   int64[2]                    as in Counters
    """

    reads: np.ndarray
    walks: np.ndarray
    events: np.ndarray
    unused: np.ndarray
    pages: np.ndarray


@cache
def grouped_for(hooks):
    """Compile the loop for a guest's hooks.

    Returns replay(cpu_node, reader, reads, group, fault, tables, rows, steps, step_group, shootdowns, mapped,
    state, counts, first, step, last): cpu_node int16[cpus] is what hooks are told, reader int16[cpus] where
    the CPU is; group int32[n] of each walk, step_group int32[S]; the rest as in replay.replay_for.
    """
    locate, on_walk, on_step = hooks

    @called_hook
    def take(tables, rows, steps, step_group, shootdowns, mapped, state, counts, step):
        events = counts.events[step_group[step], steps.call[step]]
        now = CallCounters(events, counts.unused, counts.pages, counts.pages)
        on_step(state, tables, rows, steps, shootdowns, mapped, now, step)

    @kernel
    def replay(
        cpu_node, reader, reads, group, fault, tables, rows, steps, step_group, shootdowns, mapped, state,
        counts, first, step, last,
    ):  # fmt: skip
        due, of_region, parent, level = steps.at, rows.of_region, tables.parent, tables.level
        for w in range(reads.page.size):
            while step < due.size and due[step] <= first + w:
                take(tables, rows, steps, step_group, shootdowns, mapped, state, counts, step)
                step += 1
            cpu, of, table = reads.cpu[w], group[w], np.int64(reads.leaf[w])
            node, here = np.int64(cpu_node[cpu]), np.int64(reader[cpu])
            mask, dram = reads.read[w], reads.dram[w]
            now = CallCounters(counts.events[of, 0], counts.unused, counts.pages, counts.pages)
            row = of_region[reads.page[w] >> np.uint32(9)]
            server = served(on_walk(state, tables, table, row, reads.slot[w], node, fault[w], now))
            counts.walks[of, here] += 1
            if fault[w]:
                now.events[PAGES_ZEROED, node, node] += np.int64(1) << (9 * (np.int64(level[table]) - 1))
            at = np.uint64(8 * np.int64(level[table]))
            counts.reads[of, here, server, (dram >> at) & ONE] += 1
            table = np.int64(parent[table])
            while table >= 0:
                at = np.uint64(8 * np.int64(level[table]))
                if (mask >> at) & ONE:
                    counts.reads[of, here, locate(state, table, node), (dram >> at) & ONE] += 1
                table = np.int64(parent[table])
        while last and step < due.size:
            take(tables, rows, steps, step_group, shootdowns, mapped, state, counts, step)
            step += 1
        return step

    return replay
