"""The counters of page walks in the output of `perf stat`, as a Run of the law.

Walk cycles (Intel SDM, volume 3, performance-monitoring events; the kernel's tools/perf/pmu-events):

dtlb_{load,store}_misses.walk_pending   Skylake on: per cycle and busy walker; nested walks not included
ept.walk_pending                        the same of nested walks
dtlb_{load,store}_misses.walk_duration  before Skylake: cycles of the walker, nested walks not told apart
dtlb_{load,store}_misses.walk_active    cycles with any walker busy: not used, overlap is lost

AMD counts walks (ls_l1_d_tlb_miss.*_l2_miss, ls_tablewalker.*, bp_l1_tlb_miss_l2_tlb_miss.*), not their
cycles: such a run has cycles only, and a second run with remote tables has to tell the cost of walks. So it
is with a file of elapsed time alone.
"""

from collections.abc import Iterable
from os import PathLike

from ..core.errors import CaptureError
from ..cost.closed_forms import Run
from .perf_stat import PerfStat, read_perf_stat

LEAST_RUNNING = 90.0  # percent of the time: below, perf's scaling is a guess
CYCLES = ("cycles", "cpu-cycles", "cpu_clk_unhalted.thread")
PENDING = ("dtlb_load_misses.walk_pending", "dtlb_store_misses.walk_pending")
DURATION = ("dtlb_load_misses.walk_duration", "dtlb_store_misses.walk_duration")
ACTIVE = ("dtlb_load_misses.walk_active", "dtlb_store_misses.walk_active")
EPT = "ept.walk_pending"
HUGE = ("walk_completed_2m_4m", "walk_completed_1g")  # of dtlb_load_misses and dtlb_store_misses
COMPLETED = ("walk_completed_4k", *HUGE)
AMD = ("ls_l1_d_tlb_miss.", "ls_tablewalker.", "bp_l1_tlb_miss_l2_tlb_miss", "l2_dtlb_misses")


def read_run(path: str | PathLike[str], native: bool = False, allow_multiplexed: bool = False) -> Run:
    """Run of a file of `perf stat` output; `native`: no ePT counter is expected.

    CaptureError names the file, the counter and its value: missing, not counted, not supported, scaled below
    90 % (unless allowed), twice in the file, or nested walks not told apart.
    """
    return walk_run(read_perf_stat(path), native, allow_multiplexed)


def one_walker(stat: PerfStat) -> bool:
    """Whether the counters are those of CPUs with a single page walker (walk_duration; Broadwell has two)."""
    names = {name for name, _ in stat.counters}
    return bool(names & {*DURATION}) and not names & {*PENDING}


def walk_run(stat: PerfStat, native: bool = False, allow_multiplexed: bool = False) -> Run:
    """Run from the counters of a PerfStat; as read_run."""
    modes = _modes(stat)
    names = {name for name, letters in stat.counters if letters == modes}
    every = {name for name, _ in stat.counters}
    if stat.seconds and not every & {*CYCLES, *PENDING, *DURATION, *ACTIVE, EPT}:
        return Run(seconds=stat.seconds, cpus=stat.cpus)
    cycles = _value(stat, _first(stat, CYCLES, modes) or "cycles", modes, allow_multiplexed)
    gpt, ept = _walk_cycles(stat, names, modes, native, allow_multiplexed)
    counter = stat.counters.get(("instructions", modes))
    instructions = None if counter is None else counter.value
    return Run(
        cycles, gpt, ept, stat.seconds, stat.cpus, instructions, _huge(stat, modes), _walks(stat, modes)
    )


def what_is_missing(stat: PerfStat) -> str:
    """What to count so that the run alone says how much of it is walks; "" where it does."""
    names = {name for name, _ in stat.counters}
    if names & {*PENDING, *DURATION}:
        return ""
    amd = sorted(name for name in names if name.startswith(AMD))
    if amd:
        return (
            f"{amd[0]} counts walks; AMD counts no cycles of walks: add a run with remote tables (--remote)"
        )
    add = [name for name in ("cycles", *PENDING, EPT) if name not in names]
    return f"count {', '.join(add)} too (natively without {EPT}), or add a run with remote tables (--remote)"


def _walk_cycles(
    stat: PerfStat, names: set[str], modes: str, native: bool, allow_multiplexed: bool
) -> tuple[float | None, float | None]:
    """(walk cycles in the gPT, in the ePT), None where the CPU or the file has none."""
    elsewhere = {name for name, _ in stat.counters} & {*PENDING, *DURATION, *ACTIVE, EPT}
    if not elsewhere:
        return None, 0.0 if native else None
    kind = DURATION if one_walker(stat) else PENDING
    if kind is DURATION and not native:
        why = "before Skylake it does not tell nested walks apart: use it for native runs only"
        raise CaptureError(stat.path, "event", DURATION[0], why)
    if not names & {*PENDING, *DURATION} and names & {*ACTIVE}:
        why = f"counts cycles with any walker busy, overlapping walks are lost: count {' and '.join(PENDING)}"
        raise CaptureError(stat.path, "event", ACTIVE[0], why)
    gpt = sum(_value(stat, name, modes, allow_multiplexed) for name in kind)
    nested = not native or EPT in names  # counted natively: 0, else it was no native run
    return gpt, _value(stat, EPT, modes, allow_multiplexed) if nested else 0.0


def _huge(stat: PerfStat, modes: str) -> float | None:
    """Share of the walks that ended at pages above 4 KiB; None where they were not counted by size."""

    def walks(sizes: Iterable[str]) -> float:
        found = (
            stat.counters.get((f"dtlb_{kind}_misses.{size}", modes))
            for kind in ("load", "store")
            for size in sizes
        )
        return sum(counter.value or 0.0 for counter in found if counter is not None)

    every = walks(COMPLETED)
    return walks(HUGE) / every if every else None


def _walks(stat: PerfStat, modes: str) -> float | None:
    """Completed walks for loads and stores, in all or by size; None unless both kinds were counted."""
    every = 0.0
    for kind in ("load", "store"):
        found = [
            counter.value
            for size in COMPLETED
            if (counter := stat.counters.get((f"dtlb_{kind}_misses.{size}", modes))) is not None
        ]
        total = stat.counters.get((f"dtlb_{kind}_misses.walk_completed", modes))
        values = found if total is None else [total.value]
        if not values or None in values:
            return None
        every += sum(value for value in values if value is not None)
    return every or None


def _modes(stat: PerfStat) -> str:
    """Privilege letters that cycles were counted with: user mode where there is a choice."""
    for wanted in ("u", "Gu", ""):
        if _first(stat, CYCLES, wanted):
            return wanted
    return next((letters for name, letters in stat.counters if name in CYCLES), "")


def _first(stat: PerfStat, names: Iterable[str], modes: str) -> str | None:
    return next((name for name in names if (name, modes) in stat.counters), None)


def _value(stat: PerfStat, name: str, modes: str, allow_multiplexed: bool) -> float:
    counter = stat.counters.get((name, modes))
    shown = f"{name}:{modes}" if modes else name
    if counter is None:
        other = [letters or "all modes" for known, letters in stat.counters if known == name]
        why = f"counted for {', '.join(other)}, cycles for {modes or 'all modes'}" if other else "missing"
        if name == EPT and not other:
            why += "; for a run without a virtual machine say --native"
        raise CaptureError(stat.path, "event", shown, f"{why}; count all of them in one run")
    if counter.value is None:
        raise CaptureError(stat.path, "event", shown, counter.trouble)
    if counter.running < LEAST_RUNNING and not allow_multiplexed:
        why = (
            f"below {LEAST_RUNNING:g} % perf's scaling is a guess: count fewer events, or --allow-multiplexed"
        )
        raise CaptureError(stat.path, shown, f"counted {counter.running:g} % of the time", why)
    return counter.value
