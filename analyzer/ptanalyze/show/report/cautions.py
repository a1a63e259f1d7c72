"""Cautions about a study, in plain words: failed checks, missing data, small samples, assumptions."""

from math import sqrt
from typing import Any, NamedTuple

from ...analysis.advise import COUNTERS, NOTHING, at_least, at_most, candidate, narrow, placement_alone
from ...analysis.advise import percent as share_of
from ...analysis.findings import HOST_MODEL, equally, sentence_of
from ...analysis.setup import alike
from ...capture.check import FAILED, NOTE, PARTIAL, Finding
from ...capture.describe import PAGE_NAMES, PROCESS
from ...core import interval
from ...core.errors import plural
from ...core.interval import FROM_DRAM, shown
from ...core.walks import threads_placed
from .study import Study, remote_share

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


# A study in a few numbers, and its capture in a few lines.

TRACERS = "of them the tracer's"


class Number(NamedTuple):
    value: str
    what: str
    more: str


def glance(study: Study) -> list[Number]:
    """Key numbers for a reader in a hurry; all but the last are of the baseline."""
    base, result = study.base, study.results[0]
    numbers = []
    share, kernel, both = result.price.walk_share, result.price.kernel_share, result.price.table_share
    if share is not None and not narrow(share):
        numbers.append(Number(at_least(share), "of this run is page walks", f"How much more, {COUNTERS}"))
    elif share is not None:
        most = f"at most {bound} times as fast without walks alone" if (bound := at_most(share)) else ""
        more = f"{share_of(share, True)} by the middle of the assumptions; {most}".rstrip("; ")
        numbers.append(Number(share_of(share), "of this run is page walks", more))
    if kernel is not None and both is not None and kernel.high >= NOTHING and narrow(both):
        more, bound = f"{share_of(kernel, True)} by the middle", at_most(both)
        more += f"; at most {bound} times as fast without these and without walks" if bound else ""
        what = "of this run is page faults and system calls on memory"
        numbers.append(Number(share_of(kernel), what, more))
    accesses = int(result.hits.sum())
    if study.traced and accesses:
        percent = 100 * result.walks / accesses
        more = f"{percent:{'.2g' if percent < 10 else '.0f'}} % of {accesses:,} accesses miss the TLBs"
        if 0 < accesses < study.facts["trace"]["accesses"]:
            more += ", of the part of the trace that is taken to go on: its steady state"
        numbers.append(Number(f"{result.walks:,}", f"page walks{study.warm}", more))
    numbers.append(
        Number(
            f"{100 * base['leaf_LL_share']:.0f} %",
            f"of {'walks' if study.traced else 'pages'} {study.local}{study.warm}",
            f"leaf entries on the walker's socket, under {study.baseline}",
        )
    )
    if base["dram_reads"]:
        more = f"of {base['dram_reads']:,} page-table reads from DRAM, under {study.baseline}"
        numbers.append(Number(f"{100 * remote_share(base):.0f} %", "remote", more))
    if base["walk_cycles"]:
        walks = base["walk_cycles"] / base["cycles_per_walk"]
        more = f"{sum(result.price.local_walk_cycles) / walks:.0f} if every table were local"
        if not study.timed:
            more = f"{FROM_DRAM}; {more}"
        numbers.append(Number(f"{base['cycles_per_walk']:.0f}", "cycles per walk", more))
    best = study.best
    if study.cached:
        numbers.append(Number("nothing", "to gain by placement", sentence_of(study.cached)))
    elif best is not base and study.timed:
        more = f"estimated speed-up, {' to '.join(shown(best['speedup_low'], best['speedup_high']))}"
        numbers.append(Number(f"{shown(study.ratio(best))[0]}×", f"with {best['label']}", more))
    elif best is not base:
        most, what = study.written(best).split(" fewer ")
        more = f"{FROM_DRAM}. {equally(result)}".rstrip()
        numbers.append(Number(most, f"fewer {what} with {best['label']}", more))
    return numbers


def captured(study: Study) -> dict[str, str]:
    """{what: in words} of the program, its machine, tables and trace, and the machine of the replay."""
    facts, trace = study.facts, study.facts.get("trace", {})
    sure, machine = facts.get("how sure", {}), facts.get("machine", {})
    kernel = f"kernel {sure['kernel']}" if "kernel" in sure else None
    lines = {
        "Program": str(trace.get("command") or sure.get("comm") or ""),
        "Recorded": joined(sure.get("time"), kernel, sure.get("cpu")),
    }
    if machine:
        lines["Machine"] = (
            f"{plural(machine['NUMA nodes'], 'NUMA node')}, {plural(machine['CPUs'], 'CPU')}, "
            f"{machine['memory (MiB)']:,} MiB"
        )
    if sees := facts.get("host and guest", {}).get("guest sees NUMA"):
        vcpus = facts.get("VM", {}).get("vCPUs")
        lines["Virtual machine"] = joined(
            plural(vcpus, "vCPU") if vcpus else None,
            "NUMA-oblivious: it sees one node" if sees == "no" else f"NUMA-visible: it sees {sees}",
        )
    for name in ("page table", "gPT", "ePT"):
        if name in facts:
            lines[name[:1].upper() + name[1:] if " " in name else name] = tree(facts[name])
    if trace:
        threads = plural(trace["threads"], "thread")
        lines["Trace"] = joined(
            f"{trace['accesses']:,} accesses by {threads} in {trace['seconds']:g} s",
            f"{trace['instructions']:,} instructions" if trace["instructions"] else None,
        )
    result = study.results[0]
    lines["Replayed on"] = joined(
        result.machine,
        f"{result.reads.shape[1]} nodes",
        threads_placed(result.placement) if study.traced else None,
    )
    return {what: text for what, text in lines.items() if text}


def tree(rows: Any) -> str:
    names = {name: name.removesuffix(" pages") for name in PAGE_NAMES.values()}
    pages = [f"{plural(rows[name], 'page')} of {size}" for name, size in names.items() if rows.get(name)]
    tracers = f" ({rows[TRACERS]:,} of them only for the tracer)" if rows.get(TRACERS) else ""
    mapped = " and ".join(pages) or "nothing"
    return f"{rows['table pages']:,} table pages{tracers} in {rows['levels']} levels; they map {mapped}"


def joined(*parts: Any) -> str:
    return ", ".join(str(part) for part in parts if part)
