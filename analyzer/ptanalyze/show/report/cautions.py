"""Cautions about a study, in plain words: failed checks, missing data, small samples, assumptions."""

from math import sqrt
from typing import Any, NamedTuple

from ...analysis.advise import candidate, placement_alone
from ...analysis.run_notes import HOST_MODEL
from ...analysis.setup import alike
from ...capture.check import FAILED, NOTE, PARTIAL, Finding
from ...capture.describe import PROCESS
from ...core import interval
from ...core.errors import plural
from .study import Study

FEW_WALKS = 10_000
WIDE = 0.2  # width of a speed-up's interval over its middle


class Caution(NamedTuple):
    """`weight` is "stop" (do not rely on it), "careful" or "note"; `short` fits into a sentence."""

    weight: str
    short: str
    text: str


def cautions(study: Study) -> list[Caution]:
    """All cautions, the gravest first."""
    every = [
        *checks(study),
        *recording(study),
        *processes(study),
        *few_walks(study),
        *estimate(study),
        *noted(study),
        *assumed(study),
    ]
    return sorted(every, key=lambda caution: ("stop", "careful", "note").index(caution.weight))


def checks(study: Study) -> list[Caution]:
    lines = []
    for verdict, weight, word in ((FAILED, "stop", "failed"), (PARTIAL, "careful", "found data missing")):
        some = study.with_verdict(verdict)
        if some:
            count = f"{plural(len(some), 'check')} of the capture {word}"
            lines.append(Caution(weight, count, f"{count}: {'; '.join(map(said, some))}."))
    lines += [Caution("note", "", f"{said(finding)}.") for finding in study.with_verdict(NOTE)]
    if study.sound:
        lines.append(
            Caution(
                "note", "", f"All {len(study.findings)} checks of the capture's files found nothing wrong."
            )
        )
    return lines


def said(finding: Finding) -> str:
    count = f" ({finding.wrong:,} of {finding.examined:,})" if finding.examined else ""
    return f"{finding.name}{count}: {finding.reason}".rstrip(". ")


def recording(study: Study) -> list[Caution]:
    """Data that the way of recording leaves out."""
    if not study.traced:
        return [untraced(study)]
    trace = study.facts["trace"]
    lines = []
    if study.tables is None:
        lines.append(
            Caution(
                "careful",
                "the page tables are assumed",
                "The capture holds no page tables: the memory that the trace touches is taken as mapped in "
                "4 KiB pages, by tables that are made at first touch.",
            )
        )
    if trace.get("sampled") is True:
        lines.append(
            Caution(
                "careful",
                "the trace holds samples of the accesses",
                "The trace holds samples, not all accesses. The contents of a TLB between two samples are "
                "not known, so shares of walks are worth more than their number.",
            )
        )
    lost, dropped = (int(trace.get(key, 0)) for key in ("lost bytes", "dropped touches"))
    if lost or dropped:
        text = f"The trace is not whole: {lost:,} bytes of it were lost, {dropped:,} touches dropped."
        lines.append(Caution("careful", "parts of the trace were lost", text))
    if "qemu" in str(trace.get("tracer", "")):
        lines.append(
            Caution(
                "note",
                "",
                "The program ran under an emulator while it was traced. Its addresses and calls are real; "
                "how its threads took turns is that of the emulator.",
            )
        )
    return lines


def processes(study: Study) -> list[Caution]:
    """Which of the processes of a capture the page is about."""
    number = sum(section.startswith(PROCESS) for section in study.facts)
    if number < 2:
        return []
    pictures = "Pictures of page tables are of the first alone."
    if alike(number, by_heat=False) in study.results[0].notes:
        text = (
            f"Advice and shares count all {number} processes of the capture, each by what it maps, not by "
            f"how busy it is. {pictures}"
        )
        return [Caution("note", f"{number} processes count alike", text)]
    if alike(number, by_heat=True) in study.results[0].notes:
        text = f"Advice and shares count all {number} processes of the capture, by their walks. {pictures}"
        return [Caution("note", f"{number} processes count together", text)]
    text = f"The capture holds {number} processes; all of this is about the first. The others are in pid-PID."
    return [Caution("careful", f"it is about one of {number} processes", text)]


def untraced(study: Study) -> Caution:
    """What pages count by, and what is not known."""
    lacks, why = "there is no trace", "The capture holds no trace"
    if "trace" in study.facts:
        lacks, why = "the trace is left out", "The capture's trace is left out, as asked"
    missing = (
        "There is no run time to estimate. Walk cycles that a policy saves are a bound, reached "
        f"{interval.FROM_DRAM}. Policies that depend on the order of accesses are left out."
    )
    if (heat := study.facts.get("heat")) and not study.results[0].each_once:
        return Caution(
            "careful",
            f"{lacks}: pages count by {plural(heat['samples'], 'sample')} of their accessed bits",
            f"{why}: each page counts for every node by its walks, estimated from "
            f"{heat['samples']:,} samples of accessed bits, {heat['sampled (s)']:.3g} s in all. {missing}",
        )
    return Caution(
        "careful",
        f"{lacks}, so every mapped page counts alike",
        f"{why}: every mapped page counts once for each node. {missing}",
    )


def few_walks(study: Study) -> list[Caution]:
    walks = study.results[0].walks
    if not study.traced or walks >= FEW_WALKS:
        return []
    points = 100 * 1.96 * sqrt(0.25 / max(walks, 1))
    return [
        Caution(
            "careful",
            f"only {walks:,} page walks were counted",
            f"Only {walks:,} page walks were counted. They are exact for this trace, but little to judge the "
            f"whole program by: were they drawn at random from it, a share of 50 % would be known to within "
            f"{points:.1f} points. A longer trace helps.",
        )
    ]


def estimate(study: Study) -> list[Caution]:
    """Widths of the speed-ups' intervals, and rivals within them."""
    if not study.timed or study.best is study.base:
        return []
    best, lines = study.best, []
    low, high = best["speedup_low"], best["speedup_high"]
    _, least, most = interval.shown(best["speedup"], low, high)
    if not interval.faster(low):
        text = f"{best['label']} may bring no gain: its interval is {least} to {most}."
        lines.append(Caution("careful", "it may bring no gain", text))
    elif high - low > WIDE * best["speedup"]:
        why = (
            "counters of one run do not show how much of a walk the processor hides. A second run with "
            "remote page tables narrows it: ptanalyze calibrate --remote."
            if study.calibrated
            else "a trace shows neither how much of a walk the processor hides nor how long the program "
            "computes between walks. Counters of one run narrow it: ptanalyze calibrate."
        )
        text = f"The speed-up of {best['label']} is only known to be between {least} and {most}: {why}"
        lines.append(Caution("careful", f"the interval is wide ({least} to {most})", text))
    others = [row for row in study.rows if row is not best and not row["over"]]
    same = [row["label"] for row in others if study.written(row) == study.written(best)]
    if same:
        text = f"As fast as far as the numbers tell: {listed(same)}. Of these {best['label']} costs least."
        lines.append(Caution("note", f"{listed(same, 2)} {'is' if len(same) == 1 else 'are'} as fast", text))
    rivals = [
        row["label"] for row in others if row["label"] not in same and rival(row, best, study.calibrated)
    ]
    if rivals:
        text = (
            f"Whether {best['label']} or {listed(rivals)} is faster depends on the assumptions: none has "
            "both fewer walk cycles and less upkeep than the other."
        )
        return [*lines, Caution("note", f"{listed(rivals, 2)} may be as good", text)]
    within = " within the budget" if any(row["over"] for row in study.rows) else ""
    text = f"Whichever assumptions hold, no other policy{within} is faster than {best['label']}."
    return [*lines, Caution("note", "nothing else is faster under any of the assumptions", text)]


def noted(study: Study) -> list[Caution]:
    """What notes on the baseline, and on the best policy, ask to be careful with."""
    ours = study.results[0].careful
    best = [text for one in study.results if one.policy == study.best["policy"] for text in one.careful]
    texts = [*ours, *(f"{study.best['label']}, {text}" for text in dict.fromkeys(best) if text not in ours)]
    return [Caution("careful", text.partition(":")[0], f"{text[0].upper()}{text[1:]}.") for text in texts]


def rival(row: dict[str, Any], best: dict[str, Any], calibrated: bool) -> bool:
    """Whether a policy within the budget may be faster than the best under some of the assumptions.

    Run time is a sum of walk cycles and upkeep (of a calibrated run: walk cycles of each dimension have a
    weight of their own) with the same unknown weights for both policies: more of each is slower.
    """
    walks = ("guest_walk_cycles", "host_walk_cycles") if calibrated else ("walk_cycles",)
    more = all(row[key] >= best[key] for key in (*walks, "management_cycles"))
    return (
        not row["over"]
        and not more
        and bool(interval.faster(row["speedup_high"]) and row["speedup_high"] > best["speedup_low"])
    )


def assumed(study: Study) -> list[Caution]:
    captured = study.facts.get("machine", {}).get("NUMA nodes")
    modelled = study.results[0].reads.shape[1]
    if captured is None or captured == modelled:
        return []
    there = plural(captured, "node")
    if not study.traced:
        return [
            Caution(
                "careful",
                f"it was captured on {there} and replayed on {modelled}",
                f"The capture comes from a machine with {there}, the answers are about one with "
                f"{modelled}, each of which is taken to walk as much as the captured process did. About the "
                f"captured machine they say nothing: write a model of it there ({HOST_MODEL}), and give it "
                "with -m host.toml.",
            )
        ]
    where = (
        "Its one thread is taken to run on one node all the time."
        if study.facts["trace"]["threads"] == 1
        else f"Where threads run is an assumption: {study.results[0].placement}."
    )
    return [
        Caution(
            "careful",
            f"it was recorded on {there} and replayed on {modelled}",
            f"The capture comes from a machine with {there}, the replay is of one with {modelled}. {where}",
        )
    ]


def listed(words: list[str], most: int = 4) -> str:
    """ "a", "a and b", "a, b and 3 more"."""
    shown = words[:most]
    if len(words) > most:
        return f"{', '.join(shown)} and {len(words) - most} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def second_sentence(study: Study) -> str:
    """The gravest cautions as one sentence, for below the advice."""
    short = [caution.short for caution in cautions(study) if caution.short][:3]
    if not short:
        return "How sure: nothing in the capture or in the estimate stands against it."
    return f"How sure: {'; '.join(short)}."


def alone(study: Study) -> str:
    """A sentence on the best policy that only places tables, where the advised policy does more; else ""."""
    if study.cached:
        return ""
    base, *others = study.results  # in the order of the rows
    rows = [row for row in study.rows if row is not study.base]
    ranked = [
        candidate(one, base, str(row["over"]), str(row["label"]))
        for one, row in zip(others, rows, strict=True)
    ]
    return placement_alone(str(study.best["policy"]), ranked, study.baseline, study.timed)
