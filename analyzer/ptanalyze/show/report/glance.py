"""A study in a few numbers, and its capture in a few lines."""

from typing import Any, NamedTuple

from ...analysis.advise import COUNTERS, NOTHING, at_least, at_most, narrow
from ...analysis.advise import percent as share_of
from ...analysis.run_notes import equally, sentence_of
from ...capture.describe import PAGE_NAMES
from ...core.errors import plural
from ...core.interval import FROM_DRAM, shown
from ...core.walks import threads_placed
from .study import Study, remote_share

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
        most = f"at most {at_most(share)} times as fast without walks alone" if share.high < 1 else ""
        more = f"{share_of(share, True)} by the middle of the assumptions; {most}".rstrip("; ")
        numbers.append(Number(share_of(share), "of this run is page walks", more))
    if kernel is not None and both is not None and kernel.high >= NOTHING and narrow(both):
        more = f"at most {at_most(both)} times as fast without these and without walks"
        what = "of this run is page faults and system calls on memory"
        numbers.append(Number(share_of(kernel), what, f"{share_of(kernel, True)} by the middle; {more}"))
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
