"""What a reader can do: today, on mainline Linux, and with the kernels of research."""

from collections.abc import Iterator
from typing import NamedTuple

from ...analysis.advise import reshapes, share_sentence, verdict
from ...core import interval
from ...policies import BOUND, NOT_MAINLINE, RESEARCH, besides, takes
from .cautions import listed
from .study import Study

TODAY = "today"


class Action(NamedTuple):
    """`label`: a policy; `gain` in words; `when`: ", for ..." or ""; `line` to type, or what it takes;
    `besides` what to know first."""

    label: str
    gain: str
    when: str
    line: str
    besides: str


def worth_it(study: Study) -> str:
    """Which share of the run page tables take, and whether anything is worth it; "" without run times."""
    return " ".join(filter(None, (share_sentence(study.results[0]), verdict(study.results, study.over))))


def today(study: Study) -> list[Action]:
    """Policies that mainline Linux has and that may gain, fastest first, within the budget."""
    return list(actions(study, True))


def research(study: Study) -> str:
    """A sentence on the policies that gain and that no mainline kernel has."""
    found = [f"{one.label} {one.gain}" for one in actions(study, False)]
    if not found:
        return f"No policy of a {RESEARCH} is estimated to gain here ({NOT_MAINLINE})."
    faster = " times as fast" if study.timed else ""
    return f"With a {RESEARCH} ({NOT_MAINLINE}): {listed(found)}{faster}."


def actions(study: Study, on_mainline: bool) -> Iterator[Action]:
    for row in study.rows:
        how = takes(str(row["policy"]))
        if (
            row is study.base
            or row["over"]
            or not interval.faster(study.ratio(row))
            or row["policy"] == BOUND
        ):
            continue
        if study.cached and not reshapes(str(row["policy"])):
            continue
        if how.startswith(TODAY) == on_mainline:
            when, _, line = how.removeprefix(TODAY).partition(": ")
            careful = [text for one in study.results if one.policy == row["policy"] for text in one.careful]
            first = "; ".join(filter(None, (besides(str(row["policy"])), *dict.fromkeys(careful))))
            yield Action(str(row["label"]), study.written(row), when, line, first)
