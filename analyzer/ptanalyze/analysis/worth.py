"""Whether page tables are worth anyone's time for a program: what share of its run they take."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ..core.interval import as_read, faster, gains, interval, shown
from ..policies import BOUND
from .placement_alone import reshapes
from .ranking import label_of
from .run_notes import DRAM_MATTERS, dram_share

if TYPE_CHECKING:
    from ..core.interval import Interval
    from ..cost.result import Result

LITTLE = 0.02  # share of the run below which even no walks and faults at all would hardly be noticed
MUCH = 0.1  # share of walks to memory that was gone, above which the answer is only partial, as of `check`
WIDE = 0.5  # of the run: a share that is not known more closely than this, and a bound from it, say nothing
COUNTERS = "perf counters tell: ptanalyze calibrate --help"
NOTHING = 0.001  # share that is not worth a word
SMALL = 1.05  # speed-up, by the middle of the assumptions, below which a gain is called small


def share_sentence(base: Result) -> str | None:
    """Which share of the run walks and the kernel's work on page tables take, and so what can be won at most;
    None without run times. Of shares that are hardly known only the least, and what narrows them."""
    walks, kernel, both = base.price.walk_share, base.price.kernel_share, base.price.table_share
    if walks is None or kernel is None or both is None:
        return None
    if both.high < NOTHING:
        return (
            "Page walks and the kernel's work on page tables take less than 0.1 % of this run: no change of "
            "page tables can be felt."
        )
    if not (narrow(walks) and narrow(both)):
        if walks.low < LITTLE:
            return f"What share of this run page walks take, {COUNTERS}."
        return f"Page walks take {at_least(walks)} of this run. How much more, {COUNTERS}."
    said = (
        f"Page walks take {percent(walks)} of this run, {percent(walks, True)} by the middle of the "
        "assumptions"
    )
    if kernel.high < NOTHING and at_most(both) == at_most(walks):
        return f"{said}: no change of page tables can make it more than {at_most(both)} times as fast."
    calls = (
        "less than 0.1 %"
        if kernel.high < NOTHING
        else f"{percent(kernel)}, {percent(kernel, True)} by the middle"
    )
    return (
        f"{said}; page faults and system calls on memory {calls}. Without both it would be at most "
        f"{at_most(both)} times as fast, without walks alone {at_most(walks)} times."
    )


def missing(base: Result) -> str:
    """Cautions on what the capture cannot show; else ""."""
    return " ".join(filter(None, (gone(base), short(base))))


def short(base: Result) -> str:
    """A caution where the caches hold what the trace reads of page tables, as it is short; else ""."""
    return f"Careful: {base.short_region}." if base.short_region else ""


def gone(base: Result) -> str:
    """A caution where much of what the trace walks was gone at the snapshot; else ""."""
    if base.gone_share <= MUCH:
        return ""
    return (
        f"Careful: {100 * base.gone_share:.0f} % of the walks go to memory that was freed before the page "
        "tables were read. "
        "Policies that change page sizes leave it as it is here, so their gain is not known. Record again "
        "with --dump-at peak."
    )


def verdict(results: Sequence[Result], over: Collection[int] = ()) -> str | None:
    """Worth it or not, in a sentence, of the baseline, then the other policies, the best first; None without
    run times.

    over  places in `results` of policies over the budget, which are left out
    """
    base = results[0]
    others = [one for k, one in enumerate(results) if k and k not in over and one.policy != BOUND]
    share = base.price.table_share
    if share is None or not others:
        return None
    if share.high < LITTLE:
        return "Not worth it: page walks and the kernel's work on page tables cost this run next to nothing."
    speedups = {label_of(one, others): one.price.speedup for one in others if one.price.speedup}
    sure = {policy: speedup for policy, speedup in speedups.items() if gains(speedup)}
    if sure:
        best = next(iter(sure))
        if as_read(sure[best].middle, sure[best].low, sure[best].high) < SMALL:
            return f"A small gain: {best}, {interval(sure[best])}. Measure it before you rely on it."
        some = f"{len(sure)} of {len(others)} policies{' within the budget' if over else ''} gain"
        gaining = "it gains" if len(others) == 1 and not over else f"{best} gains" if len(sure) == 1 else some
        known = [one for one in others if label_of(one, others) in sure]
        effects = len({interval(speedup) for speedup in sure.values()})
        alike = "" if effects == len(sure) else f", with {effects} distinct speed-up{'s' * (effects > 1)}"
        care = " with care" if all(set(one.careful) - set(base.careful) for one in known) else ""
        return f"Worth a try{care}: {gaining} under all assumptions{alike}."
    if any(faster(speedup.high) for speedup in speedups.values()):
        return "May not be worth it: the estimate does not rule out that nothing is gained."
    if short(base):
        return "As far as so short a trace shows, nothing is gained."
    if gone(base) and any(reshapes(one.policy) for one in others):
        return "As far as the capture shows, nothing is gained."
    if over:
        return "Not worth it: none within the budget gains."
    none = "it does not gain." if len(others) == 1 else "none of these gains."
    return " ".join(filter(None, (f"Not worth it: {none}", in_caches(base))))


def in_caches(base: Result) -> str:
    """Why placement gains nothing where the caches answer nearly all reads of page tables; else ""."""
    missed = dram_share(base.reads)
    if missed >= DRAM_MATTERS:
        return ""
    answered = "all" if missed < NOTHING / 2 else f"{100 * (1 - missed):.1f} % of"
    return f"The caches answer {answered} its page-table reads, wherever its tables are."


def percent(share: Interval, middle: bool = False) -> str:
    """ "21 to 76 %" or "0.3 to 1.2 %"; of the middle "56 %"."""
    places = 0 if share.high >= 0.1 else 1
    low, best, high = (f"{100 * x:.{places}f}" for x in (share.low, share.middle, share.high))
    return f"{best} %" if middle or low == high else f"{low} to {high} %"


def narrow(share: Interval) -> bool:
    """Whether a share of the run is known closely enough to be told."""
    return share.high - share.low <= WIDE


def at_least(share: Interval) -> str:
    """ "at least 24 %"."""
    return f"at least {100 * share.low:.0f} %"


def at_most(share: Interval) -> str:
    """1 / (1 - share), rounded as speed-ups are."""
    return shown(1 / (1 - share.high))[0]
