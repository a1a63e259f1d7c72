"""Cautions about a study, in plain words: failed checks, missing data, small samples, assumptions."""

from dataclasses import replace
from math import sqrt
from typing import Any, NamedTuple

import ptanalyze as pt

from .study import Study, remote_share

FEW_WALKS = 10_000
MORE = {
    pt.columns.ELSEWHERE: f": write a model of it there (ptanalyze {pt.analysis.findings.HOST_MODEL}), "
    "and give it with -m host.toml",
    pt.columns.TOGETHER: "; pictures of page tables are of the first alone",
}
WIDE = 0.2  # width of a speed-up's interval over its middle


def cautions(study: Study) -> list[pt.columns.Finding]:
    """What to be careful about, the gravest first."""
    every = [
        *checks(study),
        *recording(study),
        *processes(study),
        *few_walks(study),
        *estimate(study),
        *noted(study),
        *assumed(study),
    ]
    return sorted(
        every,
        key=lambda one: (pt.columns.FAILED, pt.columns.PARTIAL, pt.columns.CAREFUL, pt.columns.NOTE).index(
            one.weight
        ),
    )


def checks(study: Study) -> list[pt.columns.Finding]:
    lines = []
    for verdict, word in ((pt.columns.FAILED, "failed"), (pt.columns.PARTIAL, "found data missing")):
        if some := study.with_verdict(verdict):
            count = f"{pt.errors.plural(len(some), 'check')} of the capture {word}"
            lines.append(
                pt.columns.Finding("checks", f"{count}: {'; '.join(map(said, some))}", verdict, count)
            )
    lines += [pt.columns.Finding("checks", said(finding)) for finding in study.with_verdict(pt.columns.NOTE)]
    if study.sound:
        text = f"All {len(study.findings)} checks of the capture's files found nothing wrong"
        lines.append(pt.columns.Finding("checks", text))
    return lines


def said(finding: pt.check.Check) -> str:
    count = f" ({finding.wrong:,} of {finding.examined:,})" if finding.examined else ""
    return f"{finding.name}{count}: {finding.reason}".rstrip(". ")


def recording(study: Study) -> list[pt.columns.Finding]:
    """Data that the way of recording leaves out."""
    if not study.traced:
        return []
    trace, lines = study.facts["trace"], []
    if study.tables is None:
        text = (
            "The capture holds no page tables: 4 KiB pages, and tables placed by first touch, are assumed "
            "for the memory that the trace touches"
        )
        lines.append(pt.columns.Finding("no-tables", text, pt.columns.CAREFUL, "the page tables are assumed"))
    lost, dropped = (int(trace.get(key, 0)) for key in ("lost bytes", "dropped touches"))
    if lost or dropped:
        text = f"The trace is not whole: {lost:,} bytes of it were lost, {dropped:,} touches dropped"
        lines.append(
            pt.columns.Finding("trace-lost", text, pt.columns.CAREFUL, "parts of the trace were lost")
        )
    if "qemu" in str(trace.get("tracer", "")):
        text = (
            "The program ran under an emulator while it was traced. Its addresses and calls are real; the "
            "interleaving of its threads is the emulator's"
        )
        lines.append(pt.columns.Finding("emulated", text))
    return lines


def processes(study: Study) -> list[pt.columns.Finding]:
    """That a capture of several processes is asked about one of them."""
    if names := study.facts["capture"].get("children not traced"):
        text = f"Child processes were not traced ({names}): record --follow-fork traces them"
        return [
            pt.columns.Finding(
                "children-untraced", text, pt.columns.CAREFUL, "it is about the program without its children"
            )
        ]
    number = sum(section.startswith(pt.describe.PROCESS) for section in study.facts)
    if number < 2 or study.results[0].finding(pt.columns.TOGETHER):
        return []
    text = f"The capture holds {number} processes; all of this is about the first. The others are in pid-PID"
    return [
        pt.columns.Finding("one-process", text, pt.columns.CAREFUL, f"it is about one of {number} processes")
    ]


def few_walks(study: Study) -> list[pt.columns.Finding]:
    walks = study.results[0].walks
    if not study.traced or walks >= FEW_WALKS:
        return []
    points = 100 * 1.96 * sqrt(0.25 / max(walks, 1))
    text = (
        f"Only {walks:,} page walks were counted. They are exact for this trace, but little to judge the "
        f"whole program by: were they drawn at random from it, a share of 50 % would be known to within "
        f"{points:.1f} points. A longer trace helps"
    )
    return [
        pt.columns.Finding("few-walks", text, pt.columns.CAREFUL, f"only {walks:,} page walks were counted")
    ]


def estimate(study: Study) -> list[pt.columns.Finding]:
    """Widths of the speed-ups' intervals, and rivals within them."""
    if not study.timed or study.best is study.base:
        return []
    best, lines = study.best, []
    low, high = best["speedup_low"], best["speedup_high"]
    _, least, most = pt.interval.shown(best["speedup"], low, high)
    if not pt.interval.faster(low):
        text = f"{best['label']} may bring no gain: its interval is {least}-{most}"
        lines.append(pt.columns.Finding("maybe-no-gain", text, pt.columns.CAREFUL, "it may bring no gain"))
    elif high - low > WIDE * best["speedup"]:
        why = (
            "counters of one run do not show how much of a walk the processor hides. A second run with "
            "remote page tables narrows it: ptanalyze calibrate --remote"
            if study.calibrated
            else "a trace shows neither how much of a walk the processor hides nor how long the program "
            "computes between walks. Counters of one run narrow it: ptanalyze calibrate"
        )
        text = f"The speed-up of {best['label']} is only known to be between {least} and {most}: {why}"
        lines.append(
            pt.columns.Finding(
                "wide-interval", text, pt.columns.CAREFUL, f"the interval is wide ({least}-{most})"
            )
        )
    others = [row for row in study.rows if row is not best and not row["over"]]
    same = [row["label"] for row in others if study.written(row) == study.written(best)]
    if same:
        text = f"Equally fast: {listed(same)}. {best['label']} costs least"
        short = f"{listed(same, 2)} {'is' if len(same) == 1 else 'are'} as fast"
        lines.append(pt.columns.Finding("as-fast", text, short=short))
    rivals = [
        row["label"] for row in others if row["label"] not in same and rival(row, best, study.calibrated)
    ]
    if rivals:
        text = (
            f"Whether {best['label']} or {listed(rivals)} is faster depends on the assumptions: none has "
            "both fewer walk cycles and less upkeep than the other"
        )
        return [*lines, pt.columns.Finding("rivals", text, short=f"{listed(rivals, 2)} may be as good")]
    within = " within the budget" if any(row["over"] for row in study.rows) else ""
    text = f"{best['label']} is the fastest policy{within} under every assumption"
    return [*lines, pt.columns.Finding("best", text, short="no other policy is faster under any assumption")]


def noted(study: Study) -> list[pt.columns.Finding]:
    """What findings on the baseline, and on the best policy, ask to be careful with."""
    base, best = study.results[0], study.best["policy"]
    ours = [one for one in base.findings if one.short or one.weight == pt.columns.CAREFUL]
    its = [finding for one in study.results if one.policy == best for finding in one.careful]
    own = [one for one in dict.fromkeys(its) if one not in ours]
    return [*(replace(one, text=f"{one.text}{MORE.get(one.code, '')}") for one in ours), *own]


def told(caution: pt.columns.Finding) -> str:
    """Its sentence behind the weight, which the page says in a word of its own."""
    return replace(caution, weight=pt.columns.NOTE).sentence


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
        and bool(pt.interval.faster(row["speedup_high"]) and row["speedup_high"] > best["speedup_low"])
    )


def assumed(study: Study) -> list[pt.columns.Finding]:
    captured = study.facts.get("machine", {}).get("NUMA nodes")
    modelled = study.results[0].reads.shape[1]
    if captured is None or captured == modelled or not study.traced:
        return []
    there = pt.errors.plural(captured, "node")
    where = (
        "Its one thread is assumed to stay on one node"
        if study.facts["trace"]["threads"] == 1
        else f"Where threads run is an assumption: {study.results[0].placement}"
    )
    text = f"The capture comes from a machine with {there}, the replay is of one with {modelled}. {where}"
    return [
        pt.columns.Finding(
            "placed", text, pt.columns.CAREFUL, f"it was recorded on {there} and replayed on {modelled}"
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
        pt.analysis.ranking.candidate(one, base, str(row["over"]), str(row["label"]))
        for one, row in zip(others, rows, strict=True)
    ]
    return pt.analysis.ranking.placement_alone(str(study.best["policy"]), ranked, study.baseline, study.timed)


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
    if share is not None and not pt.analysis.ranking.narrow(share):
        numbers.append(
            Number(
                pt.analysis.ranking.at_least(share),
                "of this run is page walks",
                "Perf counters tell how much more",
            )
        )
    elif share is not None:
        most = (
            f"at most {bound}x without walks alone" if (bound := pt.analysis.ranking.at_most(share)) else ""
        )
        more = f"best guess {pt.analysis.ranking.percent(share, True)}; {most}".rstrip("; ")
        numbers.append(Number(pt.analysis.ranking.percent(share), "of this run is page walks", more))
    if (
        kernel is not None
        and both is not None
        and kernel.high >= pt.analysis.ranking.NOTHING
        and pt.analysis.ranking.narrow(both)
    ):
        more, bound = (
            f"best guess {pt.analysis.ranking.percent(kernel, True)}",
            pt.analysis.ranking.at_most(both),
        )
        more += f"; at most {bound}x without these and without walks" if bound else ""
        what = "of this run is page faults and system calls on memory"
        numbers.append(Number(pt.analysis.ranking.percent(kernel), what, more))
    accesses = int(result.hits.sum())
    if study.traced and accesses:
        percent = 100 * result.walks / accesses
        more = f"{percent:{'.2g' if percent < 10 else '.0f'}} % of {accesses:,} accesses miss the TLBs"
        if 0 < accesses < study.facts["trace"]["accesses"]:
            more += ", of the steady state of the trace"
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
            more = f"{pt.interval.FROM_DRAM}; {more}"
        numbers.append(Number(f"{base['cycles_per_walk']:.0f}", "cycles per walk", more))
    best = study.best
    if study.cached:
        numbers.append(Number("nothing", "to gain by placement", study.cached.sentence))
    elif best is not base and study.timed:
        more = f"estimated speed-up, {'-'.join(pt.interval.shown(best['speedup_low'], best['speedup_high']))}"
        numbers.append(Number(f"{pt.interval.shown(study.ratio(best))[0]}x", f"with {best['label']}", more))
    elif best is not base:
        most, what = study.written(best).split(" fewer ")
        more = f"{pt.interval.FROM_DRAM}. {pt.analysis.findings.equally(result)}".rstrip()
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
            f"{pt.errors.plural(machine['NUMA nodes'], 'NUMA node')}, "
            f"{pt.errors.plural(machine['CPUs'], 'CPU')}, "
            f"{machine['memory (MiB)']:,} MiB"
        )
    if sees := facts.get("host and guest", {}).get("guest sees NUMA"):
        vcpus = facts.get("VM", {}).get("vCPUs")
        lines["Virtual machine"] = joined(
            pt.errors.plural(vcpus, "vCPU") if vcpus else None,
            "NUMA-oblivious: it sees one node" if sees == "no" else f"NUMA-visible: it sees {sees}",
        )
    for name in ("page table", "gPT", "ePT"):
        if name in facts:
            lines[name[:1].upper() + name[1:] if " " in name else name] = tree(facts[name])
    if trace:
        threads = pt.errors.plural(trace["threads"], "thread")
        lines["Trace"] = joined(
            f"{trace['accesses']:,} accesses by {threads} in {trace['seconds']:g} s",
            f"{trace['instructions']:,} instructions" if trace["instructions"] else None,
        )
    result = study.results[0]
    lines["Replayed on"] = joined(
        result.machine,
        f"{result.reads.shape[1]} nodes",
        pt.trace.threads_placed(result.placement) if study.traced else None,
        result.stands_for,
    )
    return {what: text for what, text in lines.items() if text}


def tree(rows: Any) -> str:
    names = {name: name.removesuffix(" pages") for name in pt.describe.PAGE_NAMES.values()}
    pages = [
        f"{pt.errors.plural(rows[name], 'page')} of {size}" for name, size in names.items() if rows.get(name)
    ]
    tracers = f" ({rows[TRACERS]:,} of them only for the tracer)" if rows.get(TRACERS) else ""
    mapped = " and ".join(pages) or "nothing"
    return f"{rows['table pages']:,} table pages{tracers} in {rows['levels']} levels; they map {mapped}"


def joined(*parts: Any) -> str:
    return ", ".join(str(part) for part in parts if part)
