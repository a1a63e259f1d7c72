"""Advice as a view for people, and as a record for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..analysis.advise import Advised
from ..analysis.ranking import COLUMNS, Advice, label_of
from ..analysis.replay import refusal_lines
from ..analysis.setup import RESHAPED
from ..analysis.verdict import one_node
from ..core.columns import Cell, Section, message
from ..core.errors import show_duration
from ..core.interval import interval
from ..cost.result import owned
from .whatif import about, baseline, beware, by_size, earned, labels, table, to_type

if TYPE_CHECKING:
    from ..analysis.size import SizeCurve

LL = "- LL: share of walks that are Local-Local, without a VM: local"


def view(
    advised: Advised, further: Section | None = None, whose: str = "", curve: SizeCurve | None = None
) -> Iterator[Section]:
    """The advice, what limits the run, a small table, and what to type next.

    further  what to type next; None: all columns, refusals, the workload and what is assumed instead
    whose    what must be known beside the findings; "" nothing
    curve    of larger runs: what it says comes first where no policy gains at the captured size
    """
    verdict, research = advised.verdict, [str(line) for line in (advised.verdict.research,) if line]
    said = [advised.sentence, *by_size(curve), *verdict.limits, *to_type(verdict), *research]
    yield Section(lines=[*said, *beware(verdict, [whose], further)])
    rows = table(advised.replayed.results)
    compared = ["", *rows, baseline(advised.base)] if rows else []
    yield Section(lines=[*compared, about(advised.base)])
    if not further:
        yield from everything(advised)
        return
    over = [label_of(advice.result) for advice in advised.ranked if advice.over]
    sampled = [name for name, why in advised.refused.items() if why == RESHAPED]
    refused = [] if one_node(advised.base) else advised.refused  # most need several
    named = {"over": over, "refused": refused, "sampled": sampled}
    lines = [message("about", code, policies=", ".join(names)) for code, names in named.items() if names]
    yield Section(lines=[*map(str, lines), ""])
    yield further


def everything(advised: Advised) -> Iterator[Section]:
    refused = [f"- not for this capture: {line}" for line in refusal_lines(advised.refused)]
    ranked = [row_of(advice) for advice in advised.ranked]
    yield Section("Policies, fastest first, those over the budget last", ranked, [LL, *refused])
    found = (finding.line for finding in owned(advised.replayed.results))
    lines = [f"- {line}" for line in (*advised.evidence, *found)]
    yield Section(lines=[""])
    yield Section(str(message("workload", advised.workload)), (), lines)


def row_of(advice: Advice) -> dict[str, Cell]:
    row, speedup = advice.result.row(), advice.result.speedup
    return {
        "policy": label_of(advice.result),
        "estimated speed-up": interval(speedup) if speedup else "-",
        f"over {show_duration(advice.horizon)}": "-" if advice.gain is None else f"{advice.gain:.3f}",
        "break-even after": earned(advice.result),
        "cycles/walk": row["cycles_per_walk"],
        "LL": f"{100 * row['leaf_LL_share']:.1f} %",
        "remote DRAM reads": row["remote_dram_reads"],
        "extra peak memory KiB": advice.extra_bytes >> 10,
        "extra updates": f"{100 * advice.extra_updates + 0:z.2f} %",
        "budget": f"over: {advice.over}" if advice.over else "within",
    }


def as_record(advised: Advised, curve: SizeCurve | None = None) -> dict[str, Any]:
    sizes = {} if curve is None else {name: curve.of(name) for name in labels(curve.results[0])[1:]}
    return {
        "limits": advised.verdict.record() if advised.verdict.limit else None,
        "sentence": advised.sentence,
        "why": advised.why.code,
        "workload": advised.workload,
        "evidence": advised.evidence,
        "ranked": [
            {**advice.result.row(), **{one.key: one.of(advice) for one in COLUMNS}}
            for advice in advised.ranked
        ],
        "refused": advised.refused,
    } | ({"sizes": sizes} if sizes else {})
