"""Cost of a system call of a micro-benchmark, from counts of its changes."""

import numpy as np

from ..core.machine import Machine, load_costs
from ..cost import price as cost
from ..cost.result import SystemCalls
from ..kernels.replay import FAULT, PAGES_ZEROED, PTE_FANOUT, PTE_WRITE, TABLE_FREE, TABLE_NEW, counters
from ..kernels.steps import CALLS


def million_entries_per_second(machine: Machine, call: str, entries: int, copies: int) -> float:
    """Entries changed, in millions per second, by a call over `entries` 4 KiB pages under `copies` tables.

    call  "mmap" (populated, its pages zeroed), "mprotect" or "munmap", as the micro-benchmark of vMitosis,
    section 4.4; a mapping of one page leaves its table page in place
    """
    count, tables, costs = counters(machine.nodes), entries // 512, load_costs(machine)
    at = CALLS.index("walk" if call == "mmap" else call)
    for node in range(copies):
        stores = 2 * entries if call == "mprotect" else entries
        count.events[at, PTE_FANOUT if node else PTE_WRITE, 0, node] = stores
        if call != "mprotect":
            count.events[at, TABLE_NEW if call == "mmap" else TABLE_FREE, 0, node] = tables
    made = SystemCalls(*(np.zeros((len(CALLS), machine.nodes), np.int64) for _ in range(3)))
    made.calls[CALLS.index(call), 0] = made.flushes[at, 0] = 1
    populated = 0
    if call == "mmap":  # faults that never trap, and zero their pages
        count.events[at, [FAULT, PAGES_ZEROED], 0, 0] = populated = entries
    ns = float(cost.busy_ns(count, machine, costs, made).sum())
    return 1e3 * entries / (ns - costs.fault_ns * populated)
