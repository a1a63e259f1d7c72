"""What-if results for people: a sentence, one table with policies across and quantities down, then notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isinf
from typing import Any

import numpy as np

from ..analysis.advise import (
    best_first,
    candidate,
    careful,
    effect,
    label_of,
    missing,
    peak_bytes,
    placement_alone,
    without_trace,
)
from ..analysis.answer import Matrix, Quantity, Section
from ..analysis.run_notes import owned_notes, sentence_of
from ..core import interval
from ..core.errors import show_duration, size_in_words
from ..core.interval import Interval
from ..core.walks import GUEST_BIT, threads_placed
from ..cost.price import NEVER
from ..cost.result import EVERY_NODE, Result
from ..kernels.replay import EVENT_KINDS
from ..policies import BOUND
from .first_screen import beware, cycles, earned, table, worth
from .terminal import number

UPDATES = {
    "pte_writes": "PTE writes",
    "pte_fanout": "PTE writes fanned out",
    "pte_copies": "PTE copies",
    "faults": "page faults",
    "pages_zeroed": "4 KiB pages zeroed",
    "replica_faults": "replica faults",
    "ipis": "IPIs",
    "ipis_remote": "IPIs, remote",
    "ipis_saved": "IPIs saved",
    "ept_pte_writes": "ePT writes",
    "ept_pte_fanout": "ePT writes fanned out",
    "ept_replica_faults": "ePT violations",
    "ept_pte_copies": "ePT copies",
    "vm_exits": "VM exits",
    "tables_moved": "tables moved",
    "ept_tables_moved": "ePT tables moved",
}
EARNED = (("pays_back_walks", "walks", "count"), ("pays_back_seconds", "s", "mean"))
ONCE = {
    "faults": "page faults",
    "pages_zeroed": "4 KiB pages zeroed",
    "replica_faults": "replica faults",
    "pte_writes": "PTE writes",
    "pte_fanout": "PTE writes fanned out",
    "pte_copies": "PTE copies",
    "tables_new": "tables made",
    "tables_moved": "tables moved",
    "vm_exits": "VM exits",
}
CALLS = {
    "calls": "calls",
    "entries": "entries changed",
    "copies": "entries fanned out",
    "ipis_local": "IPIs, local",
    "ipis_remote": "IPIs, remote",
    "saved_local": "IPIs saved, local",
    "saved_remote": "IPIs saved, remote",
}
SAID_WHY = 3  # policies that the capture refuses, each with its reason on the first screen


def view(
    results: Sequence[Result],
    further: Section | None = None,
    refused: Mapping[str, str] | None = None,
    whose: str = "",
    nodes: str = "",
) -> Iterator[Section | Matrix]:
    """The best policy in a sentence, whether it is worth it, a small table, and what to type next.

    further  what to type next; None: everything that was counted and assumed instead
    whose    a sentence before all else; "" none; nodes: another
    """
    first = results[0]
    accesses = f" of {number(int(first.hits.sum()))} accesses" if first.hits.any() else ""
    asked = f"{first.machine}; {threads_placed(first.placement)}; {walks(first)} walks{warm(first)}{accesses}"
    said = advice(results)
    yield Section(
        lines=[
            *beware(first, whose, nodes),
            said,
            "",
            *worth([first, *best_first(results)]),
            asked,
        ]
    )
    yield from table(dict(zip(labels(results), results, strict=True)), not further, said)
    if further:
        more = len(owned_notes(results)) - 1
        yield Section(lines=left_out(refused or {}))
        yield Section(lines=[f"Assumed: {first.price.assumptions} ({more} more with --full)."])
        yield Section(lines=[""])
        yield further
        return
    yield Section(lines=[""])
    yield Matrix(labels(results), {heading: rows for heading, rows in groups(results) if rows})
    parameters = [f"- {row['policy']}: {row['params']}" for row in rows_of(results) if row["params"]]
    yield Section(lines=["", *parameters, *(f"- {note}" for note in owned_notes(results))])


def left_out(refused: Mapping[str, str]) -> list[str]:
    """Why policies were refused; of many, as -p all names them, which."""
    if len(refused) <= SAID_WHY:
        return [f"policy {policy}: {why}" for policy, why in refused.items()]
    return [f"Not for this capture: {', '.join(refused)} (--full says why)."]


def warm(result: Result) -> str:
    """ " when warm," where a further run is counted, else ""."""
    return " when warm," if result.run == "warm" else ""


def walks(result: Result) -> str:
    readers = int(np.count_nonzero(result.reads.sum(axis=(0, 2, 3))))
    if result.placement != EVERY_NODE or readers < 2 or result.walks % readers:
        return number(result.walks)
    return f"{number(result.walks // readers)} from each of {readers} nodes, {number(result.walks)}"


def rows_of(results: Sequence[Result]) -> list[dict[str, Any]]:
    return [result.row() for result in results]


def labels(results: Sequence[Result]) -> list[str]:
    """A name for each Result: its policy, with settings that are not the defaults or that differ."""
    return [label_of(result, results) for result in results]


def advice(results: Sequence[Result]) -> str:
    """What the capture lacks; what placing tables gains, where the best policy does more; then the best."""
    base, ranked = results[0], best_first(results)
    if all(one.policy == BOUND for one in ranked):
        return sentence(results)
    candidates = [candidate(one, base, name=label_of(one, results)) for one in ranked]
    timed = base.price.speedup is not None
    named = label_of(base, results)
    placed = "" if base.cached else placement_alone(ranked[0].policy, candidates, named, timed)
    return " ".join(filter(None, (missing(base), placed, sentence(results))))


def sentence(results: Sequence[Result]) -> str:
    """Which policy is best, by how much, what it takes, and when that is earned back; or that none is."""
    base = results[0]
    ranked = best_first(results)
    if not ranked:
        return f"Only {label_of(base)}: name another policy to compare it with."
    best = ranked[0]
    name, speedup = label_of(best, results), best.price.speedup
    if speedup is None:
        return without_run_time(base, best, name)
    warm = "" if best.once.pays_back is None else " when warm"
    if effect(best, base) <= 0:
        same = not any(map(interval.differs, speedup))
        how = "as fast" if same else times(speedup, "it")
        return f"{interval.none_faster(label_of(base))}; {name} is {how}."
    unsure = "" if interval.gains(speedup) else "; it may be no gain"
    word = "Bound of locality" if best.policy == BOUND else "Best"
    faster = f"{word}: {name}, {times(speedup, label_of(base))}{warm}"
    return f"{faster}, {takes(best, base)}{costs_once(best, base)}{unsure}.{careful(best)}"


def costs_once(best: Result, base: Result) -> str:
    """One-time cost beyond the baseline's, and when it is earned back; "" where that is not known."""
    seconds = best.once.pays_back_seconds
    if seconds is None:
        return ""
    if not seconds.middle:
        return ", at no one-time cost"
    earned = (
        "never earned back" if isinf(seconds.middle) else f"earned back after {show_duration(seconds.middle)}"
    )
    return f"; it costs {cycles(best.once.cycles - base.once.cycles)} cycles once, {earned}"


def times(estimate: Interval, base: str) -> str:
    middle, low, high = interval.shown(estimate.middle, estimate.low, estimate.high)
    return f"{middle} times as fast as {base} ({low} to {high})"


def without_run_time(base: Result, best: Result, name: str) -> str:
    """What walk cycles are saved at most, where there is no trace and so no run time."""
    if effect(best, base) > 0:
        return without_trace(base, best, f"With {name}", f", {takes(best, base)}.{careful(best)}")
    return (
        sentence_of(base.cached)
        if base.cached
        else f"No policy takes fewer walk cycles than {label_of(base)}."
    )


def takes(best: Result, base: Result) -> str:
    """Memory at its peak beside the baseline's: of page tables, or, where more is held unused, of both."""
    more, held = peak_bytes(best) - peak_bytes(base), best.held_bytes - base.held_bytes
    what = f"memory ({size_in_words(held)} held unused)" if held > 0 else "page tables"
    if more < 0:
        return f"saving {size_in_words(-more)} of page tables at peak"
    return f"for {size_in_words(more) if more else 'no'} more {what} at peak"


def groups(results: Sequence[Result]) -> Iterator[tuple[str, list[Quantity]]]:
    """(heading, its quantities), without those that are nothing under every policy."""
    rows = rows_of(results)
    nested = any(row["host_reads_per_walk"] for row in rows)
    steady = any(result.once.pays_back is not None for result in results)
    yield (
        f"{'Further run: t' if steady else 'T'}ime, compared with {results[0].baseline}",
        kept(time(rows, nested, results[0].once.within)),
    )
    yield "Locality", kept(locality(rows, nested))
    yield "Reads per walk", kept(reads(rows, results, nested))
    yield "Memory, KiB", kept(memory(rows, nested))
    counts = (Quantity(name, [row[key] for row in rows]) for key, name in UPDATES.items())
    yield "Updates and interrupts", kept(counts)
    when = "Before the first walk" if results[0].once.within else "Once"
    yield "Once, before the further run" if steady else when, kept(once(results))
    for call in dict.fromkeys(one.call for result in results for one in result.price.system_calls):
        yield f"System call {call}", kept(system_call(call, results))
    yield "Other results of the policies", kept(facts(results))


def kept(quantities: Iterable[Quantity]) -> list[Quantity]:
    """Those that are shown as more than 0 somewhere."""
    least = {"count": 0.5, "share": 0.00005}
    return [one for one in quantities if any(abs(v or 0) >= least.get(one.form, 0.0005) for v in one.values)]


def time(rows: Sequence[dict[str, Any]], nested: bool, as_traced: bool) -> Iterator[Quantity]:
    """`as_traced`: what happens once is within the run."""
    for key, name in (("speedup", "speed-up"), ("speedup_low", "at least"), ("speedup_high", "at most")):
        yield Quantity(name, [row[key] for row in rows], "ratio")
    once = "cycles before the first walk" if as_traced else "one-time cycles"
    yield Quantity(once, [row["once_cycles"] for row in rows])
    for key, name, form in EARNED:
        yield Quantity(f"earned back after, {name}", [after(row, key) for row in rows], form)
    if not as_traced:
        yield Quantity("speed-up as traced", [row["traced_speedup"] for row in rows], "ratio")
    yield Quantity("cycles per walk", [row["cycles_per_walk"] for row in rows], "mean")
    yield Quantity("walk cycles", [row["walk_cycles"] for row in rows])
    if nested:
        yield Quantity("walk cycles in gPT", [row["guest_walk_cycles"] for row in rows])
        yield Quantity("walk cycles in ePT", [row["host_walk_cycles"] for row in rows])
    yield Quantity("management cycles", [row["management_cycles"] for row in rows])


def after(row: Mapping[str, Any], key: str) -> float | None:
    """When a cost is earned back, None where the first screen has "-"."""
    words = earned(row)
    return None if words == "-" else NEVER if words == "never" else row[key]


def locality(rows: Sequence[dict[str, Any]], nested: bool) -> Iterator[Quantity]:
    """`nested`: some policy's walks have two dimensions (shadow paging has one where others have two)."""
    names = {"LL": "leaf local", "RL": "leaf remote"}
    if nested:
        names = {"LL": "Local-Local (LL)", "LR": "LR", "RL": "RL", "RR": "RR"}
    for kind, name in names.items():
        yield Quantity(f"{name}, %", [row[f"leaf_{kind}_share"] for row in rows], "share")
    remote = [row["remote_dram_reads"] / max(row["dram_reads"], 1) for row in rows]
    yield Quantity("DRAM remote, %", remote, "share")


def reads(rows: Sequence[dict[str, Any]], results: Sequence[Result], nested: bool) -> Iterator[Quantity]:
    """By dimension, by level, and by the node that serves them."""
    yield Quantity("all", [row["reads_per_walk"] for row in rows], "mean")
    yield Quantity("from DRAM", [row["dram_reads_per_walk"] for row in rows], "mean")
    if nested:
        yield Quantity("of gPT", [row["guest_reads_per_walk"] for row in rows], "mean")
        yield Quantity("of ePT", [row["host_reads_per_walk"] for row in rows], "mean")
    walks = [max(int(result.classes.sum()), 1) for result in results]
    by_bit = [result.reads.sum(axis=(1, 2, 3)) for result in results]
    for name, host in (("gPT" if nested else "PT", False), ("ePT", True)):
        for level in range(5, 0, -1):
            bits = slice(level, None, GUEST_BIT) if host else slice(GUEST_BIT * level, GUEST_BIT * level + 1)
            counts = [int(of[bits].sum()) / n for of, n in zip(by_bit, walks, strict=True)]
            yield Quantity(f"{name} level {level}", counts, "mean")
    by_node = [result.reads.sum(axis=(0, 1, 3)) / n for result, n in zip(results, walks, strict=True)]
    for node in range(max(map(len, by_node))):
        served = [float(of[node]) if node < len(of) else None for of in by_node]
        yield Quantity(f"served by node {node}", served, "mean")


def memory(rows: Sequence[dict[str, Any]], nested: bool) -> Iterator[Quantity]:
    sides = {"gPT": "pt", "ePT": "ept"} if nested else {"page tables": "pt"}
    for name, side in sides.items():
        yield Quantity(name, [row[f"{side}_bytes"] / 1024 for row in rows])
        yield Quantity(f"{name}, extra", [row[f"{side}_bytes_extra"] / 1024 for row in rows])
        if side == "pt":
            yield Quantity(f"{name}, peak", [row["pt_bytes_peak"] / 1024 for row in rows])
    yield Quantity("not walked", [row["aside_bytes"] / 1024 for row in rows])
    yield Quantity("held unused", [row["held_bytes"] / 1024 for row in rows])


def once(results: Sequence[Result]) -> Iterator[Quantity]:
    """What happens once: to get to the policy's tables, and where memory is touched for the first time."""
    for kind, name in enumerate(EVENT_KINDS):
        if name in ONCE:
            yield Quantity(ONCE[name], [result.once.count(kind) for result in results])
            yield Quantity(f"ePT: {ONCE[name]}", [result.once.count(kind, host=True) for result in results])
    yield Quantity("data pages copied", [result.once.data_copied for result in results])


def system_call(call: str, results: Sequence[Result]) -> Iterator[Quantity]:
    """What one kind of call changes, whom it interrupts, and how long that takes."""
    costs = [next((o for o in result.price.system_calls if o.call == call), None) for result in results]
    for field, name in CALLS.items():
        yield Quantity(name, [None if cost is None else getattr(cost, field) for cost in costs])
    yield Quantity("ns per call", [None if cost is None else cost.ns for cost in costs], "mean")
    stolen = [None if cost is None else cost.stolen_ns for cost in costs]
    yield Quantity("stolen ns per call", stolen, "mean")
    slower = [None if cost is None else cost.slowdown for cost in costs]
    if any(value not in (None, 1) for value in slower):
        yield Quantity("slow-down", slower, "ratio")


def facts(results: Sequence[Result]) -> Iterator[Quantity]:
    """Numbers that policies count by themselves; series are for programs."""
    for fact in dict.fromkeys(fact for result in results for fact in result.facts):
        values = [result.facts.get(fact) for result in results]
        if all(value is None or isinstance(value, int | float) for value in values):
            whole = all(value is None or float(value).is_integer() for value in values)
            yield Quantity(fact.replace("_", " "), values, "count" if whole else "mean")
