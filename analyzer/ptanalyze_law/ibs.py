"""AMD's samples of instructions (IBS): cycles of walks, and latencies by the node of the leaf table."""

import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

import ptanalyze as pt

from .perf_stat import L2_MISSES, PerfStat, first_of, modes_of, value_of, walk_events

# `perf report -D` prints registers of each sample (the kernel's tools/perf/util/amd-sample-raw.c), then its
# CPU, time and process (perf_evlist__print_tstamp and dump_sample, tools/perf/util/session.c). Bits are those
# of arch/x86/include/asm/amd/ibs.h. Without DcPhyAddrValid, the latency is bogus on Zen 4
# and newer (commit f04a8a7649f9), and so are the TLB bits on Zen 5.

MOST_IBS_BYTES = 1 << 28
LEAST_REFILLS = 100  # samples: below, a mean of latencies that differ tenfold is a guess
REGISTER = re.compile(
    rb"^(ibs_op_ctl|IbsOpRip|ibs_op_data3|IbsDCLinAd):[ \t]+([0-9a-fA-F]{16})\b([^\n]*)"
    rb"|^(\d{1,5}) \d{1,20} 0x[0-9a-f]{1,16} \[0x[0-9a-f]{1,8}\]: "
    rb"PERF_RECORD_SAMPLE\([^)\n]{1,40}\): (\d{1,9})/",
    re.MULTILINE,
)
PRINTED = re.compile(rb"\bTlbRefillLat +(\d+)")
L3_MISS_ONLY, BY_OPS, LATENCY_FILTER = 1 << 16, 1 << 19, 1 << 63  # of ibs_op_ctl
L1_MISS, L2_MISS, PHYSICAL = 1 << 2, 1 << 3, 1 << 18  # of ibs_op_data3; the refill latency: bits 48-63


class Refill(NamedTuple):
    """An op that missed the L1 and the L2 DTLB: cycles of its refill, its data, who ran it; -1: unknown."""

    cycles: int
    address: int
    cpu: int
    pid: int
    by_ops: bool  # whether ops were counted between all samples, not cycles


@dataclass(frozen=True)
class Refills:
    """Cycles of L1 DTLB refills for ops that missed the L2 DTLB too: mean and its standard error."""

    mean: float
    error: float
    samples: int
    by_ops: bool


def read_refills(path: str | PathLike[str], user: bool = True) -> Refills:
    """Refills of `perf report -D` of samples that `perf record -e ibs_op/cnt_ctl=1/ --raw-samples` took.

    user  leave out ops of the kernel, by their address
    Refills that show a latency of 0 were not timed and are left out. InputError for a text without such
    samples, with too few, with samples of slow ops alone, or with lines that contradict their register.
    """
    samples = refills(path, user)
    cycles = np.array([sample.cycles for sample in samples], np.float64)
    error = float(cycles.std(ddof=1)) / len(cycles) ** 0.5
    return Refills(float(cycles.mean()), error, len(cycles), samples[0].by_ops)


def refills(path: str | PathLike[str], user: bool = True) -> list[Refill]:
    """Samples that read_refills counts; perf prints a sample's registers before its CPU and process."""
    samples: list[Refill] = []
    rip, by_ops, open_ = 0, True, False
    for name, register, rest, cpu, pid in REGISTER.findall(
        pt.safe_files.read_given(Path(path), MOST_IBS_BYTES)
    ):
        if not name:
            if open_:
                samples[-1] = samples[-1]._replace(cpu=int(cpu), pid=int(pid))
            open_ = False
            continue
        value = int(register, 16)
        if name == b"ibs_op_ctl":
            rip, by_ops, open_ = 0, by_ops and bool(value & BY_OPS), False
            if value & (L3_MISS_ONLY | LATENCY_FILTER):
                why = "samples of slow ops alone have no mean of all: record without l3missonly and ldlat"
                raise pt.errors.InputError(path, "ibs_op_ctl", register.decode(), why)
        elif name == b"IbsOpRip":
            rip = value
        elif name == b"IbsDCLinAd":
            if open_:
                samples[-1] = samples[-1]._replace(address=value)
        else:
            printed, latency = PRINTED.search(rest), value >> 48
            if printed and int(printed[1]) != latency:
                shown = f"TlbRefillLat {printed[1].decode()[:20]}"
                raise pt.errors.InputError(
                    path, "ibs_op_data3", shown, f"bits 48-63 of its register say {latency}"
                )
            missed = value & L1_MISS and value & L2_MISS and value & PHYSICAL
            open_ = bool(missed and latency and not (user and rip >> 63))
            if open_:
                samples.append(Refill(latency, -1, -1, -1, by_ops))
    if len(samples) < LEAST_REFILLS:
        why = (
            f"samples that missed both TLBs: expected {LEAST_REFILLS} or more of `perf report -D` after "
            "`perf record -e ibs_op/cnt_ctl=1/ --raw-samples`"
        )
        raise pt.errors.InputError(path, "ibs_op_data3", len(samples), why)
    return [sample._replace(by_ops=by_ops) for sample in samples]


def with_refills(
    run: pt.law.MeasuredRun,
    stat: PerfStat,
    path: str | PathLike[str],
    native: bool,
    allow_multiplexed: bool = False,
) -> tuple[pt.law.MeasuredRun, str]:
    """(a Run with walk cycles = L2 DTLB misses x mean refill latency, the sentence that says so).

    Nested walks are part of the latency: native runs only. InputError where L2 DTLB misses were not counted,
    or walk cycles were.
    """
    if not native:
        why = "a refill's latency does not tell nested walks apart: use it for native runs only (--native)"
        raise pt.errors.InputError(path, "ibs_op", "TlbRefillLat", why)
    modes = modes_of(stat)
    event = first_of(stat, L2_MISSES, modes)
    if walk_events(stat) or event is None:
        counted = ", ".join(walk_events(stat)) or "none"
        raise pt.errors.InputError(
            stat.path, "walk counters", counted, f"samples of IBS go with a count of {L2_MISSES[0]}"
        )
    refills, walks = read_refills(path, "u" in modes), value_of(stat, event, modes, allow_multiplexed)
    drawn = "ops" if refills.by_ops else "cycles, which favours ops after a stall"
    why = (
        f"walk cycles are {event} x {refills.mean:.3g} cycles per refill, standard error {refills.error:.2g} "
        f"({refills.samples:,} IBS samples by {drawn}); the law was fitted on Intel's CPUs"
    )
    return msgspec.structs.replace(run, gpt=walks * refills.mean, ept=0.0, walks=walks), why
