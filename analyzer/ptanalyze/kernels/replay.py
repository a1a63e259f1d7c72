"""The replay loop: which node serves each read of each walk under one policy. It counts; ptanalyze.cost prices."""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit

READ_BITS = 48  # bit 8 * g + h of Reads.read
LL, LR, RL, RR = range(4)  # guest leaf first, host leaf second; native walks are LL or RL

PTE_WRITE, PTE_FANOUT, FAULT, REPLICA_FAULT, PTE_COPY, TABLE_NEW, TABLE_FREE, IPI, IPI_SAVED = range(9)
EVENT_KINDS = (
    "pte_writes",  # entries written where a single copy would be written too; to = node of that copy
    "pte_fanout",  # entries written to further copies
    "faults",  # demand faults; to = node that holds the new entry first
    "replica_faults",  # faults that only copied an entry; to = node it was copied from
    "pte_copies",  # entries copied, prefetched ones included; to = node they were copied from
    "tables_new",  # table pages made (zeroed, linked into their parent); to = node they are on
    "tables_freed",
    "ipis",  # TLB shootdown IPIs; to = node of the interrupted CPU
    "ipis_saved",  # CPUs with a live thread that a filter spared
)


class Counters(NamedTuple):
    """Everything a replay counts. `from` is the node of the CPU that walked, faulted or made the system call.

    reads    int64[48, nodes, nodes, 2]  [bit of Reads.read, reader's node, serving node, 1 = from DRAM]
    classes  int64[nodes, 4]             walks by [reader's node, LL LR RL RR] of their leaf entries
    events   int64[kinds, nodes, nodes]  [EVENT_KINDS, from, to]
    pages    int64[2]                    guest table pages now, and at most so far
    """

    reads: np.ndarray
    classes: np.ndarray
    events: np.ndarray
    pages: np.ndarray


def counters(nodes):
    """Counters of zeros for a machine with `nodes` nodes."""
    return Counters(
        np.zeros((READ_BITS, nodes, nodes, 2), np.int64),
        np.zeros((nodes, 4), np.int64),
        np.zeros((len(EVENT_KINDS), nodes, nodes), np.int64),
        np.zeros(2, np.int64),
    )


@njit(inline="always")
def grow(pages, by):
    """Count `by` more table pages."""
    pages[0] += by
    pages[1] = max(pages[0], pages[1])


@cache
def replay_for(locate, on_walk, on_step):
    """Compile the loop for one policy's hooks (policies.base.Hooks says what they are).

    Returns replay(cpu_node, reads, fault, tables, rows, steps, shootdowns, mapped, state, counters, first, step):
    replays walks first, first + 1, ... of the stream and the steps due before them; returns the next step.
    """

    @njit(nogil=True)
    def replay(cpu_node, reads, fault, tables, rows, steps, shootdowns, mapped, state, counters, first, step):
        for w in range(reads.page.size):
            while step < steps.at.size and steps.at[step] <= first + w:
                on_step(state, tables, rows, steps, shootdowns, mapped, counters, step)
                step += 1
            node, leaf, mask, dram = cpu_node[reads.cpu[w]], reads.leaf[w], reads.read[w], reads.dram[w]
            row = rows.of_region[reads.page[w] >> np.uint32(9)]
            server = on_walk(state, tables, leaf, row, reads.slot[w], node, fault[w], counters)
            kind = LL if server == node else RL
            at = 8 * tables.level[leaf]
            bit = np.uint64(1) << np.uint64(at)
            if mask & bit:
                counters.reads[at, node, server, np.int64(dram & bit != 0)] += 1
            host = reads.host_leaf[w]
            if host >= 0:
                kind += locate(state, host, 1, node) != node
            counters.classes[node, kind] += 1
            if mask != bit:
                above(state, tables, leaf, host, mask & ~bit, dram, node, counters)
        return step

    @njit(nogil=True)
    def above(state, tables, leaf, host, mask, dram, node, counters):
        """All reads but that of the guest's leaf entry: the data page's nested ones, then up the guest's tree."""
        table = leaf
        guest = 0
        while mask != 0:
            if guest > 0:
                at = 8 * guest
                bit = np.uint64(1) << np.uint64(at)
                if mask & bit:
                    server = locate(state, table, 0, node)
                    counters.reads[at, node, server, np.int64(dram & bit != 0)] += 1
                    mask ^= bit
                host = tables.host_leaf[table]
            while host >= 0 and (mask >> np.uint64(8 * guest)) & np.uint64(0x3E):
                at = 8 * guest + tables.level[host]
                bit = np.uint64(1) << np.uint64(at)
                if mask & bit:
                    server = locate(state, host, 1, node)
                    counters.reads[at, node, server, np.int64(dram & bit != 0)] += 1
                    mask ^= bit
                host = tables.parent[host]
            mask = mask >> np.uint64(8 * guest + 8) << np.uint64(8 * guest + 8)
            if guest == 0:
                guest = np.int64(tables.level[leaf])
            else:
                table = tables.parent[table]
                if table < 0:
                    break
                guest = np.int64(tables.level[table])

    return replay
