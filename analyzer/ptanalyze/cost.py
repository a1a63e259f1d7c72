"""Counts to cycles to an estimate of run time; array products only, so that new latencies need no replay.

The run-time law is additive, C = NW + e W + M: NW cycles outside walks, W walk cycles, e the share of them
that stalls the program, M the kernel's work on page tables, all summed over the CPUs. The counters of the
public vMitosis runs obey it with one e per workload over all placements. Neither e nor NW can be read off a
trace: both are stated intervals, and a speed-up is computed with the same e and NW for the baseline and for
the policy.
"""

from itertools import product

import numpy as np

from .kernels.replay import (
    FAULT,
    IPI,
    PTE_COPY,
    PTE_FANOUT,
    PTE_WRITE,
    REPLICA_FAULT,
    TABLE_FREE,
    TABLE_MOVED,
    TABLE_NEW,
)
from .result import Estimate, Price

LEVEL_BITS = 8


def read_cycles(machine, contended=False):
    """float64[nodes, nodes, 2]: cycles of one read by [reader's node, serving node, 1 = from DRAM].

    What does not come from DRAM comes from the reader's own L2 or LLC, wherever the table is: the mean of
    both.
    """
    dram = machine.latency_cycles(contended)
    cached = np.full_like(dram, (machine.l2.cycles + machine.llc.cycles) / 2)
    return np.stack([cached, dram], axis=-1)


def walk_cycles(reads, machine, contended=False):
    """(guest, host) cycles of all reads; the reads of one walk depend on each other, so they add up."""
    by_bit = np.einsum("bnmd,nmd->b", reads.astype(np.float64), read_cycles(machine, contended))
    guest = float(by_bit[::LEVEL_BITS].sum())
    return guest, float(by_bit.sum()) - guest


def management_cycles(counters, machine, costs):
    """Cycles of faults, entries written and copied, table pages made and freed, and IPIs."""
    events = (counters.events + counters.host_events).sum(axis=0)
    nodes = events.shape[1]
    write = np.full((nodes, nodes), costs.pte_write_remote_ns)
    np.fill_diagonal(write, costs.pte_write_local_ns)
    ipi = np.full((nodes, nodes), costs.ipi_remote_ns)
    np.fill_diagonal(ipi, costs.ipi_local_ns)
    ns = (
        ((events[PTE_WRITE] + events[PTE_FANOUT]) * write).sum()
        + events[FAULT].sum() * costs.fault_ns
        + events[REPLICA_FAULT].sum() * costs.replica_fault_ns
        + events[PTE_COPY].sum() * costs.pte_copy_ns
        + (events[TABLE_NEW] + events[TABLE_FREE] + events[TABLE_MOVED]).sum() * costs.table_ns
        + (events[IPI] * ipi).sum()
    )
    return float(ns) * machine.ghz


def price(counters, machine, costs, baseline=None, instructions=0.0, contended=False):
    """Price of Counters against the baseline's; no speed-up where instructions are not known (0)."""
    guest, host = walk_cycles(counters.reads, machine, contended)
    management = management_cycles(counters, machine, costs)
    speedup = run = None
    if instructions and baseline is not None:
        base = sum(walk_cycles(baseline.reads, machine, contended))
        base_management = management_cycles(baseline, machine, costs)
        speedup = _speedup((base, base_management), (guest + host, management), instructions, costs)
        outside = instructions * costs.cycles_per_instruction.middle
        run = outside + costs.exposed.middle * (guest + host) + management
    return Price(guest + host, guest, host, management, speedup, run, assumptions(costs, contended))


def _speedup(base, new, instructions, costs):
    def at(exposed, cpi):
        outside = instructions * cpi
        return (outside + exposed * base[0] + base[1]) / (outside + exposed * new[0] + new[1])

    e, cpi = costs.exposed, costs.cycles_per_instruction
    corners = [at(*corner) for corner in product((e.low, e.high), (cpi.low, cpi.high))]
    middle = at(e.middle, cpi.middle)
    return Estimate(min(*corners, middle), middle, max(*corners, middle))


def assumptions(costs, contended=False):
    """One line: what the run-time estimate takes for granted."""
    e, cpi = costs.exposed, costs.cycles_per_instruction
    return (
        f"{e.low:g} to {e.high:g} of walk cycles stall the program, {cpi.low:g} to {cpi.high:g} cycles an "
        f"instruction outside walks, {'contended' if contended else 'idle'} latencies, costs of {costs.name}"
    )


def instructions(trace, costs):
    """(instructions of a Trace, how they are known): counted, or from its accesses by an assumed ratio."""
    counted = int(trace.chunks["instructions"].sum())
    if counted:
        return float(counted), "instructions as counted"
    ratio = costs.instructions_per_access
    return trace.accesses * ratio, f"instructions not counted: {ratio:g} an access assumed"
