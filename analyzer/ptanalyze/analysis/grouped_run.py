"""Runs that count by VMA: the same replay, with a loop that knows which VMA a walk or a step belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.trace import blocks
from ..core.walks import Reads
from ..kernels.replay import EVENT_KINDS, Counters, Grouped, Mapped, grouped_for
from ..kernels.steps import CALLS, FLUSH, FREE, RUN, TABLE_DATA, freed_table
from ..policies import Plan
from ..world.address_space import NO_VMA, vma_of
from ..world.history import History
from ..world.world import World
from .runs import Run, start

BATCH = 1 << 20
PROCESS = "process"  # shootdowns, and what belongs to no page that is walked


class Vmas:
    """VMAs of the snapshot that a World's walks go to, as groups; the last group is of everything else.

    names  [name] of the groups
    """

    def __init__(self, world: World) -> None:
        self.world, self.vmas = world, world.snapshot.vmas
        walked = self._walked()
        self._label = np.full(len(self.vmas) + 1, len(walked), np.int32)
        self._label[walked] = np.arange(len(walked))
        self._asked = np.zeros(0, np.uint32), np.zeros(0, np.int32)
        self.names = [*(self._name(k) for k in walked.tolist()), PROCESS]

    def __len__(self) -> int:
        return len(self.names)

    def of_reads(self, reads: Reads) -> np.ndarray:
        """int32[n]: group of each of the walks; runs ask for the same ones, one after another."""
        page = reads.page
        known, labels = self._asked
        if known is not page:
            labels = self._label[self._vma(page)]
            self._asked = page, labels
        return labels

    def of_steps(self, history: History) -> np.ndarray:
        """int32[S]: group of each step, by the first page that it changes."""
        steps, tables = history.steps, self.world.space.tables
        none, freed = np.isin(steps.kind, (FLUSH, RUN, TABLE_DATA)), steps.kind == FREE
        row = np.where(none | freed, 0, steps.row)
        table = np.where(freed, freed_table(steps, slice(None)), history.rows.leaf[row])
        shift = 12 + 9 * (tables.level[table].astype(np.uint64) - np.uint64(1))
        slot = np.where(freed, 0, steps.lo).astype(np.uint64)
        group = self._label[vma_of(tables.base[table] + (slot << shift), self.vmas)]
        return np.where(none, len(self) - 1, group).astype(np.int32)

    def _vma(self, page: np.ndarray) -> np.ndarray:
        region = self.world.space.regions.va[page >> np.uint32(9)].astype(np.uint64) << np.uint64(21)
        return vma_of(region | (page.astype(np.uint64) & np.uint64(511)) << np.uint64(12), self.vmas)

    def _walked(self) -> np.ndarray:
        """Indices of VMAs, len(vmas) for none, of the walked pages."""
        parts = [np.unique(self._vma(page)) for page in blocks(self.world.stream.page, BATCH)]
        return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)

    def _name(self, vma: int) -> str:
        if vma == len(self.vmas):
            return NO_VMA
        first, past = (int(self.vmas[end][vma]) for end in ("start", "end"))
        return f"{first:x}-{past:x} {self.world.snapshot.vma_names[vma]}".rstrip()


@dataclass
class GroupedRun(Run):
    """A Run of the guest's part alone, whose counts are by VMA.

    counts  Grouped of the run; `first_counts` of the first once the second began
    reader  int16[cpus]: node of each CPU, whatever the hooks are told
    """

    vmas: Vmas = field(kw_only=True)
    counts: Grouped = field(kw_only=True)
    reader: np.ndarray = field(kw_only=True)
    first_counts: Grouped | None = None
    step_group: tuple[History, np.ndarray] | None = None

    def loop(self, world: World) -> Any:
        return grouped_for(self.plan.guest[0].hooks)

    def arguments(
        self, world: World, reads: Reads, fault: np.ndarray, mapped: Mapped, first: int, last: bool
    ) -> tuple[Any, ...]:
        history = world.history
        if self.step_group is None or self.step_group[0] is not history:
            self.step_group = history, self.vmas.of_steps(history)
        return (
            world.placement.cpu_node, self.reader, reads, self.vmas.of_reads(reads), fault,
            world.space.tables, history.rows, history.steps, self.step_group[1], history.shootdowns, mapped,
            self.states[0], self.counts, first, self.step, last,
        )  # fmt: skip

    def begin_again(self) -> None:
        super().begin_again()
        self.first_counts = self.counts
        self.counts = empty(len(self.counts.walks), self.counts.walks.shape[1])

    def parts(self) -> tuple[Grouped, Grouped]:
        """Counts of the run as traced and of the further run, zeros without one."""
        if self.first_counts is None:
            return self.counts, empty(len(self.vmas), self.counts.walks.shape[1])
        return self.first_counts, self.counts


def of_group(counts: Grouped, group: int) -> Counters:
    """Counters of a VMA: its reads as of one level, nothing of a host."""
    events, none = counts.events[group], np.zeros(2, np.int64)
    sockets = np.zeros((len(counts.walks[group]), 4), np.int64)
    return Counters(counts.reads[group][None], sockets, events, np.zeros_like(events), none, none)


def grouped_runs(plans: Sequence[Plan], world: World, vmas: Vmas, reader: np.ndarray) -> list[GroupedRun]:
    """[GroupedRun] of plans on a World, before the first walk; reader: as GroupedRun."""
    runs = []
    for plan in plans:
        begun, counts = start(plan, world), empty(len(vmas), world.nodes)
        known = (begun.plan, begun.states, begun.counters, begun.before)
        runs.append(GroupedRun(*known, vmas=vmas, counts=counts, reader=reader.copy()))
    return runs


def empty(groups: int, nodes: int) -> Grouped:
    kinds = len(EVENT_KINDS)
    return Grouped(
        np.zeros((groups, nodes, nodes, 2), np.int64),
        np.zeros((groups, nodes), np.int64),
        np.zeros((groups, len(CALLS), kinds, nodes, nodes), np.int64),
        np.zeros((kinds, nodes, nodes), np.int64),
        np.zeros(2, np.int64),
    )
