"""Page frames that several processes of a capture map, and the leaf tables that map them.

A frame counts whatever it holds: shared memory, pages of files, what fork left shared until it is written,
and the kernel's page of zeros.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..core import snapshot as bits
from ..core.snapshot import ENTRIES_PER_TABLE, Tree, blocks

NO_GROUP = -1


@dataclass(frozen=True)
class Leaves:
    """Leaf entries of a tree: frames [start, end), the entry's table and slot; int64[n] each."""

    start: np.ndarray
    end: np.ndarray
    table: np.ndarray
    slot: np.ndarray


@dataclass(frozen=True)
class Spans:
    """Disjoint ranges of frames, sorted: [start, end), int64[n] each."""

    start: np.ndarray
    end: np.ndarray

    def within(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """int64[n]: frames of each range [start, end) that lie in these."""
        frames: np.ndarray = self._below(end) - self._below(start)
        return frames

    def _below(self, frame: np.ndarray) -> np.ndarray:
        if not len(self.start):
            return np.zeros(np.shape(frame), np.int64)
        total = np.concatenate([[0], np.cumsum(self.end - self.start)])
        at = np.searchsorted(self.start, frame, side="right") - 1
        inside = np.minimum(frame, self.end[at]) - self.start[at]
        below: np.ndarray = np.where(at < 0, 0, total[at] + inside)
        return below


@dataclass(frozen=True)
class SharedPages:
    """What the processes of a capture share. Dicts by PID; pages are of 4 KiB, each counted once per process.

    pages        mapped pages
    shared       those of them that another process maps too
    tables       int64[n]: leaf tables (level 1) that map such a page, by index in the process's tree
    mapped       int64[n]: pages that each of these tables maps
    with_others  int64[n]: those of them that another process maps too
    group        int64[n]: tables with the same number map a frame at the same entry, or are linked by others
                 that do; NO_GROUP: no other table does
    """

    pages: Mapping[int, int]
    shared: Mapping[int, int]
    tables: Mapping[int, np.ndarray]
    mapped: Mapping[int, np.ndarray]
    with_others: Mapping[int, np.ndarray]
    group: Mapping[int, np.ndarray]


def shared_pages(trees: Mapping[int, Tree]) -> SharedPages:
    """SharedPages of {PID: Tree} of one machine; memory: some 100 bytes per leaf entry of all."""
    leaves = {pid: leaves_of(tree) for pid, tree in trees.items()}
    own = {pid: joined(of.start, of.end) for pid, of in leaves.items()}
    common = often([*own.values()])
    pages = {pid: int((of.end - of.start).sum()) for pid, of in own.items()}
    shared = {pid: int(common.within(of.start, of.end).sum()) for pid, of in own.items()}
    tables, mapped, with_others = {}, {}, {}
    for pid, of in leaves.items():
        small, number = of.end - of.start == 1, len(trees[pid])
        both = common.within(of.start[small], of.end[small]) > 0
        every = np.bincount(of.table[small], minlength=number)
        some = np.bincount(of.table[small][both], minlength=number)
        tables[pid] = np.flatnonzero(some)
        mapped[pid], with_others[pid] = every[tables[pid]], some[tables[pid]]
    return SharedPages(pages, shared, tables, mapped, with_others, groups(leaves, tables))


def leaves_of(tree: Tree) -> Leaves:
    columns: list[tuple[np.ndarray, ...]] = [(np.zeros(0, np.int64),) * 4]
    for level, ids, raw in blocks(tree, range(1, 4)):
        at, slot = np.nonzero(bits.leaf(raw, level, tree.encoding))
        frame = bits.frame(raw[at, slot], level, tree.encoding)
        columns.append((frame, frame + ENTRIES_PER_TABLE ** (level - 1), ids[at], slot))
    return Leaves(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def joined(start: np.ndarray, end: np.ndarray) -> Spans:
    """The frames of ranges, each once."""
    if not len(start):
        return Spans(start, end)
    order = np.argsort(start)
    start, end = start[order], np.maximum.accumulate(end[order])
    first = np.flatnonzero(np.concatenate([[True], start[1:] > end[:-1]]))
    return Spans(start[first], end[np.append(first[1:], len(start)) - 1])


def often(spans: Sequence[Spans]) -> Spans:
    """The frames that two or more of the Spans hold."""
    points = np.concatenate([column for of in spans for column in (of.start, of.end)])
    steps = np.concatenate([np.repeat([1, -1], len(of.start)) for of in spans])
    at, which = np.unique(points, return_inverse=True)
    depth = np.cumsum(np.bincount(which, weights=steps, minlength=len(at)))
    deep = np.flatnonzero(depth[:-1] >= 2)
    return joined(at[deep], at[deep + 1])


def groups(leaves: Mapping[int, Leaves], tables: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """{PID: group of each of its `tables`}: connected components of tables that have an entry in common."""
    first, keys, owners = 0, [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for pid, of in leaves.items():
        small = np.flatnonzero((of.end - of.start == 1) & np.isin(of.table, tables[pid]))
        keys.append(of.start[small] * ENTRIES_PER_TABLE + of.slot[small])
        owners.append(first + np.searchsorted(tables[pid], of.table[small]))
        first += len(tables[pid])
    label = components(np.concatenate(keys), np.concatenate(owners), first)
    sizes = np.bincount(label, minlength=first)
    label[sizes[label] < 2] = NO_GROUP
    _, numbers = np.unique(label, return_inverse=True)
    numbers += -1 if (label == NO_GROUP).any() else 0
    ends = np.cumsum([len(of) for of in tables.values()])
    return dict(zip(tables, np.split(numbers, ends[:-1]), strict=True))


def components(keys: np.ndarray, owners: np.ndarray, count: int) -> np.ndarray:
    """int64[count]: smallest owner that each owner is linked with, where owners of equal keys are linked."""
    label = np.arange(count)
    if not len(keys):
        return label
    order = np.argsort(keys, kind="stable")
    owners = owners[order]
    begins = np.flatnonzero(np.concatenate([[True], np.diff(keys[order]) != 0]))
    lengths = np.diff(np.append(begins, len(owners)))
    while True:
        least = np.repeat(np.minimum.reduceat(label[owners], begins), lengths)
        new = label.copy()
        np.minimum.at(new, owners, least)
        new = new[new]
        if np.array_equal(new, label):
            return label
        label = new
