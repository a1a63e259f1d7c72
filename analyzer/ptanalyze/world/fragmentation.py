"""Scatter of the neighbours in a gPT cache line over ePT cache lines.

PTEMagnet, section 3.2: a cache line of the guest's leaf table holds the gPTEs of eight neighbouring pages.
The walks to these pages read as many cache lines of ePT leaf entries as their guest frames are scattered
over: 1 where all are in an aligned block of eight frames, 8 at worst. The metric is the mean over all lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import snapshot as bits
from ..core.errors import UsageError
from ..core.snapshot import Tree
from ..core.trace import read_only
from . import address_space
from .address_space import AddressSpace

if TYPE_CHECKING:
    import pandas as pd

    from ..kernels.classify import HostTables as Host

LINE = 8  # entries of 8 bytes in a cache line of 64


@dataclass(frozen=True)
class Fragmentation:
    """gPT cache lines of leaf tables (4 KiB pages), by the number of ePT cache lines of their pages.

    groups      names: ("all",), or VMAs
    counts      int64[groups, 9, 9]: lines by [pages mapped in both dimensions, distinct ePT lines]
    huge        int64[groups, 2]: leaves of 2 MiB and of 1 GiB in the guest; they have no line of 4 KiB gPTEs
    unresolved  int64[groups]: gPTEs whose frame the host does not map: they have no ePT line
    """

    groups: tuple[str, ...]
    counts: np.ndarray
    huge: np.ndarray
    unresolved: np.ndarray

    def histogram(self, full: bool = False) -> np.ndarray:
        """int64[groups, 8]: gPT lines with 1, 2, ... 8 ePT lines; `full`: only lines with all eight pages."""
        chosen = self.counts[:, LINE] if full else self.counts.sum(axis=1)
        return chosen[:, 1:]

    def summary(self, full: bool = False) -> list[dict[str, Any]]:
        """[dict by group]: of, gPT lines, mean, and the shares with several and with eight ePT lines.

        Mean and shares are None where there is no line.
        """
        return [
            {"of": name, "gPT lines": int(row.sum()), **_metrics(row)}
            for name, row in zip(self.groups, self.histogram(full), strict=True)
        ]

    def mean(self, full: bool = False) -> float | None:
        """The paper's metric over all groups; None where no page is mapped by 4 KiB."""
        return _metrics(self.histogram(full).sum(axis=0))["mean"]

    def frame(self) -> pd.DataFrame:
        """pandas DataFrame, tidy: group, lines ("all" or "full"), ept_lines, count, share of its group."""
        import pandas as pd

        parts = []
        for lines in ("all", "full"):
            counts = self.histogram(lines == "full")
            total = counts.sum(axis=1, keepdims=True)
            share = np.divide(counts, total, out=np.zeros(counts.shape), where=total > 0)
            names = [self.groups, (lines,), range(1, LINE + 1)]
            index = pd.MultiIndex.from_product(names, names=["group", "lines", "ept_lines"])
            parts.append(pd.DataFrame({"count": counts.ravel(), "share": share.ravel()}, index=index))
        return pd.concat(parts).reset_index()


def _metrics(row: np.ndarray) -> dict[str, float | None]:
    """Of int64[8], gPT lines with 1..8 ePT lines."""
    total = row.sum()
    if not total:
        return dict.fromkeys(("mean", "scattered", "fully scattered"))
    parts = row @ np.arange(1, LINE + 1), row[1:].sum(), row[-1]
    return dict(zip(("mean", "scattered", "fully scattered"), (float(p / total) for p in parts), strict=True))


def measure(space: AddressSpace, *, by: str = "all", filled: bool = False) -> Fragmentation:
    """Fragmentation of a two-dimensional snapshot (AddressSpace), the tracer's VMAs left out.

    by      "all" or "vma"; a gPT line with pages of two VMAs counts in both, with its pages there
    filled  take holes in host leaf tables as mapped: the host fills them once the guest uses these frames

    Raises UsageError for a native snapshot, which has no ePT, and another grouping.
    """
    if by not in ("all", "vma"):
        raise UsageError(f"by = {by}: one of all, vma")
    if space.native:
        raise UsageError(
            "fragmentation: host tables = none: it counts cache lines of the ePT and needs a VM's capture; "
            "dump one with `ptanalyze dump vm` or join a guest's with its host's: `ptanalyze join`"
        )
    from ..kernels import classify as kernels

    tree, vmas = space.snapshot.guest, space.snapshot.vmas
    groups, group_of_vma = address_space.groups(space.snapshot, by)
    runs = kernels.Runs(*line_runs(*address_space.segments(tree, vmas, group_of_vma)))
    counts = np.zeros((len(groups), LINE + 1, LINE + 1), np.int64)
    unresolved = np.zeros(len(groups), np.int64)
    room = np.zeros(LINE, np.int64)
    kernels.count_lines(read_only(tree.entries), runs, _host(space, filled), room, counts, unresolved)
    return Fragmentation(groups, counts, _huge_leaves(tree, vmas, group_of_vma, len(groups)), unresolved)


def line_runs(table: np.ndarray, lo: np.ndarray, hi: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, ...]:
    """Segments of leaf tables (vma_rows.segments) as columns of kernels.classify.Runs.

    Lines that segments begin or end within become runs of a single line, merged within a row.
    """
    lo, hi = lo.astype(np.int64), hi.astype(np.int64)
    up, down = -(-lo // LINE) * LINE, hi // LINE * LINE
    head_end = np.minimum(hi, up)
    start, end = np.concatenate([lo, np.maximum(down, head_end)]), np.concatenate([head_end, hi])
    cut = np.flatnonzero(start < end)
    slots = (1 << (end - start)[cut]) - 1 << start[cut] % LINE
    key = np.column_stack([np.tile(table, 2)[cut], np.tile(row, 2)[cut], start[cut] // LINE])
    key, at = np.unique(key, axis=0, return_inverse=True)
    mask = np.zeros(len(key), np.uint8)
    np.bitwise_or.at(mask, at.ravel(), slots.astype(np.uint8))
    whole = up < down
    columns = [
        (table[whole], key[:, 0], np.int32),
        (up[whole] // LINE, key[:, 2], np.int16),
        (down[whole] // LINE, key[:, 2] + 1, np.int16),
        (np.full(np.count_nonzero(whole), 0xFF), mask, np.uint8),
        (row[whole], key[:, 1], np.int64),
    ]
    return tuple(np.concatenate([a, b]).astype(kind) for a, b, kind in columns)


def _host(space: AddressSpace, filled: bool) -> Host:
    """kernels.fragmentation.Host: entries of host leaf tables with holes are read, others known by region."""
    from ..kernels import classify as kernels
    from ..kernels.classify import Segments, count_mapped
    from ..kernels.walker import CODES

    tree = space.snapshot.nested
    code = CODES[tree.encoding]
    table = np.where(space.host_of >= 0, space.host_of - space.guest_tables, -1).astype(np.int32)
    kind_of_table = tree.level.astype(np.uint8)
    if not filled:
        leaves = np.flatnonzero(tree.level == 1).astype(np.int32)
        n = len(leaves)
        every = Segments(leaves, np.zeros(n, np.int16), np.full(n, 512, np.int16), np.zeros(n, np.int64))
        mapped = np.zeros(n, np.int64)
        count_mapped(read_only(tree.entries), every, code, mapped)
        kind_of_table[leaves[mapped < 512]] = kernels.CLOSER
    kind = np.full(len(table), kernels.UNMAPPED, np.uint8)
    kind[table >= 0] = kind_of_table[table[table >= 0]]
    return kernels.HostTables(kind, table, read_only(tree.entries), code)


def _huge_leaves(tree: Tree, vmas: np.ndarray, group_of_vma: np.ndarray, groups: int) -> np.ndarray:
    """int64[groups, 2]: counts of guest leaves of 2 MiB and 1 GiB."""
    counts = np.zeros((groups, 2), np.int64)
    for level, ids, raw in bits.blocks(tree, (2, 3)):
        which, slot = np.nonzero(bits.leaf(raw, level, tree.encoding))
        va = tree.base[ids[which]] + (slot.astype(np.uint64) << np.uint64(3 + 9 * level))
        group = group_of_vma[address_space.vma_of(va, vmas)]
        counts[:, level - 2] += np.bincount(group[group >= 0], minlength=groups)
    return counts
