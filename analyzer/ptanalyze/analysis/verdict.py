"""What results mean: the answer to what was asked, what limits the run otherwise, at most one line to type.

A Verdict is codes and numbers; core/messages.toml has their words. Every part of what limits a run is a
speed-up over the same baseline: of local tables and of local data a bound (cost.price), of huge pages their
replay. Without a trace the first is in closed form (analysis.footprint), huge pages give at least what their
reads of leaf entries took, and remote data have no number. ADR 32.

A Workload is how the program runs. vMitosis (Panwar et al., sections 2 and 3.4): a Thin one fits one socket,
its page tables should follow it (migration); a Wide one spans several, each needs a copy (replication).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import asdict

from ..core.columns import (
    AS_STARTED,
    CACHED,
    CAREFUL,
    DATA_NODES,
    EACH_ONCE,
    ELSEWHERE,
    FILLS,
    GONE,
    MADVISE,
    MEASURED,
    NO_RATE,
    UNREAD,
    UNSEEN,
    UNWRITTEN,
    UNWRITTEN_BYTES,
    Finding,
    Message,
    joined,
    message,
)
from ..core.errors import UNKNOWN_NODE, as_root, program_of
from ..core.interval import NOTICED, Interval, differs, faster, gains, interval, slower
from ..core.snapshot import Snapshot, Tree, blocks, leaf
from ..core.trace import Trace, chunk_runs, give_back, threads_placed
from ..cost.law import PageTrial
from ..cost.result import Result
from ..policies import BOUND, RESEARCH, availability
from ..world.address_space import leaf_entries
from ..world.mm_events import DISABLED, FORBIDDEN, PRCTL, allowed, linux
from ..world.scaling import mapped_bytes
from ..world.scenario import Scenario
from ..world.thread_placement import RECORDED
from ..world.trees import one_anonymous_vma
from .ranking import NOT_ASKED, Gained, best_first, effect, label_of, reshapes, standing, walk_percent
from .setup import RESHAPED

THIN_SHARE = 0.9  # smallest share of walks from one node for a workload to count as Thin
PAGE_BYTES, HUGE_BYTES = 4096, 2 << 20


@dataclass(frozen=True)
class Workload:
    """
    walks          int64[nodes]  walks by the node they came from
    tables         int64[nodes + 1]  leaf tables by the number of nodes that walked through them; [0] unused
    memory_bytes   mapped by the run that is asked for
    node_bytes     memory of the largest node of the captured machine; 0 where it has only one, or unknown
    assumed        where threads are taken to run, "" where that was recorded
    threads        that one node of the machine has CPUs for; 0 where it has not, where numactl cannot bind
                   all page tables, where no node is known to hold the memory of a larger run, and of several
                   processes; without a trace, busy CPUs
    node           the first node with CPUs
    vm             of a VM's guest: whether it is shown the nodes; None: no VM
    host_small     of what the host maps, the share by 4 KiB pages, counted in 2 MiB
    on_host        Machine.on_host
    allocator      of most of its memory, as `allocator`
    huge_pages     what the process may have, as mm_events.allowed
    already        of a dump, as already_huge
    at_once        nodes that the walks come from at a time, as _at_once
    cpu_nodes      nodes with CPUs, where others have none
    tlb_entries    of the last-level TLBs of the CPUs in the trace, 0 without one, or of samples
    process        what -p takes for the captured process, the name of its program; PID where none is known
    started        whether it was recorded from its start, as who recorded it; else it runs as a service does
    command        what starts it, ./app where that is not known, or of more than TYPED characters
    collapses      whether its kernel lets another process make its pages huge
    """

    walks: np.ndarray
    tables: np.ndarray
    memory_bytes: int = 0
    node_bytes: int = 0
    assumed: str = ""
    threads: int = 0
    node: int = 0
    vm: bool | None = None
    host_small: float = 0.0
    on_host: Callable[[int], tuple[int, ...]] = lambda node: (node,)
    allocator: str = ""
    huge_pages: str | None = None
    already: Message | None = None
    at_once: float = 0.0
    cpu_nodes: Sequence[int] = ()
    tlb_entries: int = 0
    process: str = "PID"
    started: bool = True
    command: str = "./app"
    collapses: bool = True

    @property
    def number(self) -> str:
        """The process as a shell finds its PID."""
        return "PID" if self.process == "PID" or "'" in self.process else f"$(pgrep -x {self.process:.15})"

    @property
    def thin(self) -> bool | None:
        """Whether nearly all walks come from one node; None without walks, where there are several."""
        total = int(self.walks.sum())
        return bool(self.walks.max() >= THIN_SHARE * total) if total or len(self.walks) == 1 else None

    @property
    def name(self) -> str:
        return {True: "Thin", False: "Wide", None: "unknown"}[self.thin]

    @property
    def shared(self) -> float:
        """Share of touched leaf tables that more than one node walks through."""
        return float(self.tables[2:].sum() / max(int(self.tables.sum()), 1))

    def evidence(self) -> list[str]:
        """Lines for people."""
        walks = {f"node {node}": count / self.walks.sum() for node, count in enumerate(self.walks) if count}
        if not walks:
            return [] if self.thin else [str(message("workload", "no-trace"))]
        nodes = ", ".join(f"{node} {100 * share:.1f} %" for node, share in walks.items())
        lines = [message("workload", "assumed", where=self.assumed)] if self.assumed else []
        lines.append(message("workload", "from", nodes=nodes))
        lines.append(message("workload", "shared", share=self.shared, tables=int(self.tables.sum())))
        sizes = {"memory": self.memory_bytes, "node": self.node_bytes}
        lines.append(message("workload", "memory-of-node" if self.node_bytes else "memory", **sizes))
        return [*map(str, lines)]

    @property
    def fits(self) -> bool:
        """Whether a Wide program would fit one node."""
        return self.thin is False and self.may_fit_one_node

    @property
    def may_fit_one_node(self) -> bool:
        """Whether its threads fit one node, and its memory as far as is known."""
        return self.threads > 0 and not 0 < self.node_bytes < self.memory_bytes


def workload(scenario: Scenario, others: Sequence[Scenario] = ()) -> Workload:
    """Workload of a captured Scenario; without a trace, only its memory.

    others  Scenarios of processes captured with it: threads that all of them have are not known
    """
    snapshot, machine = scenario.snapshot, scenario.machine
    tables = np.zeros(scenario.nodes + 1, np.int64)
    if traced := scenario.traced:
        node = scenario.placement.cpu_node[scenario.placement.chunk_cpu[scenario.steady_from :]]
        tables += np.bincount(_walked_by(scenario, node).sum(axis=0), minlength=len(tables))
        tables[0] = 0
    mapped = scenario.extent[0]
    memory = round(scenario.times_captured * mapped)
    nodes = [node for node in snapshot.topology.nodes if node.id != UNKNOWN_NODE]
    frames = [int(np.diff(node.frames, axis=1).sum()) for node in nodes] if len(nodes) > 1 else [0]
    room = max(frames) * PAGE_BYTES * snapshot.scale  # a smaller run had smaller nodes
    how, threads, whole = scenario.placement.how, threads_of(scenario), traced > scenario.trace.sampled_walks
    unheld = scenario.growth.factor > 1 and not memory <= room  # nor where a node's size is not known
    small = 0 if snapshot.native else int(np.count_nonzero(snapshot.nested.level == 1))
    command = str(scenario.trace.facts.get("command", ""))
    could = snapshot.native and threads <= machine.cpus_per_node and not unheld and not others
    return Workload(
        scenario.walks_by_node,
        tables,
        memory_bytes=memory,
        node_bytes=room,
        assumed="" if threads < 2 or not how or how.startswith(RECORDED) else threads_placed(how),
        threads=threads if could else 0,
        node=machine.cpu_nodes[0],
        vm=None if snapshot.native else not snapshot.numa_oblivious,
        host_small=small and small / (small + huge_bytes(snapshot.nested) // HUGE_BYTES),
        on_host=machine.on_host,
        allocator=allocator(snapshot),
        huge_pages=allowed(snapshot, scenario.trace),
        already=None if traced else already_huge(snapshot, mapped),
        at_once=_at_once(scenario, node) if traced else 0.0,
        cpu_nodes=machine.cpu_nodes if machine.memory_nodes else (),
        tlb_entries=machine.tlb.l2.entries * len(np.unique(scenario.placement.chunk_cpu)) * whole,
        process=process_of(snapshot.facts, command),
        started=whole and "another_user" not in snapshot.facts,
        command=start_of(scenario.trace) if whole else "./app",
        collapses=linux("", snapshot.facts.get("kernel")) >= (6, 1),  # process_madvise(MADV_COLLAPSE)
    )


def start_of(trace: Trace | None) -> str:
    """Workload.command of what was recorded from its start."""
    command = str(trace.facts.get("command", "")) if trace else ""
    return command if 0 < len(command) <= TYPED else "./app"


# one's name says nothing of which program it runs
INTERPRETER = re.compile(r"(python|pypy|perl|ruby|node|php|java|lua|bash|dash|sh)[\d.]*")


def process_of(facts: Mapping[str, Any], command: str) -> str:
    """Workload.process by the facts of a snapshot, which are the tracer's where a command was traced."""
    name = program_of(command) or str(facts.get("comm", ""))
    return "PID" if not name or INTERPRETER.fullmatch(name) or "synth" in facts else shlex.quote(name)


def threads_of(scenario: Scenario) -> int:
    """Number of threads; without a trace, of busy CPUs."""
    heat = scenario.snapshot.heat
    if not scenario.traced and heat is not None and heat.footprint is not None:
        return max(heat.footprint.busy, 1)
    return len(np.unique(scenario.trace.chunks["thread"]))


def huge_bytes(tree: Tree) -> int:
    """Bytes that entries above the leaf tables map."""
    every = blocks(tree, (2, 3))
    return sum(int(leaf(raw, level, tree.encoding).sum()) << (3 + 9 * level) for level, _, raw in every)


def already_huge(snapshot: Snapshot, memory: int) -> Message | None:
    """What most of `memory` (bytes) in huge pages leaves: private blocks that a trial would make huge."""
    if (huge := huge_bytes(tree := snapshot.guest)) <= PageTrial.LEAST_HUGE * memory:
        return None
    filled, private = leaf_entries(tree), (tree.level == 1) & one_anonymous_vma(snapshot, tree.base)
    more = PAGE_BYTES * int(filled[private & (filled >= PageTrial.FILLED * HUGE_BYTES // PAGE_BYTES)].sum())
    few = more <= (1 - PageTrial.MOSTLY_HUGE) * memory
    return message("unknown", "already", huge=huge, memory=memory, more=more) if few else None


def _at_once(scenario: Scenario, node_of_chunk: np.ndarray) -> float:
    """Nodes that walk at a time, as `evenly`: in each of SPANS parts a thread is where it walks most."""
    begin = scenario.steady_from
    offset, thread = scenario.stream.offset[begin:], scenario.trace.chunks["thread"][begin:]
    offset = offset - offset[0]
    span = np.minimum(offset[:-1] * SPANS // max(int(offset[-1]), 1), SPANS - 1)
    walks = np.zeros((SPANS, int(thread.max(initial=0)) + 1, scenario.nodes))
    np.add.at(walks, (span, thread, node_of_chunk), np.diff(offset))
    by_node = np.eye(scenario.nodes)[walks.argmax(axis=2)] * walks.sum(axis=2, keepdims=True)
    return float(evenly(by_node.sum(axis=1)) @ walks.sum(axis=(1, 2)) / max(walks.sum(), 1))


def evenly(counts: np.ndarray) -> np.ndarray:
    """How many they are, evenly weighted: 1 / sum of squared shares (inverse Simpson) along the last axis."""
    each = counts.astype(float)
    return each.sum(axis=-1) ** 2 / np.maximum((each**2).sum(axis=-1), 1)


def _walked_by(scenario: Scenario, node_of_chunk: np.ndarray) -> np.ndarray:
    """bool[nodes, touched leaf tables]: whether a node walks through a table, from --from on."""
    rows, stream = scenario.history.rows, scenario.stream
    offset = stream.offset[scenario.steady_from :]
    regions = len(rows.of_region)
    seen, touched = np.zeros((scenario.nodes, len(rows.leaf)), bool), np.zeros(scenario.nodes * regions, bool)
    for first, last in chunk_runs(offset):
        page = stream.page[offset[first] : offset[last]]
        walks = np.diff(offset[first : last + 1])
        of_node = np.repeat(node_of_chunk[first:last] * np.int64(regions), walks)
        touched[of_node + (page >> np.uint32(9))] = True
        give_back(page)
    node, region = np.divmod(np.flatnonzero(touched), max(regions, 1))
    seen[node, rows.of_region[region]] = True
    return seen


# Who allocates: a line about huge pages does something only for the allocator that it names.

LIBRARIES = {"libjvm.so": "java", "libjemalloc": "jemalloc", "libtcmalloc": "tcmalloc"}
ARENA = 64 << 20  # bytes, at whose multiples glibc maps what threads allocate from (HEAP_MAX_SIZE)
# what turns huge pages off unless told otherwise; on Debian /usr/bin/redis-server leads to the second
REDIS = ("/redis-server", "/redis-check-rdb", "/valkey-server", "/valkey-check-rdb")


def allocator(snapshot: Snapshot) -> str:
    """Who allocates most of a program's memory, by its mappings: "java", "jemalloc", "tcmalloc", "redis"
    (jemalloc, huge pages off), "glibc" (its heap), "arenas" (of its threads, which grow by too little to be
    huge), "malloc" (mmap, as for large pieces), "anonymous" (without glibc), "file" (or shared), "" none."""
    vmas, names = snapshot.vmas, [name.removesuffix(" (deleted)") for name in snapshot.vma_names]
    mapped = mapped_bytes(snapshot)[:-1]
    if not mapped.any():
        return ""
    unnamed = np.array([not name or name.startswith(("[heap]", "[anon")) for name in names])
    anonymous = ~vmas["shared"] & unnamed
    if 2 * mapped[anonymous].sum() < mapped.sum():
        return "file"
    files = [name for name, own in zip(names, ~vmas["emulator"], strict=True) if own and "/" in name]
    for library, code in LIBRARIES.items():
        if any(library in name for name in files):
            return "redis" if code == "jemalloc" and any(name.endswith(REDIS) for name in files) else code
    arena = (vmas["start"] % np.uint64(ARENA) == 0) & (vmas["end"] - vmas["start"] <= ARENA)
    heaps = [anonymous & arena, anonymous & np.array([name == "[heap]" for name in names]), anonymous]
    threads, heap, most = (mapped[some].sum() for some in heaps)
    code = "malloc" if 2 * (threads + heap) < most else "arenas" if threads > heap else "glibc"
    return code if any(name.endswith("/libc.so.6") for name in files) else "anonymous"


TABLES, DATA, PAGES, CALLS = "tables", "data", "pages", "calls"  # of what limits a run
SERVER, PERHAPS, NOTHING, UNKNOWN, SINGLE, FEW = "server", "perhaps", "nothing", "unknown", "single", "few"
PLACED = (TABLES, DATA, PAGES)
# of a policy that was asked for
GAIN, UNSURE, NONE, LOSS, UNTIMED, UNPRICED = "gain", "unsure", "none", "loss", "untimed", "unpriced"
HUGE, RESET, INTERLEAVE, SPLIT = "thp", "ept-reset", "interleave", "split"
SETTLED = {"forbidden", "already", UNWRITTEN}  # codes of notes: no trial of page sizes tells more
HUGE_UNKNOWN = {*SETTLED, SPLIT, "huge-pages", "gone", "beyond", "walks-uncounted", "walks-spared"}
POSSIBLE = 1.05  # at the most, below which it is not worth a measurement either
HOST_IS_HUGE = 0.1  # share of 4 KiB mappings, by 2 MiB of the guest, below which the host maps huge pages
FORBIDDEN_MUCH = 0.1  # share of what could be huge that the program forbids to be, from which on it is said
PRIVATE = 0.1  # share of leaf tables that several nodes walk through, below which data are private
CROWDED = 0.6  # share of data that one node serves, from which on its bandwidth limits several readers
SEVERAL, SPANS = 1.5, 4  # nodes of equal shares that read at a time: in a part of so many of the trace
EVEN = 1.25  # times its equal share, up to which a node serves no more than interleaved data would have it
CAUTIONS, TYPED = 2, 60  # on a first screen
WITH_DATA = {"bind", "interleave", "migrate", "migrate-vm"}  # actions that place data, too
KNOBS = {  # allocators with a line about huge pages, and what must be allowed for it to do something
    **dict.fromkeys(("arenas", "glibc", "jemalloc", "redis", "java"), ("madvise",)),
    **dict.fromkeys(("malloc", "anonymous"), ("madvise", "never", None)),
}


class Answer(NamedTuple):
    """Effect of a policy that was asked for. kind: GAIN, UNSURE, NONE, LOSS, UNTIMED, UNPRICED or BOUND."""

    result: Result
    kind: str
    message: Message


class Part(NamedTuple):
    """What is gained without a limit. remote: share of DRAM reads that are remote, None: not known; bytes: of
    memory that it takes; least: whether the gain may be larger than all of its interval; measured: what it
    was in a trial of this program on this machine, found: over pages as found, where that is another one."""

    kind: str
    gain: Interval
    remote: float | None = None
    bytes: int = 0
    least: bool = False
    measured: Interval | None = None
    found: Interval | None = None

    @property
    def noticed(self) -> bool:
        return self.gain.middle >= NOTICED

    @property
    def message(self) -> Message:
        how = "local" if self.remote == 0 else "" if any(map(faster, self.gain)) else "none"
        if self.measured:
            how = ("tried" if self.found else "measured") if self.gain == self.measured else "elsewhere"
        how = how or ("least" if self.least else "for" if self.bytes > 0 else "gain")
        return message("part", f"{self.kind}-{how}", **self._asdict())


class Verdict(NamedTuple):
    """
    answers   to what was asked, the best first
    parts     what limits the run, the largest first; limit: which it is, None: not known
    notes     of which parts no gain is known, and what is
    action    what to type on mainline Linux, each of whose conditions is known to hold; None: nothing
    research  what research kernels give; None: none was asked for
    cautions  what must be known beside it, the gravest first
    """

    base: Result
    answers: Sequence[Answer]
    parts: Sequence[Part]
    limit: Message | None
    notes: Sequence[Message]
    action: Message | None
    research: Message | None
    cautions: Sequence[Finding]

    @property
    def kind(self) -> str:
        """PAGES, TABLES, DATA, CALLS, SERVER, PERHAPS, NOTHING, UNKNOWN, FEW or SINGLE; "" no run times."""
        return self.limit.code.partition("-")[0] if self.limit else ""

    @property
    def of_page_size(self) -> bool:
        """Whether page size limits the run, or a trial may tell: not of memory kept small by the program."""
        codes = {note.code for note in self.notes}
        unknown = one_node(self.base) or not HUGE_UNKNOWN.isdisjoint(codes)
        return self.kind == PAGES or (unknown and SETTLED.isdisjoint(codes))

    @property
    def answer(self) -> str:
        """The best of what was asked for, in a sentence; on one node first that nothing can be remote."""
        if self.kind == FEW:
            return str(self.limit)
        first = next(iter(self.answers), None)
        if one_node(self.base):
            differs = [first.message] if first and first.kind != NONE else []
            return joined([message("asked", "one-node"), *differs], " ")
        return str(first.message if first else message("asked", "alone", base=label_of(self.base)))

    @property
    def limits(self) -> list[str]:
        """What limits the run, what is remote in the baseline, and what is not known, in sentences."""
        remote = {part.kind: part.remote for part in self.parts if part.remote is not None}
        code = "basis" if self.base.sums["dram"] else "basis-cached"
        basis = [message("limit", code, base=label_of(self.base), **remote)] if len(remote) == 2 else []
        notes = [message("limit", "notes", notes=joined(self.notes, "; "))] if self.notes else []
        lines = (self.kind != FEW and self.limit, *(basis if self.kind in PLACED else []), *notes)
        return [text for line in lines if line and (text := str(line))]

    @property
    def today(self) -> list[str]:
        """The line to type and on what it rests; [] nothing."""
        return [] if self.action is None else [str(self.action), str(self.action._replace(section="because"))]

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "limit": self.kind,
            "sentence": " ".join(self.limits) or str(self.limit or ""),
            "action": self.action and self.action.code,
            "today": " ".join(self.today[:1]),
            "research": str(self.research or ""),
            "without": {part.kind: asdict(part.gain) | {"remote": part.remote} for part in self.parts},
            "unknown": [note.code for note in self.notes],
        }


def verdict(
    results: Sequence[Result],
    about: Workload | None,
    besides: Sequence[Result] = (),
    over: Collection[str] = (),
    notes: Sequence[Message] = (),
    gained: Gained = NOT_ASKED,
) -> Verdict:
    """The Verdict by the Results of the baseline, the first, and of the policies that were asked for.

    about    None: the answers alone
    besides  further Results over the same baseline: they only tell what limits the run
    over     labels of policies beyond the budget: neither an answer nor an action
    notes    Verdict.notes
    gained   what policies are ranked by, where that is not their speed-up alone
    """
    base, few, accesses = results[0], None, int(results[0].hits.sum())
    if about is not None and accesses < about.tlb_entries:  # repeated, these never walk, whatever it does
        few = message("limit", FEW, accesses=accesses, entries=about.tlb_entries)
    asked = [result for result in results[1:] if not few and label_of(result) not in over]
    within = [result for result in (*asked, *besides) if result.policy != BOUND]
    within.sort(key=lambda result: standing(result, base, gained.get(label_of(result))))
    answers = [answer(result, base, results) for result in best_first([base, *asked], gained)]
    best = answers[0].result if answers and effect(answers[0].result, base) > 0 else base
    beware = cautions(base, best, asked)
    if about is None or few:
        return Verdict(base, answers, [], few, [], None, None, beware)
    judged = (*within, *results[1:])  # a budget changes what is to be done, not what limits the run
    huge = next((one for one in judged if one.policy == HUGE and (one.speedup or base.speedup)), None)
    barred = _kept_small(huge, about)
    if (gone := base.finding(GONE)) and gone.weight == CAREFUL:  # many walks go there
        barred.append(message("unknown", "gone", **gone.numbers))
    if huge and UNWRITTEN_BYTES in huge.facts and not huge.speedup:
        barred.append(message("unknown", UNWRITTEN))
    told = None if barred and huge and _kind(huge, base) != GAIN else huge
    parts, notes = parts_of(base, told), [*_unmeasured(base, about), *barred, *notes]
    answered, codes = bool(answers) and answers[0].result.policy == HUGE, {note.code for note in notes}
    limit = limit_of(base, parts, about, answered, codes)
    away = _spread_data(base, within, about) if limit and limit.code == SERVER else None
    fleeting = PAGES if SPLIT in codes or (huge and label_of(huge) in over) else None
    lasts = [p for p in parts if p.kind != fleeting and not (p.least and UNTOLD in codes)]
    action = away or _action(base, lasts, within, about)
    research = _research(base, within, [result for result in results[1:] if label_of(result) in over], gained)
    return Verdict(base, answers, parts, limit, notes, action, research, beware)


def one_node(base: Result) -> bool:
    """Whether the machine has a single node, on which all placements are alike."""
    return len(base.classes) == 1


def answer(result: Result, base: Result, results: Sequence[Result] = ()) -> Answer:
    speedup, more = result.speedup, result.peak_bytes - base.peak_bytes
    held = result.held_bytes - base.held_bytes
    size = "held" if more > held > 0 else "more" if more > 0 else "less" if more < 0 else "same"
    after = result.break_even_seconds
    numbers = {
        "policy": label_of(result, results),
        "base": label_of(base, results),
        "gain": speedup,
        "memory": message("memory", size, size=abs(more), held=held),
        "payback": message("payback", "later" if after and after.high else "none", after=after),
        "fewer": (100 - walk_percent(result, base)) / 100,
    }
    kind = code = _kind(result, base)
    if kind == NONE:
        code = NONE if speedup and any(map(differs, speedup)) else "equal"
    if kind == GAIN and result.tried:
        code, numbers["figure"] = "measured", result.tried.numbers["figure"]
    return Answer(result, kind, message("asked", code, **numbers))


def _kind(result: Result, base: Result) -> str:
    speedup = result.speedup
    if speedup is None:
        return UNPRICED if base.speedup else UNTIMED if effect(result, base) > 0 else NONE
    if effect(result, base) <= 0:
        return LOSS if slower(speedup.high) else NONE
    if result.policy == BOUND:
        return BOUND
    return GAIN if gains(speedup) else UNSURE


def parts_of(base: Result, huge: Result | None) -> list[Part]:
    """[Part], the largest first; without run times, or data that a trace tells of, what a trial measured."""
    tried = base.finding(MEASURED) or (huge.finding(MEASURED) if huge else None)
    gain, found = (tried.numbers.get(of) if tried else None for of in ("gain", "found"))
    measured = [Part(PAGES, gain, measured=gain, found=None if found == gain else found)] if gain else []
    if base.local_tables is None or (base.local_data is None and base.cached_tables is None):
        return measured
    parts = [Part(TABLES, base.local_tables, base.remote_tables)] if len(base.classes) > 1 else []
    if base.local_data is not None and parts:
        parts.append(Part(DATA, base.local_data, base.remote_data))
    if huge is not None and huge.speedup is not None:
        parts.append(Part(PAGES, huge.speedup, bytes=huge.peak_bytes - base.peak_bytes, measured=gain))
    elif measured:
        parts += measured
    elif base.cached_tables is not None and faster(base.cached_tables.middle):
        parts.append(Part(PAGES, base.cached_tables, least=True))
    return sorted(parts, key=lambda part: -part.gain.middle)


def _unmeasured(base: Result, about: Workload) -> list[Message]:
    """Parts that accessed bits tell nothing of."""
    more = base.cached_tables.middle if base.cached_tables else 1.0
    notes = [about.already] if about.already and more < NOTICED else []
    if base.local_tables is None or base.cached_tables is None or base.local_data is not None:
        return notes
    open_ = not notes and base.finding(MEASURED) is None
    if open_ and not faster(more):
        share = base.walk_share.high if base.walk_share else 1.0
        code, most = ("walks-spared", 1 / (1 - share)) if share < 1 else ("walks-uncounted", 0.0)
        way = message("way", "shared" if about.allocator == "file" else "running")
        notes.append(message("unknown", code, most=most, way=way))
    elif open_ and more < NOTICED:
        notes.append(message("unknown", "beyond", gain=base.cached_tables))
    if len(base.classes) > 1:  # else all data are local
        where = base.finding(DATA_NODES)
        notes.append(message("unknown", "data-by-walks" if where else "data", text=where and where.text))
    return notes


def _kept_small(huge: Result | None, about: Workload) -> list[Message]:
    """Memory that the program's own calls keep small, of which the gain of huge pages tells nothing."""
    count = {} if huge is None else huge.facts
    call = PRCTL if about.huge_pages == DISABLED else FORBIDDEN
    barred, split, made = (count.get(f"regions_{of}", 0) for of in ("forbidden", "split", "promoted"))
    kept = (("forbidden", barred, FORBIDDEN_MUCH * (barred + made)), (SPLIT, split, made / 2))
    return [
        message("unknown", of, size=n * HUGE_BYTES, call=call) for of, n, much in kept if n >= (much or 1)
    ]


def limit_of(
    base: Result, parts: Sequence[Part], about: Workload, answered: bool, unknown: Collection[str]
) -> Message | None:
    """What limits the run. answered: whether huge pages are the answer already; unknown: codes of notes (with
    UNTOLD the rest is no verdict)."""
    node, served, _ = _busiest(base)
    if served >= CROWDED and about.at_once >= SEVERAL and not about.fits:
        return message("limit", SERVER, node=about.on_host(node)[0], share=served)
    if one_node(base) and not any(part.noticed for part in parts):
        open_ = "-open" if not parts or not HUGE_UNKNOWN.isdisjoint(unknown) else ""
        return message("limit", f"{SINGLE}{open_}") if parts or base.local_tables else None
    held = base.finding(CACHED)
    if held and not any(part.noticed for part in parts):
        return message("limit", "nothing-cached", size=held.numbers["size"])
    if not parts or not (parts[0].noticed or base.local_tables):  # of page size alone: else nothing is told
        return None
    first, most = parts[0], max((part.gain.high for part in parts if not part.least), default=1.0)
    answered = answered and len(parts) > 1  # on one node nothing else can be named beside the answer
    words = joined(part.message for part in parts if not (answered and part.kind == PAGES))
    if UNTOLD in unknown:
        more = "-least" if any(part.least for part in parts) else ""
        return message("limit", f"{UNKNOWN}{more}", parts=words)
    if first.noticed:
        sure = faster(first.gain.low) and all(part.gain.high <= first.gain.middle for part in parts[1:])
        how = "-measured" if first.gain == first.measured else "" if sure else "-unsure"
        how = "-asked" if answered and first.kind == PAGES else how
        return message("limit", f"{first.kind}{how}", parts=words)
    if base.finding("lock"):  # a caution says for how long
        return message("limit", CALLS)
    known = {part.kind for part in parts if not part.least}
    if most >= POSSIBLE:
        return message("limit", PERHAPS if PAGES in known else f"{PERHAPS}-placed", most=most)
    whose = "" if known == set(PLACED) else "-placed" if DATA in known else "-tables"
    return message("limit", f"{NOTHING}{whose}")


def _busiest(base: Result) -> tuple[int, float, float]:
    """(the socket that serves most data, its share, over an equal one of those that read); 0 uncounted."""
    counted = base.far_data
    if counted is None:
        return 0, 0.0, 0.0
    served = counted.sum(axis=0) / counted.sum()
    return int(served.argmax()), float(served.max()), float(served.max() * evenly(counted.sum(axis=1)))


def cautions(base: Result, best: Result, others: Sequence[Result]) -> list[Finding]:
    """What to be careful about: the capture, the best policy, the baseline, the part of a run, others."""
    seen = [one for one in base.findings if one.code in (ELSEWHERE, *UNSEEN) and one.weight == CAREFUL]
    own = best.careful if best is not base else []
    asked = [one for one in (*base.findings, *best.findings) if one.code == MADVISE]
    once = base.finding(EACH_ONCE) if reshapes(best.policy) else None
    started = best.finding(AS_STARTED) if base.policy == "linux" else None
    marked = [one for result in others for one in (*doubts(result, base), result.finding(UNREAD))]
    rate, fills = base.finding(NO_RATE), base.finding(FILLS)
    told = (rate, *seen, once, started, *own, *base.careful, *asked, fills, *marked)
    return list(dict.fromkeys(filter(None, told)))


def doubts(result: Result, base: Result) -> list[Finding]:
    """What to be careful about of a policy's own, where it gains and is to be had today, or is unpriced."""
    today = availability(result.policy).line and effect(result, base) > 0
    return [one for one in result.careful if one.policy and (today or UNWRITTEN_BYTES in result.facts)]


# What to type on mainline Linux, where it changes something that is used, fits, and gains more than it costs.


def _action(base: Result, parts: Sequence[Part], within: Sequence[Result], about: Workload) -> Message | None:
    """The first that is known to gain: on the node that the program fits, by the part that gains most."""
    noticed = [part for part in parts if part.noticed]
    placed = max((part.gain.middle for part in noticed if part.kind != PAGES), default=0.0)
    huge = max((part.gain.middle for part in noticed if _huge(part, about)), default=1.0)
    alone = about.threads > 1 and about.thin is None and about.may_fit_one_node
    if (about.fits or alone) and placed >= huge:
        nodes = [*map(str, about.on_host(about.node))]
        named = {"nodes": ",".join(nodes), "node": nodes[0], "threads": about.threads}
        return message("type", "bind", start=about.command, **named)
    return next(filter(None, (_of_part(part, base, within, about) for part in noticed)), None)


def _of_part(part: Part, base: Result, within: Sequence[Result], about: Workload) -> Message | None:
    where = message("where", "guest" if about.vm else "here")
    if part.kind == PAGES:
        return _huge(part, about)
    if part.kind == DATA and not about.thin:
        return _spread_data(base, within, about) if about.shared > PRIVATE else None  # private: to be moved
    if part.kind == TABLES and about.vm is not None:
        for reset in (one for one in within if one.policy == RESET and effect(one, base) > 0):
            line = availability(RESET, reset.params, reset.host_nodes).line
            return message("type", "reset", line=line, gain=reset.speedup)
    if not about.thin and not (about.thin is None and about.threads == 1):
        return None
    walker = about.on_host(int(about.walks.argmax()))[0]
    if about.vm is False:
        return message("type", "migrate-vm", node=walker)
    if part.kind == DATA:
        named = {"where": where, "node": walker, "number": about.number}
        return None if 0 < about.node_bytes < about.memory_bytes else message("type", "migrate", **named)
    if about.allocator in ("", "file"):  # of files or shared: no table of theirs is rebuilt
        return None
    return message("type", "relocate", where=where, line=f"{as_root()} relocate {about.process} --dry-run")


def _spread_data(base: Result, within: Sequence[Result], about: Workload) -> Message | None:
    """Data that several nodes read, on all nodes; None if they are, or if interleaved tables alone lose."""
    node, _, times = _busiest(base)
    tried = [one.speedup for one in within if one.policy == INTERLEAVE and one.speedup]
    lost = any(slower(min(gain.high, gain.middle * NOTICED)) for gain in tried)
    if times <= EVEN or lost or about.at_once < SEVERAL:
        return None
    where, on_host = message("where", "guest" if about.vm else "here"), about.on_host
    start = about.command if about.vm is not False else "qemu-system-x86_64 ..."
    nodes = ",".join(str(on_host(one)[0]) for one in about.cpu_nodes) or "all"
    return message("type", INTERLEAVE, where=where, start=start, nodes=nodes, node=on_host(node)[0])


def _huge(part: Part, about: Workload) -> Message | None:
    """Huge pages by what the program allocates with; None where the line is not known to do something, or
    they add more to its memory than they take off its run time, in parts of both."""
    allows = KNOBS.get(about.allocator, ())
    worth = part.least or part.bytes <= (part.gain.middle - 1) * about.memory_bytes
    if part.kind != PAGES or not worth or about.huge_pages not in allows:
        return None
    knob = "anonymous" if about.allocator == "malloc" and about.huge_pages != "madvise" else about.allocator
    line, where = f"{as_root()} hugepages -p {about.process} --yes", "here" if about.vm is None else "guest"
    named = {"where": message("where", where), "knob": message("knob", knob), "number": about.number}
    named["start"] = about.command
    runs = knob in ("arenas", "malloc") or (about.collapses and not about.started)
    if runs and not about.collapses:
        return None
    typed = message("type", "malloc" if runs else knob, line=line, **named)
    both = about.vm is not None and about.host_small > HOST_IS_HUGE
    return message("type", "in-both", line=typed) if both else typed


def _research(
    base: Result, within: Sequence[Result], beyond: Sequence[Result], gained: Gained
) -> Message | None:
    """beyond: policies over the budget"""
    asked = [result for result in within if availability(result.policy) == RESEARCH]
    worth = [one for one in asked if one.speedup and effect(one, base, gained.get(label_of(one))) > 0]
    best = next(iter(worth), None)
    if best is None or best.speedup is None:
        dear = any(availability(one.policy) == RESEARCH and effect(one, base) > 0 for one in beyond)
        late = any(effect(one, base) > 0 for one in asked)
        limit = " within the budget" if dear else " over the horizon" if late else ""
        known = (asked or dear) and base.speedup and not one_node(base)
        return message("research", "none", within=limit) if known else None
    written = interval(best.speedup)
    alike = [one for one in worth if one.speedup and interval(one.speedup) == written]
    *first, last = dict.fromkeys([label_of(best), *(one.policy for one in alike if "+" not in one.policy)])
    each = f"{', '.join(first)} or {last}" if first else last
    return message("research", "gain", names=each, gain=best.speedup)


def unstripped(command: str) -> Message:
    return message("way", "stripped", line=f"{as_root()} record --strip off -o full -- {command}")


UNTOLD = "huge-pages"  # Verdict.notes: what they give is not known of the run that is asked for


def untold(refused: Mapping[str, str], base: Result, command: str) -> list[Message]:
    """Verdict.notes of a larger run, by policies that its capture does not allow; command: of a Workload"""
    if HUGE not in refused or not base.stands_for:
        return []
    way = message("way", "sampled") if refused[HUGE] == RESHAPED else unstripped(command)
    return [message("unknown", UNTOLD, way=way)]
