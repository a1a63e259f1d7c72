"""Whether page tables are worth anyone's time for a program: what share of its run page walks take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.gain import gains, shown

if TYPE_CHECKING:
    from ..core.interval import Interval
    from ..cost.result import Result

LITTLE = 0.02  # share of the run below which even no walks at all would hardly be noticed


def share_sentence(base: Result) -> str | None:
    """Which share of the run page walks take, and so what can be won at most; None without run times."""
    share = base.price.walk_share
    if share is None:
        return None
    if share.high < 0.001:
        return "Page walks take less than 0.1 % of this run: no change of page tables can be felt."
    return (
        f"Page walks take {percent(share)} of this run, {percent(share, True)} by the middle of the "
        f"assumptions: no change of page tables can make it more than {at_most(share)} times as fast."
    )


def verdict(results: Sequence[Result]) -> str | None:
    """Worth it or not, in a sentence, of the baseline and the other policies; None without run times."""
    base, others = results[0], [one for one in results[1:] if one.policy != "ideal"]
    share = base.price.walk_share
    if share is None or not others:
        return None
    if share.high < LITTLE:
        return "Not worth it: page walks cost this run next to nothing."
    sure = [one for one in others if one.price.speedup and gains(one.price.speedup)]
    if sure:
        return (
            "Worth a try: "
            + ("it gains" if len(others) == 1 else f"{len(sure)} of {len(others)} gain")
            + " under all assumptions."
        )
    maybe = [one for one in others if one.price.speedup and one.price.speedup.high > 1]
    if maybe:
        return "May not be worth it: the estimate does not rule out that nothing is gained."
    return "Not worth it: " + ("it does not gain." if len(others) == 1 else "none of these gains.")


def percent(share: Interval, middle: bool = False) -> str:
    """ "21 to 76 %" or "0.3 to 1.2 %"; of the middle "56 %"."""
    places = 0 if share.high >= 0.1 else 1
    low, best, high = (f"{100 * x:.{places}f}" for x in (share.low, share.middle, share.high))
    return f"{best} %" if middle or low == high else f"{low} to {high} %"


def at_most(share: Interval) -> str:
    """1 / (1 - share), rounded as speed-ups are."""
    return shown(1 / (1 - share.high))[0]
