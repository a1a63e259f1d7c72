"""Advice as a view for people, and as a record for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..analysis.advise import Report
from ..analysis.ranking import COLUMNS, Advice, label_of
from ..analysis.setup import RESHAPED
from ..core.columns import Cell, Section, message
from ..core.errors import show_duration
from ..core.interval import interval
from ..cost.result import owned
from .whatif import about, baseline, beware, by_size, earned, labels, table, to_type

if TYPE_CHECKING:
    from ..analysis.size import SizeCurve

LL = "- LL: share of walks that are Local-Local, without a VM: local"


def view(
    report: Report, further: Section | None = None, whose: str = "", curve: SizeCurve | None = None
) -> Iterator[Section]:
    """The advice, what limits the run, a small table, and what to type next.

    further  what to type next; None: all columns, refusals, the workload and what is assumed instead
    whose    what must be known beside the findings; "" nothing
    curve    of larger runs: what it says comes first where no policy gains at the captured size
    """
    verdict, research = report.verdict, [str(line) for line in (report.verdict.research,) if line]
    said = [report.sentence, *by_size(curve), *verdict.limits, *to_type(verdict), *research]
    yield Section(lines=[*said, *beware(verdict, [whose], further)])
    yield Section(lines=["", *table(report.results), baseline(report.base), about(report.base)])
    if not further:
        yield from everything(report)
        return
    over = [label_of(advice.result) for advice in report.ranked if advice.over]
    sampled = [name for name, why in report.refused.items() if why == RESHAPED]
    named = {"over": over, "refused": report.refused, "sampled": sampled}
    lines = [message("about", code, policies=", ".join(names)) for code, names in named.items() if names]
    lines += [message("about", "broken", policy=name, why=why) for name, why in report.left_out.items()]
    yield Section(lines=[*map(str, lines), ""])
    yield further


def everything(report: Report) -> Iterator[Section]:
    reasons: dict[str, list[str]] = {}
    for name, why in report.refused.items():
        reasons.setdefault(why, []).append(name)
    refused = [f"- not for this capture: {', '.join(named)}: {why}" for why, named in reasons.items()]
    refused += [f"- left out: {name}: {why}" for name, why in report.left_out.items()]
    ranked = [row_of(advice) for advice in report.ranked]
    yield Section("Policies, fastest first, those over the budget last", ranked, [LL, *refused])
    found = (finding.line for finding in owned(report.results))
    lines = [f"- {line}" for line in (*report.workload.evidence(), *found)]
    yield Section(lines=[""])
    yield Section(str(message("workload", report.workload.name)), (), lines)


def row_of(advice: Advice) -> dict[str, Cell]:
    row, speedup = advice.result.row(), advice.result.speedup
    return {
        "policy": label_of(advice.result),
        "estimated speed-up": interval(speedup) if speedup else "-",
        f"over {show_duration(advice.horizon)}": "-" if advice.gain is None else f"{advice.gain:.3f}",
        "break-even after": earned(row),
        "cycles/walk": row["cycles_per_walk"],
        "LL": f"{100 * row['leaf_LL_share']:.1f} %",
        "remote DRAM reads": row["remote_dram_reads"],
        "extra peak memory KiB": advice.extra_bytes >> 10,
        "extra updates": f"{100 * advice.extra_updates + 0:z.2f} %",
        "budget": f"over: {advice.over}" if advice.over else "within",
    }


def as_record(report: Report, curve: SizeCurve | None = None) -> dict[str, Any]:
    sizes = {} if curve is None else {name: curve.of(name) for name in labels(curve.results[0])[1:]}
    return {
        "limits": report.verdict.record() if report.verdict.limit else None,
        "sentence": report.sentence,
        "why": report.why.code,
        "workload": report.workload.name,
        "evidence": report.workload.evidence(),
        "ranked": [
            {**advice.result.row(), **{one.key: one.of(advice) for one in COLUMNS}}
            for advice in report.ranked
        ],
        "refused": {**report.refused, **report.left_out},
    } | ({"sizes": sizes} if sizes else {})
