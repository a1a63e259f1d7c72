"""Policies ranked by run time within a budget, and why one gains: of Results alone."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, TypeAlias

from ..core.columns import CACHED, Column, Message, message
from ..core.errors import UsageError, parse_size, size_as_read
from ..core.interval import as_read, differs
from ..cost.result import Result
from ..policies import BOUND, label, members

HOUR = 3600.0
PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
PAGE = 4096  # bytes of a table page
Gained: TypeAlias = Mapping[str, float | None]  # Advice.gain by label_of; {}: no horizon is asked for
NOT_ASKED: Gained = {}


def memory_limit(memory: float | str | None, mapped: int) -> float:
    """Bytes of a number, of "64M", or of "1%" of `mapped`; None: no limit."""
    if memory is None or (not isinstance(memory, str) and memory >= 0):
        return inf if memory is None else memory
    if (size := parse_size(memory := str(memory))) is not None:
        if 0 < size < PAGE:
            raise UsageError(f"--memory {memory}: less than a table page; write 1M, or 1% for a share")
        return size
    if percent := PERCENT.fullmatch(memory.strip()):
        return float(percent[1]) / 100 * mapped
    raise UsageError(f"--memory {memory}: write a size as 64M or 2G, or a share as 1%")


@dataclass(frozen=True)
class Advice:
    """A candidate. over: "memory" beyond the budget, "" within it.

    extra_bytes  of page tables at their peak, and of memory that the policy holds unused (facts)
    horizon      seconds of the baseline's run that it is ranked by
    gain         the baseline's run time over the horizon / the policy's, one-time costs included, if known
    standing     as the function of that name
    """

    result: Result
    extra_bytes: int
    extra_updates: float
    over: str
    horizon: float
    gain: float | None
    standing: "Standing"


COLUMNS = (  # beside those of Result
    Column("extra_bytes", "more memory at its peak: page tables, and what is held unused",
           lambda a: a.extra_bytes),
    Column("extra_updates", "extra upkeep of page tables", lambda a: a.extra_updates,
           unit="share of the baseline's run"),
    Column("over", "memory, beyond the budget", lambda a: a.over),
    Column("horizon_seconds", "of the baseline's run", lambda a: a.horizon, unit="s"),
    Column("gain", "speed-up over that time, one-time costs included", lambda a: a.gain, unit="ratio"),
)  # fmt: skip


class Standing(NamedTuple):
    """Key by which policies are ranked everywhere, the best first: numbers as they are read, so that what
    reads alike is a tie. Ties go to the baseline, then to less memory, then to the lower one-time cost.

    lost    1 less its speed-up, below 0 where it gains; over the horizon, where its one-time cost can be
            read there; of a bound, percent of walk cycles
    other   whether it is not the baseline; bytes  more at the peak; once  cycles
    """

    lost: float
    other: bool
    bytes: float
    once: float


def standing(result: Result, base: Result, gain: float | None = None) -> Standing:
    """Standing of a Result; gain: as Advice.gain."""
    more = size_as_read(result.peak_bytes - base.peak_bytes)
    return Standing(-effect(result, base, gain), result is not base, more, result.once_cycles)


def effect(result: Result, base: Result, gain: float | None = None) -> float:
    """What is gained, as it is read; 0: nothing."""
    speedup = result.speedup
    if base.speedup is None:
        return 100 - walk_percent(result, base)
    if speedup is None:
        return -1.0
    if gain is not None and differs(gain / speedup.middle):
        return as_read(gain) - 1
    return as_read(speedup.middle, speedup.low, speedup.high) - 1


def walk_percent(result: Result, base: Result) -> float:
    """Walk cycles in percent of the baseline's, as they are read; 100 where caches hold what is placed."""
    before = base.walk_cycles
    if not before or (base.finding(CACHED) and not reshapes(result.policy)):
        return 100.0
    return round(100 * result.walk_cycles / before, 1)


def best_first(results: Sequence[Result], gained: Gained = NOT_ASKED) -> list[Result]:
    """All but the baseline's, the first Result; bounds only where there is nothing else."""
    base, *others = results
    real = [result for result in others if result.policy != BOUND] or others
    return sorted(real, key=lambda result: standing(result, base, gained.get(label_of(result))))


def rank(results: Sequence[Result], limit: float = inf, horizon: float = HOUR) -> list[Advice]:
    """[Advice] for all results (the first is the baseline's): within the budget first, the best first.

    limit    bytes of memory that a policy may add
    horizon  seconds that the baseline goes on as in the region, after which run times are compared
    """
    base, advice = results[0], []
    for result in results:
        updates = result.management_cycles - base.management_cycles
        updates /= base.run_cycles or inf
        taken, speedup, gain = result.peak_bytes - base.peak_bytes, result.speedup, None
        if speedup and base.run_cycles is not None and base.run_seconds:
            run = base.run_cycles * horizon / base.run_seconds
            first = min(result.first_runs * base.run_cycles, run)
            gain = (base.once_cycles + run) / (result.once_cycles + first + (run - first) / speedup.middle)
        over = "memory" if taken > limit else ""
        advice.append(Advice(result, taken, updates, over, horizon, gain, standing(result, base, gain)))
    return sorted(advice, key=lambda one: (one.over, one.standing))


def label_of(result: Result, results: Sequence[Result] = ()) -> str:
    """policies.registry.label, beside other results."""
    return label(result.policy, result.params, [one.params for one in results if one.policy == result.policy])


def reshapes(policy: str) -> bool:
    """Whether a policy changes page sizes, frames or paging, too: copies of tables are not why it gains."""
    return any(member.reshape is not None for member in members(policy))


# Why a policy gains.

MATTERS = 0.2  # share of the saved cycles that is worth a word; of a count, how much less
LEAST = 1 - MATTERS


def because(base: Result, result: Result) -> Message:
    """The largest saving: work of the kernel, walks, reads per walk, reads from DRAM, remote ones; "none"."""
    if kernel := fewer_faults(base, result):
        return kernel
    was, now = base.row(), result.row()
    for key in ("walks", "reads_per_walk", "dram_reads"):
        if now[key] < LEAST * was[key]:
            return message("why", key, was=was[key], now=now[key])
    remote = [row["remote_dram_reads"] / max(row["dram_reads"], 1) for row in (was, now)]
    return message("why", "remote" if remote[1] < remote[0] else "none", was=remote[0], now=remote[1])


def fewer_faults(base: Result, result: Result) -> Message | None:
    """Message that much of what a policy saves is work of the kernel, page faults; None where it is not, and
    of a gain that was measured, after its memory was there."""
    share = by_the_kernel(base, result)
    if share < MATTERS or result.count("faults") >= base.count("faults") or result.tried:
        return None
    return message("why", "kernel", share=share, was=base.count("faults"), now=result.count("faults"))


def as_sentence(why: Message) -> str:
    """Text behind an answer: " It walks 3 times instead of 5.", or ""."""
    text = str(why)
    return f" {text[:1].upper()}{text[1:]}." if text else ""


def by_the_kernel(base: Result, result: Result) -> float:
    """Part of the cycles that a policy saves which is work of the kernel; 0 where none is saved, or known."""
    walks = kernel = 0.0
    for sign, row in ((1, base), (-1, result)):
        if row.walk_share is None or row.kernel_share is None or row.run_cycles is None:
            return 0.0
        walks += sign * row.walk_share.middle * row.run_cycles
        kernel += sign * row.kernel_share.middle * row.run_cycles
    return kernel / (walks + kernel) if kernel > 0 and walks + kernel > 0 else 0.0
