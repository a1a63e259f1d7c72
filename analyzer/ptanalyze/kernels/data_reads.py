"""Where the data of each walk are: the node that walks, and the node that its page is on by then."""

from typing import NamedTuple

import numpy as np

from .data_moves import MARKED, NOT_MAPPED, NOWHERE
from .hooks import called_hook, hook, kernel
from .steps import CLEAR, DATA, HOST_DATA, MOVE, data_page, host_entry, move_target, node_now, slot_range


class Pages(NamedTuple):
    """Nodes of data pages now, as world.data_nodes.DataNodes: changed by `count_data`.

    guest    int8[L, 512]; host  int8[H, 512]; host_row  int32[T]
    by_host  whether the hypervisor's entries say where pages are
    """

    guest: np.ndarray
    host: np.ndarray
    host_row: np.ndarray
    by_host: bool


@kernel
def count_data(cpu_node, reads, of_region, tables, steps, pages, first, step, counts):
    """counts[reader, node] (int64[nodes, nodes]) += walks first, first + 1, ... by the node of their data.

    reads  Reads; step: first step not yet taken. Returns the next one. A page that is nowhere yet is where
    its first walk comes from.
    """
    for w in range(reads.page.size):
        while step < steps.at.size and steps.at[step] <= first + w:
            take(tables, steps, pages, step)
            step += 1
        node = np.int64(cpu_node[reads.cpu[w]])
        there = np.int64(NOWHERE)
        table = np.int64(reads.host_leaf[w])
        if pages.by_host and table >= 0 and pages.host_row[table] >= 0:
            there = np.int64(pages.host[pages.host_row[table], reads.host_slot[w]])
        if there < 0:
            there = settle(pages, of_region[reads.page[w] >> np.uint32(9)], np.int64(reads.slot[w]), node)
        counts[node, there & ~MARKED] += 1
    return step


@hook
def settle(pages, row, slot, node):
    """The node of a guest's page, from now on if it had none."""
    value = np.int64(pages.guest[row, slot])
    if value < 0:
        value = node if value == NOWHERE else NOT_MAPPED - value
        pages.guest[row, slot] = value
    return value


@called_hook
def take(tables, steps, pages, step):
    """A step that moves pages, or clears or moves entries."""
    kind = steps.kind[step]
    if kind == DATA:
        row, slot = data_page(steps, step)
        pages.guest[row, slot] = node_now(steps, step)
    elif kind == HOST_DATA:
        table, slot = host_entry(steps, tables, step)
        if table >= 0 and slot >= 0 and pages.host_row[table] >= 0:
            pages.host[pages.host_row[table], slot] = node_now(steps, step)
    elif kind in (CLEAR, MOVE):
        row, lo, hi = slot_range(steps, step)
        if kind == MOVE:
            target, to = move_target(steps, step)
            for slot in range(lo, hi):
                if pages.guest[row, slot] >= 0:
                    pages.guest[target, to + slot - lo] = pages.guest[row, slot]
        for slot in range(lo, hi):
            if pages.guest[row, slot] >= 0:
                pages.guest[row, slot] = NOWHERE
