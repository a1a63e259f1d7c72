"""The input of policies: a capture on a machine, and the passes over it, made on first use."""

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ..core.columns import CAREFUL, MADVISE, Finding, noted
from ..core.errors import UNKNOWN_NODE, UsageError
from ..core.machine import LINE_BYTES, NOTHING_MOVES, Machine, Moves
from ..core.options import Options
from ..core.snapshot import ENTRIES_PER_TABLE, Node, Snapshot, Topology, Tree, leaf
from ..core.snapshot import blocks as snapshot_blocks
from ..core.trace import (
    CHUNK_DTYPE,
    EVENT_DTYPE,
    PAGE_SHIFT,
    REGION_SHIFT,
    SLOT_BITS,
    THREAD_DTYPE,
    Event,
    Placement,
    Reads,
    Trace,
    blocks,
)
from ..kernels.replay import FREE
from ..kernels.walker import Caches
from .address_space import leaf_entries, leaves_of
from .cache_pass import cache_pass, empty_caches, forget_tables
from .history import History, history, steady_history
from .mm_events import DISABLED, SHIFT, advice, allowed, asked_part, linux, parted, split, within_region
from .page_homes import (
    DataNodes,
    data_move,
    data_nodes,
    data_undone,
    host_homes,
    table_homes,
    with_data_moves,
)
from .scaling import AS_CAPTURED, StandsFor, growth, mapped_bytes, scaled_by, scaled_machine, scaled_moves
from .thread_placement import ACTIVE, place
from .traced_program import Effort, TracedProgram
from .trees import promote_guest, within

ENTRIES_PER_LINE = LINE_BYTES // 8


def mapped_lines(tree: Tree, of: np.ndarray | None = None) -> int:
    """Lines with a leaf entry; `of`: bool[T], of these tables alone."""
    lines = 0
    for level, ids, raw in snapshot_blocks(tree, (1, 2, 3)):
        there = leaf(raw if of is None else raw[of[ids]], level, tree.encoding)
        lines += int(np.count_nonzero(there.reshape(-1, ENTRIES_PER_LINE).any(axis=1)))
    return lines


@dataclass(frozen=True)
class Scenario(TracedProgram):
    """A TracedProgram, its memory manager's history, and the entries that walks read.

    facts        of reshaping, for the Result: {name: number}
    findings     for a reader of the results
    unwalked_table_pages  table pages that walks no longer go through: a guest's own under shadow paging
    data_copied  data pages of 4 KiB that the reshaping copies once, when the trace begins
    data_zeroed  the same that it zeroes
    """

    facts: dict[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    unwalked_table_pages: int = 0
    data_copied: int = 0
    data_zeroed: int = 0

    def reshaped(
        self, *, facts: dict[str, Any] | None = None, findings: Iterable[Finding] = (), **changes: Any
    ) -> Self:
        """The Scenario with other fields; facts and findings are added."""
        facts, both = {**self.facts, **(facts or {})}, (*self.findings, *findings)
        return replace(self, facts=facts, findings=both, origin=self, **changes)

    def with_findings(self, *findings: Finding) -> Self:
        """Scenario with further findings; the passes that were made are kept."""
        return self.keeping(findings=(*self.findings, *findings))

    def keeping(self, **changes: Any) -> Self:
        """Scenario with other fields, or passes made elsewhere; the passes that were made are kept."""
        again = copy(self)
        vars(again).update(changes)
        return again

    def steady_state(self) -> Self:
        """The steady part of the trace once more: walks with warm TLBs, data where they were in the end."""
        return replace(self, origin=self, after=self)

    @cached_property
    def _past(self) -> History:
        """History, data that move left out."""
        if self.after is not None:
            return steady_history(self.after._past, self.stream, self.space, self.undone, self.begin)
        return history(self.trace, self.space, self.placement, self.stream, self.linux, self.machine.invlpgb)

    @cached_property
    def _moved(self) -> tuple[History, DataNodes | None]:
        """(History with all data that move, where they are in the end or None if none moves)."""
        past = self._past
        return with_data_moves(self, past, self.data) if data_move(self, past) else (past, None)

    @cached_property
    def history(self) -> History:
        return self._moved[0]

    @property
    def data_after(self) -> DataNodes | None:
        """Where the data are in the end; None: none move."""
        return self._moved[1]

    @cached_property
    def data(self) -> DataNodes:
        """DataNodes: nodes of the data when the run begins."""
        if self.after is not None:
            return data_undone(self.after.data_after or self.after.data, self._past.undone)
        return data_nodes(self, self._past)

    @cached_property
    def entries(self) -> np.ndarray:
        """int64[T]: entries to copy of each table page: present when the trace begins, 0 where there is none.

        Leaf tables that the trace touches as the history has them; others, and the host's, as captured. Upper
        tables hold an entry for each table below.
        """
        space, past = self.space, self._past
        entries, exists = np.zeros(len(space.tables.level), np.int64), past.exists.copy()
        entries[: space.guest_tables] = leaf_entries(space.snapshot.guest)
        entries[past.rows.leaf] = np.bitwise_count(past.valid).sum(axis=1)
        if space.host_tables:
            _, host = space.sides
            entries[host], exists[host] = leaf_entries(space.snapshot.nested), True
        below = np.flatnonzero(exists & (space.tables.parent >= 0))
        np.add.at(entries, space.tables.parent[below], 1)
        entries[~exists] = 0
        return entries

    @cached_property
    def leaf_lines(self) -> int:
        """Cache lines with a leaf entry of the program: by Heat those that samples found used, else all; in a
        VM also those of all that its host maps. Finding them reads all tables."""
        guest, heat = self.snapshot.guest, self.snapshot.heat
        if heat is None:
            lines = mapped_lines(guest, self.space.program_tables[: len(guest)])
        else:
            table, slot = leaves_of(guest, heat)
            lines = len(np.unique((table * ENTRIES_PER_TABLE + slot)[table >= 0] // ENTRIES_PER_LINE))
        return lines if self.snapshot.native else lines + mapped_lines(self.snapshot.nested)

    @cached_property
    def extent(self) -> tuple[int, int]:
        """(bytes of memory, lines of their leaf entries): all mapped, or without tables what walks reach."""
        if self.leaf_lines:
            return int(mapped_bytes(self.snapshot).sum()), self.leaf_lines
        reached = np.zeros(len(self.space.regions.va) << SLOT_BITS, bool)
        for block in blocks(self.stream.page):
            reached[block] = True
        lines = reached.reshape(-1, ENTRIES_PER_LINE).any(axis=1)
        return int(np.count_nonzero(reached)) << PAGE_SHIFT, int(np.count_nonzero(lines))

    @property
    def fits_caches(self) -> bool:
        """Whether a node's LLC holds the leaf entries of a program whose walks are known, which thus say
        nothing of a larger run; not where the capture stands for one by itself."""
        heat = self.snapshot.heat
        known = self.traced or (heat is not None and heat.footprint is not None and self.space.native)
        return known and self.snapshot.scale == 1 and self.extent[1] <= self.machine.llc.lines

    @cached_property
    def first_homes(self) -> np.ndarray:
        """int16[T]: node of each guest table that exists at the start under first touch; others -1."""
        return table_homes(self, self._past)

    @cached_property
    def host_first_homes(self) -> np.ndarray:
        """int16[T]: the same of each host table that the guest's mapped memory needs at the start."""
        return host_homes(self, self._past, self.first_homes)

    @cached_property
    def unmapped_walk_share(self) -> float:
        """Share of the captured trace's walks to memory whose tables the snapshot lacks; 0 without tables."""
        if self.origin is not None:
            return self.captured.unmapped_walk_share
        walks, space = self.stream.page, self.space
        gone = space.regions.leaf >= space.guest_tables + space.host_tables
        if not len(walks) or not gone.any() or "assumed" in self.snapshot.facts:
            return 0.0
        return sum(int(gone[block >> SLOT_BITS].sum()) for block in blocks(walks)) / len(walks)

    @property
    def first_touches_unseen(self) -> list[Finding]:
        """Finding on memory that was mapped before the region of interest, first touches unrecorded."""
        recorded = (self.trace.events["kind"] == Event.FIRST_TOUCH).any()
        return [noted("first-touches-unseen")] if self._past.mapped_at_start and not recorded else []

    def caches(self) -> Caches:
        """Empty caches, for `reads`."""
        return empty_caches(self.space, self.placement, self.machine, self.stream.hits)

    def reads(self, batch: int = 1 << 19, caches: Caches | None = None) -> Iterator[tuple[slice, Reads]]:
        """Iterate (chunks, Reads): the cache pass, run each time.

        caches  what they hold from an earlier pass, which changes; None: nothing
        """
        undone = self._past.undone
        if caches and undone is not None:
            forget_tables(caches, undone.steps.number[undone.steps.kind == FREE])
        where = self.space, self.placement, self.machine, self.stream
        return cache_pass(
            *where,
            batch=batch,
            caches=caches or self.caches(),
            threads=self.effort.threads,
            fold=self.fold,
            concurrent=self.growth.factor > 1,
        )


def untouched(snapshot: Snapshot, machine: Machine, left_out: bool = False) -> Scenario:
    """The Scenario of a snapshot without touches and events; left_out: see TracedProgram."""
    none = np.zeros(0, np.int32)
    trace = Trace(
        np.zeros(0, CHUNK_DTYPE), np.zeros(0, EVENT_DTYPE), np.zeros(0, THREAD_DTYPE), np.zeros(0, np.uint64),
        lambda least: iter(()), {},
    )  # fmt: skip
    placement = Placement(none, np.arange(machine.nodes, dtype=np.int16), none, "")
    return Scenario(snapshot, trace, machine, placement, left_out=left_out)


@dataclass(frozen=True, kw_only=True)
class ScenarioOptions(Options):
    """What is asked of a capture before any policy, names and files read.

    autonuma  how data pages move, None: by the trace's events alone
    """

    machine: Machine = field()
    autonuma: Moves | None = None
    stands_for: StandsFor = AS_CAPTURED
    jobs: int = 1


def captured_scenario(
    snapshot: Snapshot, trace: Trace | None, asked: ScenarioOptions, left_out: bool = False
) -> Scenario:
    """The Scenario of a Snapshot and a Trace's region of interest, up to the end that is asked for.

    trace      None: no page is touched and no event happens; a larger run needs a Footprint then
    left_out   whether the capture has a trace, which was left out as asked

    For a larger program than the trace is of (Snapshot.scale, stands_for) caches and moves are scaled.
    """
    if asked.machine.host_nodes:
        snapshot, trace = as_numbered(snapshot, trace, asked.machine)
    if trace is None and (snapshot.heat is None or snapshot.heat.footprint is None):
        asked.stands_for.must_have_a_trace()
    larger = growth(snapshot, asked.stands_for)
    if trace is None:
        scenario = untouched(snapshot, scaled_machine(asked.machine, larger.factor), left_out)
        return replace(scenario, growth=larger).with_findings(*scaled_by(larger.factor), *larger.findings)
    trace, first = asked_part(within_region(trace), asked.begin, asked.end)
    version, scale = linux(asked.kernel, snapshot.facts.get("kernel")), snapshot.scale * larger.factor
    machine, pace = scaled_machine(asked.machine, scale), scaled_moves(asked.autonuma or NOTHING_MOVES, scale)
    placed = place(trace, machine, asked.threads_on, snapshot.topology, asked.move_threads)
    effort, said = Effort(asked.jobs, asked.progress), (*scaled_by(scale), *larger.findings)
    many = len(np.unique(placed.chunk_cpu)) > ACTIVE
    if version.broadcasts and machine.invlpgb and snapshot.native and many:
        said = *said, noted("broadcast", release=".".join(map(str, version)), cpus=ACTIVE)
    scenario = Scenario(snapshot, trace, machine, placed, effort, moves=pace, growth=larger, findings=said)
    return with_advice(replace(scenario, steady_from=first, linux=version))


def as_numbered(snapshot: Snapshot, trace: Trace | None, machine: Machine) -> tuple[Snapshot, Trace | None]:
    """The capture with the machine's numbers of nodes in place of its host's; nodes of CPUs alone become the
    node that they count with. UsageError for a node that the machine does not have.

    The only node of a capture says nothing of the machine's: it is the first, if the machine lacks it.
    """
    node_of = {number: node for node in range(machine.nodes) for number in machine.on_host(node)}
    captured = snapshot.topology.nodes
    trees = [tree for tree in (snapshot.guest, snapshot.host) if tree is not None]
    if len(captured) == 1:
        node_of.setdefault(captured[0].id, 0)
    events = trace.events.copy() if trace is not None and len(captured) > 1 else np.zeros(0, EVENT_DTYPE)
    moved = events["kind"] == Event.MOVE_PAGES
    targets = events["c"][moved].tolist()
    known = {node.id for node in captured}.union(targets, *(np.unique(tree.node).tolist() for tree in trees))
    if odd := sorted(known - {*node_of, UNKNOWN_NODE}):
        raise UsageError(
            f"captured node {odd[0]}: machine {machine.name} is of a host with nodes "
            f"{', '.join(map(str, sorted(node_of)))}: name the machine that it was captured on"
        )
    table = np.full(max(node_of) + 2, UNKNOWN_NODE, np.int16)  # its last: unknown
    table[[*node_of]] = [*node_of.values()]
    guest, *host = (replace(tree, node=table[tree.node]) for tree in trees)
    nodes = []
    for node in sorted({node_of[one.id] for one in captured}):
        same = [one for one in captured if node_of[one.id] == node]
        cpus = tuple(cpu for one in same for cpu in one.cpus)
        nodes.append(Node(node, cpus, np.concatenate([one.frames for one in same])))
    topology = Topology(tuple(nodes))
    if trace is not None and targets:
        events["c"][moved] = table[targets]
        trace = replace(trace, events=events)
    return replace(snapshot, guest=guest, host=host[0] if host else None, topology=topology), trace


def with_advice(scenario: Scenario) -> Scenario:
    """The Scenario with huge pages where the program asked for them and natively has them.

    An emulator does not pass the advice on, and its memory has none. Findings tell how much is huge here, and
    what is not though natively it is. Page tables of a program that ran natively are what it had.
    """
    trace, snapshot = scenario.trace, scenario.snapshot
    asked, may = advice(trace.events), allowed(snapshot, trace)
    if "qemu" not in str(trace.facts.get("tracer")) or not (len(asked.asked) or len(asked.collapsed)):
        return scenario
    if may == DISABLED:
        return scenario.with_findings(noted(MADVISE, line="madvise-disabled"))

    def wanted(bases: np.ndarray) -> np.ndarray:
        """bool[n]: 2 MiB from each base on have a huge page natively."""
        given = within(bases, 1 << REGION_SHIFT, asked.collapsed)
        return given if may == "never" else given | within(bases, 1 << REGION_SHIFT, asked.asked)

    space = scenario.space
    huge = promote_guest(space, 1, 0.0, 0, asked.forbidden, wanted(snapshot.guest.base), parted(trace))
    unseen = space.regions.leaf >= space.guest_tables + space.host_tables
    gone = int(np.count_nonzero(wanted(space.regions.va[unseen] << SHIFT)))
    if huge.regions:
        trace = split(trace, snapshot.guest.base[huge.tables] >> SHIFT, scenario.linux)[0]
        scenario = replace(scenario, snapshot=replace(snapshot, guest=huge.tree), trace=trace)
    findings = [noted(MADVISE, line="madvise-never")] if may == "never" else []
    if huge.regions:
        findings.append(noted(MADVISE, line="madvise" if may else "madvise-granted", MiB=2 * huge.regions))
    if small := gone + huge.without_block:  # natively they are huge
        findings.append(noted(MADVISE, CAREFUL, line="madvise-small", MiB=2 * small))
    return scenario.with_findings(*findings)
