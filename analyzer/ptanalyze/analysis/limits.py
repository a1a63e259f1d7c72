"""What limits a run: remote page tables, remote data, small pages, or nothing; and what to type.

Every part is a speed-up over the same baseline: of local tables and of local data a bound
(cost.price), of huge pages their replay. Without a trace the first is in closed form (analysis.footprint),
huge pages give at least what their reads of leaf entries took, and remote data have no number. ADR 32.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.columns import CACHED, DATA_NODES
from ..core.errors import plural, relocation, size_in_words
from ..core.interval import NOTICED, Interval, faster, interval
from ..policies import BOUND, RESEARCH, Plan, availability, plan_for
from ..policies.contract import Availability
from .frames import Replayed
from .ranking import Workload, effect, label_of, peak_bytes, standing, workload
from .replay import with_refusals
from .setup import Policies, ReplayCapture, Setup, asked_or_usual
from .whatif import chosen, replay_scenario

if TYPE_CHECKING:
    from ..cost.result import Result
    from .ranking import Report

TABLES, DATA, PAGES, NOTHING = "page tables", "data", "page size", "nothing"
HOST_IS_HUGE = 0.1  # share of 4 KiB mappings, by 2 MiB of the guest, below which the host maps huge pages
POSSIBLE = 1.05  # at the most, below which it is not worth a measurement either
PRIVATE = 0.1  # share of leaf tables that several nodes walk through, below which data are private
CROWDED = 0.6  # share of data that one node serves, from which on its bandwidth limits several readers
SEVERAL = 1.5  # nodes of equal shares that read
EVEN = 1.25  # times its equal share, up to which a node serves no more than interleaved data would have it
HUGE, RESET = "thp", "ept-reset"
HOST_HUGE = "on the host: echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
NUMA_BALANCING = "echo 1 | sudo tee /proc/sys/kernel/numa_balancing"
IN_GUEST = "in the guest: "
STRIPPED = "what huge pages give at this size is not known from a stripped trace (record --strip off)"


class Headroom(NamedTuple):
    """What is gained without a limit. remote: share of DRAM reads that are remote, None: not known; least:
    whether the gain may be larger than all of its interval."""

    kind: str
    gain: Interval
    remote: float | None = None
    least: bool = False

    @property
    def noticed(self) -> bool:
        return self.gain.middle >= NOTICED

    @property
    def known(self) -> str:
        """In a sentence, without a full stop."""
        if self.remote == 0:
            return f"all {self.kind} are local already"
        what = f"local {self.kind} would give" if self.kind != PAGES else "huge pages would give"
        if not any(map(faster, self.gain)):
            return f"{what} nothing"
        share = "" if self.remote is None else f", {100 * self.remote:.0f} % are remote"
        return f"{what} {'at least ' * self.least}{interval(self.gain)}{share}"


class Limits(NamedTuple):
    """kind: what limits the run, TABLES, DATA, PAGES or NOTHING; parts: [Headroom], the largest first.

    sentence  which it is, and by how much
    typed     what to type on mainline Linux, "" nothing helps; why: on what it rests, "" where it says so
    research  what a research kernel gives instead, "" nothing was asked of one
    unknown   of which parts no gain is known, and what is, in sentences without a full stop
    cached    whether the sentence is that the caches hold the leaf entries
    """

    kind: str
    parts: list[Headroom]
    sentence: str
    typed: str
    why: str
    research: str
    unknown: tuple[str, ...] = ()
    cached: bool = False

    @property
    def nothing(self) -> bool:
        """Whether the verdict is that there is nothing to gain."""
        return self.kind == NOTHING

    @property
    def lines(self) -> list[str]:
        """For people, the verdict first, the research kernel left out."""
        if self.nothing:
            return [self.sentence, *filter(None, [self.beside])]
        typed = f"Type today: {self.today}" if self.today else "Nothing to type today."
        return [self.sentence, self.beside, typed]

    @property
    def beside(self) -> str:
        """What the other parts give, in a sentence; "" nothing to tell."""
        possible = [part for part in self.parts if part.gain.high >= POSSIBLE or self.kind != NOTHING]
        told = TABLES if self.unknown and self.kind == NOTHING else self.kind
        others = [*(part.known for part in possible if part.kind != told), *self.unknown]
        return _sentence("; ".join(others)) if others else ""

    @property
    def today(self) -> str:
        """What to type, and why, on one line."""
        return f"{self.typed} ({self.why})" if self.why else self.typed

    def record(self) -> dict[str, Any]:
        """For JSON."""
        gains = {
            part.kind: {
                "low": part.gain.low,
                "middle": part.gain.middle,
                "high": part.gain.high,
                "remote": part.remote,
            }
            for part in self.parts
        }
        said = {"sentence": self.sentence, "today": self.today, "research": self.research}
        return {"limit": self.kind, **said, "without": gains, "unknown": list(self.unknown)}


def limits_of(
    results: Sequence[Result],
    about: Workload,
    over: Collection[str] = (),
    besides: Sequence[Result] = (),
    unknown: tuple[str, ...] = (),
) -> Limits | None:
    """Limits by the Results of the baseline, the first, and of policies; None without run times, or where a
    trace has no data.

    over     labels of policies beyond the budget: not advised
    besides  further Results over the same baseline, of policies that were not asked for
    unknown  Limits.unknown
    """
    base = results[0]
    if base.local_tables is None or (base.local_data is None and base.cached_tables is None):
        return None
    within = [one for one in (*results[1:], *besides) if label_of(one) not in over and one.policy != BOUND]
    within.sort(key=lambda one: standing(one, base))
    if base.local_data is None:
        return _without_a_trace(base, within, about)
    huge = next((one for one in within if one.policy == HUGE and one.speedup), None)
    parts = [
        Headroom(TABLES, base.local_tables, base.remote_tables),
        Headroom(DATA, base.local_data, base.remote_data),
    ]
    if huge is not None and huge.speedup is not None:
        parts.append(Headroom(PAGES, huge.speedup))
    parts.sort(key=lambda part: -part.gain.middle)
    kind = parts[0].kind if parts[0].noticed else NOTHING
    node, served = _busiest(base)
    if served >= CROWDED and about.spread >= SEVERAL and not about.fits:
        kind = DATA
        verdict = (
            f"Your data first: node {about.on_host(node)[0]} serves {100 * served:.0f} % of what several "
            "nodes read; its bandwidth, which latencies leave out, may be the limit."
        )
    else:
        verdict = _verdict(kind, parts, base, huge, huge not in besides)
    return Limits(
        kind, parts, verdict, *_today(kind, base, within, about), _research(base, within, kind), unknown
    )


def _busiest(base: Result) -> tuple[int, float]:
    """(the socket that serves most of the data, its share); (0, 0.0) where data were not counted."""
    counted = base.far_data
    if counted is None:
        return 0, 0.0
    served = counted.sum(axis=0) / counted.sum()
    return int(served.argmax()), float(served.max())


def limits_of_advice(report: Report) -> Limits | None:
    """Limits by all policies of `advise`, those over the budget left out."""
    results = [report.base, *(one.result for one in report.ranked if one.result is not report.base)]
    over = {label_of(one.result) for one in report.ranked if one.over}
    return limits_of(results, report.workload, over, unknown=_stripped(report.refused, report.base))


def replay_beside_mainline(
    known: ReplayCapture, policies: Policies, setup: Setup
) -> tuple[Replayed, Limits | None]:
    """`whatif.replay`, and the Limits of the run by these policies and, in addition, huge pages: what
    mainline Linux offers beside the policies that were asked for. Errors as of `replay`."""
    refused: dict[str, str] = {}
    asked, scenario = asked_or_usual(policies, known.snapshot), known.scenario(setup)
    plans = chosen(asked, scenario, setup)
    mainline = [HUGE] if scenario.snapshot.native else [HUGE, RESET]
    named = {plan.name for plan in plans}
    more = [plan_for(name) for name in mainline if name not in named] if scenario.traced else []
    results = replay_scenario(
        scenario, [*plans, *more], setup, known.provenance, refused, known.others(setup)
    )
    besides = [one for one in results if one.policy in {plan.name for plan in more}]
    unknown = _stripped(refused.keys() - named, results[0])
    unknown += _without_balancing(known, plans[0], setup, results[0])
    for plan in more:
        refused.pop(plan.name, None)
    results = [one for one in results if one not in besides]
    results = with_refusals(results, refused, len(results) - len(plans) + len(asked))
    replayed = Replayed(results, setup.machine, refused, scenario.fits_caches)
    return replayed, limits_of(results, workload(scenario), besides=besides, unknown=unknown)


def _stripped(refused: Collection[str], base: Result) -> tuple[str, ...]:
    """Limits.unknown of a larger run, by the policies that its capture does not allow."""
    return (STRIPPED,) if HUGE in refused and base.stands_for else ()


def _without_balancing(known: ReplayCapture, baseline: Plan, setup: Setup, base: Result) -> tuple[str, ...]:
    """numa_balancing 1 against 0: remote data with each, and hinting faults; () for 0 and without a trace."""
    marked = base.finding("autonuma")
    if marked is None or base.remote_data is None:
        return ()
    off = replace(setup, autonuma=None)
    [still] = replay_scenario(known.scenario(off), [baseline], off, known.provenance)
    if still.remote_data is None:
        return ()
    faults = plural(int(marked.numbers["hinting_faults"]), "hinting fault")
    return (
        f"NUMA balancing leaves {100 * base.remote_data:.0f} % of data remote, "
        f"{100 * still.remote_data:.0f} % are without it; its {faults} at least are not priced",
    )


def _without_a_trace(base: Result, within: Sequence[Result], about: Workload) -> Limits:
    """Limits by accessed bits: of page tables, and of page size at the least; never of data."""
    unknown = []
    assert base.local_tables is not None and base.cached_tables is not None
    parts = [Headroom(TABLES, base.local_tables, base.remote_tables)]
    if faster(base.cached_tables.middle):
        parts.append(Headroom(PAGES, base.cached_tables, least=True))
    elif base.walk_share is not None and base.walk_share.high < 1:
        unknown.append(
            f"huge pages give at most {1 / (1 - base.walk_share.high):.2f}x, if they spare all walks"
        )
    else:
        unknown.append("what huge pages give is not known: page walks were not counted")
    parts.sort(key=lambda part: -part.gain.middle)
    where = base.finding(DATA_NODES)
    if len(base.classes) > 1:  # else all data are local
        unknown.append(f"{where.text}, so what remote data cost is not known" if where else NO_DATA)
    kind = parts[0].kind if parts[0].noticed else NOTHING
    sentence, tables = parts[0].known, next(part for part in parts if part.kind == TABLES)
    if kind != NOTHING:
        text = f"{'page size, not placement' if kind == PAGES else 'your page tables'}: {sentence}"
        sentence = text if faster(parts[0].gain.low) else f"perhaps {text}"
    elif tables.gain.high < POSSIBLE:
        held = base.finding(CACHED)
        lines = size_in_words(int(1024 * held.numbers["KiB"])) if held else ""
        why = f": its leaf entries, {lines} of page-table lines, fit the caches" if held else ""
        sentence = f"nothing to gain from placing page tables{why}"
    else:
        sentence = f"probably nothing to gain from placing page tables: {tables.known}"
    typed, why = "", ""
    if kind == PAGES:
        typed, why, _ = availability(HUGE)
    elif kind == TABLES and about.threads == 1:
        typed, why = relocation(), "rebuilds its tables near its one busy CPU"
    elif kind == TABLES and about.may_fit_one_node:
        typed = about.on_its_node
        why = f"its {about.threads} busy CPUs fit a node; what memory does not is remote"
    research, cached = _research(base, within, kind), kind == NOTHING and base.finding(CACHED) is not None
    return Limits(kind, parts, _sentence(sentence), typed, why, research, tuple(unknown), cached)


NO_DATA = "on which nodes its data are was not captured, so what remote data cost is not known"


def _verdict(kind: str, parts: Sequence[Headroom], base: Result, huge: Result | None, shown: bool) -> str:
    """shown: whether what is to be careful about with huge pages is told elsewhere."""
    first, over = parts[0], label_of(base)
    if kind == NOTHING:
        sizes = any(part.kind == PAGES for part in parts)
        gain = "nothing to gain" if sizes else "nothing to gain from placement"
        if max(part.gain.high for part in parts) < POSSIBLE:
            limits = (
                "neither page tables, nor data, nor page size" if sizes else "neither page tables nor data"
            )
            return _sentence(f"{gain}: {limits} limit this run")
        most = max(parts, key=lambda part: part.gain.high).gain
        gains = f"{most.middle:.2f}x, at most {most.high:.2f}x"
        return f"Probably {gain}: {gains}; perf counters can tell (calibrate)."
    if kind == PAGES and huge is not None:
        more = peak_bytes(huge) - peak_bytes(base)
        memory = f", for {size_in_words(more)} more memory" if more > 0 else ""
        careful = "" if shown else "".join(f"; {one.short}" for one in huge.careful[:1] if one.short)
        text = (
            f"page size, not placement: huge pages give {interval(first.gain)} over {over}{memory}{careful}"
        )
    else:
        whose = "your data, not your page tables" if kind == DATA else "your page tables, not your data"
        text = f"{whose}: {first.known}"
    return _sentence(text if faster(first.gain.low) else f"perhaps {text}")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _today(kind: str, base: Result, within: Sequence[Result], about: Workload) -> tuple[str, str]:
    """(what to type, why); "" nothing."""
    if kind == NOTHING:
        return "", ""
    huge = next((one for one in within if one.policy == HUGE and effect(one, base) > 0), None)
    typed, when, _ = availability(HUGE) if huge else Availability()
    if about.vm is not None:
        return _today_of_a_vm(kind, typed, base, within, about)
    if kind == PAGES:
        return typed, when
    if about.fits:
        return about.on_its_node, f"its {about.threads} threads fit a node; what memory does not is remote"
    if about.thin and kind == DATA:
        return f"migratepages PID all {about.walker}", "its data follow its threads"
    if about.thin:
        return relocation(), "rebuilds its tables near its threads"
    if kind == DATA and (spread := _spread_data(base, about, "./app"))[0]:
        return spread
    return typed, when


def _spread_data(base: Result, about: Workload, start: str) -> tuple[str, str]:
    """(what to type for data that several nodes read, why); "" where they are interleaved already."""
    if about.shared <= PRIVATE:
        return NUMA_BALANCING, "moves pages to their users"
    if _busiest(base)[1] <= EVEN / len(base.classes):
        return "", ""
    return f"numactl --interleave=all {start}", "several nodes share the data: it spreads their load"


def _today_of_a_vm(
    kind: str, huge: str, base: Result, within: Sequence[Result], about: Workload
) -> tuple[str, str]:
    """The same of a VM. A guest that is shown the nodes places its own tables and data; without, they are the
    host's to place. Nested tables always are."""
    node, guest = about.walker, IN_GUEST if about.vm else ""
    if kind == PAGES and about.host_small > HOST_IS_HUGE:
        return (
            f"{IN_GUEST}{huge}; {HOST_HUGE}",
            "then start the VM again: QEMU asks for huge pages at its start",
        )
    huge_in_guest = (f"{IN_GUEST}{huge}", availability(HUGE).when) if huge else ("", "")
    if kind == PAGES:
        return huge_in_guest
    outside = f"migratepages VMM_PID all {node}", "the guest's memory, its tables with it, follows its vCPUs"
    if kind == DATA and about.thin:
        return (f"{guest}migratepages PID all {node}", "its data follow its threads") if about.vm else outside
    if kind == DATA:
        spread, why = _spread_data(base, about, "./app" if about.vm else "qemu-system-x86_64 ...")
        return (f"{guest}{spread}", why) if spread else huge_in_guest
    own = (f"{guest}{relocation()}", "rebuilds the guest's tables near its threads") if about.vm else outside
    reset = next((one for one in within if one.policy == RESET and effect(one, base) > 0), None)
    if reset is not None and reset.speedup is not None:
        why = f"{interval(reset.speedup)}: KVM rebuilds its tables where the vCPUs run"
        rest = f"; the guest's own tables: {own[0]}" if about.thin else ""
        return availability(RESET, reset.params, reset.host_nodes).line, f"{why}{rest}"
    if about.thin:
        return own
    return huge_in_guest


def _research(base: Result, within: Sequence[Result], kind: str) -> str:
    asked = [one for one in within if availability(one.policy) == RESEARCH]
    best = next((one for one in asked if effect(one, base) > 0 and one.speedup), None)
    if best is None or best.speedup is None:
        return "No research kernel would add anything." if asked else ""
    if kind == NOTHING:
        return ""
    written = interval(best.speedup)
    alike = [one for one in asked if one.speedup and interval(one.speedup) == written]
    names = list(dict.fromkeys([label_of(best), *(one.policy for one in alike if "+" not in one.policy)]))
    *first, last = names
    each = f"{', '.join(first)} or {last}, each {written}" if first else f"{last}, {written}"
    return f"A research kernel instead: {each}."
