"""What placing tables gains where the best policy does more: changes page sizes, frames, or paging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..policies import BOUND, members


class Candidate(NamedTuple):
    """`over` the budget or ""; gains: whether a gain can be read; `written`: what is gained, for people."""

    policy: str
    label: str
    over: str
    gains: bool
    written: str


def reshapes(policy: str) -> bool:
    """Whether a policy changes page sizes, frames or paging, too: copies of tables are not why it gains."""
    return any(member.reshape is not None for member in members(policy))


def placement_alone(best: str, candidates: Sequence[Candidate], baseline: str, timed: bool = True) -> str:
    """A sentence on the best Candidate that only places tables, where the `best` policy does more; else "".

    candidates  the best first
    Also "" where no candidate but the baseline only places tables. Not `timed`: a bound, nothing is best.
    """
    placing = [one for one in candidates if not reshapes(one.policy) and one.policy not in (BOUND, baseline)]
    if not reshapes(best) or not placing:
        return ""
    first = next((one for one in placing if not one.over and one.gains), None)
    if first is None:
        return f"Placement alone, with pages and paging as they are, gains nothing over {baseline}."
    alone = "Best by placement alone" if timed else "By placement alone"
    return f"{alone}, with pages and paging as they are: {first.label}, {first.written}."
