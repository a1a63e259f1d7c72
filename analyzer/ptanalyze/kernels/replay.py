"""The replay loop: which node serves each read of each walk under a policy. It counts; cost.py prices."""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit

ONE = np.uint64(1)
HOST_BITS = np.uint64(0x3E)
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
    """Compile the loop for one policy's hooks (policies.base says what they are).

    _nrt=False: no reference counts, which cost 20 times as much as the replay; nothing here allocates.

    Returns replay(cpu_node, reads, fault, tables, rows, steps, shootdowns, mapped, state, counters, first,
    step): replays walks first, first + 1, ... of the stream and the steps due before them; returns the next
    step.
    """

    @njit(nogil=True, _nrt=False)
    def replay(cpu_node, reads, fault, tables, rows, steps, shootdowns, mapped, state, counters, first, step):
        cpu, page, leaves, slots, hosts = reads.cpu, reads.page, reads.leaf, reads.slot, reads.host_leaf
        masks, drams, of_region = reads.read, reads.dram, rows.of_region
        parent, level, host_leaf = tables.parent, tables.level, tables.host_leaf
        counts, classes, due = counters.reads, counters.classes, steps.at
        for w in range(page.size):
            while step < due.size and due[step] <= first + w:
                on_step(state, tables, rows, steps, shootdowns, mapped, counters, step)
                step += 1
            node, table, host = np.int64(cpu_node[cpu[w]]), np.int64(leaves[w]), np.int64(hosts[w])
            mask, dram = masks[w], drams[w]
            row = of_region[page[w] >> np.uint32(9)]
            server = on_walk(state, tables, table, row, slots[w], node, fault[w], counters)
            kind = LL if server == node else RL
            if host >= 0 and locate(state, host, 1, node) != node:
                kind += 1
            classes[node, kind] += 1
            guest = np.int64(level[table])
            at = 8 * guest
            counts[at, node, server, (dram >> np.uint64(at)) & ONE] += 1
            mask ^= ONE << np.uint64(at)
            at = 0
            while mask != 0:
                while host >= 0 and (mask >> np.uint64(at)) & HOST_BITS:
                    bit = at + np.int64(level[host])
                    if (mask >> np.uint64(bit)) & ONE:
                        counts[bit, node, locate(state, host, 1, node), (dram >> np.uint64(bit)) & ONE] += 1
                        mask ^= ONE << np.uint64(bit)
                    host = np.int64(parent[host])
                if at > 0:
                    table = np.int64(parent[table])
                    if table < 0:
                        break
                    guest += 1
                at = 8 * guest
                if (mask >> np.uint64(at)) & ONE:
                    counts[at, node, locate(state, table, 0, node), (dram >> np.uint64(at)) & ONE] += 1
                    mask ^= ONE << np.uint64(at)
                host = np.int64(host_leaf[table])
        return step

    return replay
