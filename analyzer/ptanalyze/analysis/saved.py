"""How much of what a policy saves is work of the kernel: page faults and system calls on memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..core.interval import shown

if TYPE_CHECKING:
    from ..cost.result import Result

MATTERS = 0.2  # share of what is saved; and of the kernel's part, of one of its causes


class Kernel(NamedTuple):
    """share  of the cycles that a policy saves, by the middle of the assumptions; how: causes, in words."""

    share: float
    how: str

    @property
    def matters(self) -> bool:
        return self.share >= MATTERS and bool(self.how)


def by_the_kernel(base: Result, result: Result) -> Kernel | None:
    """The kernel's part of what a policy saves; None where nothing is saved, or that is not known."""
    walks, kernel = (saved(base, result, part) for part in ("walk_share", "kernel_share"))
    if walks is None or kernel is None or kernel <= 0 or walks + kernel <= 0:
        return None
    return Kernel(kernel / (walks + kernel), ", ".join(causes(base, result)))


def saved(base: Result, result: Result, part: str) -> float | None:
    """Cycles of the baseline's run less the policy's, of what takes this share of them."""
    cycles = []
    for one in (base.price, result.price):
        share = getattr(one, part)
        if share is None or one.run_cycles is None:
            return None
        cycles.append(share.middle * one.run_cycles)
    return float(cycles[0] - cycles[1])


def causes(base: Result, result: Result) -> list[str]:
    """What the kernel does less of, the largest saving first, in nanoseconds of all CPUs.

    How long a call takes is what its caller sees, as everywhere; what it takes from CPUs that it interrupts
    is another cause.
    """
    calls = {call.call: call for call in result.price.system_calls}
    faults = f"{result.count('faults'):,} page faults instead of {base.count('faults'):,}"
    said = {faults: base.price.fault_ns - result.price.fault_ns}
    for was in base.price.system_calls:
        now = calls[was.call]
        if now.slowdown is not None:
            said[f"{was.call} takes {shown(now.slowdown)[0]} times as long"] = was.calls * (was.ns - now.ns)
        stolen = f"{now.stolen_ns:,.0f} ns instead of {was.stolen_ns:,.0f}"
        said[f"{was.call} takes {stolen} from other CPUs"] = was.calls * (was.stolen_ns - now.stolen_ns)
    total = sum(ns for ns in said.values() if ns > 0)
    return [how for how, ns in sorted(said.items(), key=lambda item: -item[1]) if ns > MATTERS * total > 0]
