"""What a reader of walks should know of a trace that was filtered twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.interval import Interval
    from ..core.second import SecondFilter

MUCH = 1.0  # % of the walks: more is worth recording again
TWICE = "the trace was filtered twice (--strip l2)"
ANEW = "record with --strip on for exact ones"


def filtered_note(known: SecondFilter) -> str:
    if known.percent is None:
        return (
            f"{TWICE} and is too short to tell how wrong its walks are, with {known.runs} runs of chunks to "
            f"measure it in, of at least 8; {ANEW}"
        )
    doubt = "" if known.settles else ", too few walks for this TLB to settle in, so that more is possible"
    way_out = f"; {ANEW}" if known.most > MUCH else ""
    return (
        f"{TWICE}: {in_percent(known.percent)}, measured in {known.runs} runs of chunks that were filtered "
        f"once{doubt}; no number is corrected for it{way_out}"
    )


def in_percent(error: Interval) -> str:
    """ "walks are 0.12 % too many (0.05 to 0.19 %)"."""
    if error.low < 0 < error.high:
        return f"walks are off by {error.middle:+z.2g} % ({error.low:+.2g} to {error.high:+.2g} %)"
    low, high = sorted((abs(error.low), abs(error.high)))
    which = "many" if error.low >= 0 else "few"
    return f"walks are {abs(error.middle):.2g} % too {which} ({low:.2g} to {high:.2g} %)"
