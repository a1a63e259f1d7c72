"""What a replay counts under a policy: all that prices, tables and verdicts know of it. Latencies and costs
come later."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernels import FAULT

if TYPE_CHECKING:
    from ..core.columns import Finding

TRACED, STEADY = 0, -1  # axis `runs`
GUEST, HOST = 0, 1  # axis `sides`
CACHED, DRAM = 0, 1  # axis `from`
MADE, FLUSHES, SHOOTDOWNS, BROADCASTS = range(4)  # axis `what` of calls
WARM, AS_TRACED = "warm", "as traced"  # the run that is counted
GUEST_BITS = slice(0, None, 8)  # of reads: entries of the guest's tables; natively all
LEAVES = (1 << 3, 1)  # bits of reads of 4 KiB leaf entries: the guest's, and the host's of the data page


@dataclass(frozen=True)
class Counts:
    """Arrays over two runs, the trace and its steady state once more; where the trace alone is counted
    (--cold) `runs` is 1, so that TRACED and STEADY are the same.

    run           the run that is counted: WARM, AS_TRACED, None without a trace
    reads         [runs, shares, bits, nodes, nodes, from]  entries read: bit of kernels.Counters, reader,
                  server; shares of the LLC that page tables may have, the machine's own first
    classes       int64[runs, nodes, 4]  walks by the reader's node and LL LR RL RR
    events        int64[runs, sides, calls, kinds, nodes, nodes]
    before        int64[sides, calls, kinds, nodes, nodes]  from the captured tables to the policy's
    calls         int64[runs, what, calls, nodes]  MADE: system calls that succeed, FLUSHES of TLBs because
                  valid entries changed, of which SHOOTDOWNS interrupt other CPUs and BROADCASTS flush all by
                  an instruction; by the node of the caller, the same under every policy
    instructions  float64[runs]
    hits          int64[3]  accesses that hit the L1 TLB, the L2 TLB, or walked
    pages         table pages: guest, guest_peak, guest_single, host, host_single, aside (kept, no longer
                  walked)
    copied, zeroed  pages of 4 KiB that were, to make huge ones before the first walk
    cpus          that walk
    data          int64[shares, nodes, nodes, from]  walks by reader, node of their data, and where their leaf
                  entry comes from; None where that was not counted
    beyond        share of the memory that the caches of a node cannot hold; below 0 where they hold all
    longer        of what the first run missed beyond the further one, the part that a longer region misses at
                  best guess: the caches hold all that this one reads; 0: it is long enough
    leaves        float64[CPU nodes, nodes]  part of the reads of leaf entries from DRAM, by sampled accessed
                  bits, that each node serves to each reader; None where nothing tells
    timed         (cycles per instruction outside the tracer, whether its machine had one node), None: not
                  timed
    """

    policy: str
    params: dict[str, Any]
    run: str | None
    reads: np.ndarray
    classes: np.ndarray
    events: np.ndarray
    before: np.ndarray
    calls: np.ndarray
    instructions: np.ndarray
    hits: np.ndarray
    pages: dict[str, int]
    copied: int = 0
    zeroed: int = 0
    cpus: int = 1
    data: np.ndarray | None = None
    beyond: float = 0.0
    longer: float = 0.0
    leaves: np.ndarray | None = None
    timed: tuple[float, bool] | None = None
    placement: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @property
    def walks(self) -> int:
        return int(self.classes[STEADY].sum())

    @property
    def data_in_dram(self) -> float:
        """Share of the walks whose data are in DRAM at every share of the LLC: like their leaf entry, but
        those that fault, as a page just zeroed is cached (ADR 20)."""
        leaves = self.reads[STEADY][:, LEAVES][..., DRAM].sum(axis=(2, 3)).max(axis=1).min()
        faults = self.events[STEADY, :, :, FAULT].sum()
        return float(min(max(leaves - faults, 0) / max(self.walks, 1), 1.0))

    def in_longer(self, part: float) -> np.ndarray:
        """`reads` of the steady run with a part of what the first run had from DRAM beyond it; the tables are
        where the steady run has them."""
        first, steady = self.reads[TRACED], self.reads[STEADY]
        was, still = (
            of[..., DRAM].sum(axis=-1) / np.maximum(of.sum(axis=(-2, -1)), 1) for of in (first, steady)
        )
        every = steady.sum(axis=-1)
        dram = every * (still + part * np.maximum(was - still, 0.0))[..., None]
        return np.stack([every - dram, dram], axis=-1)
