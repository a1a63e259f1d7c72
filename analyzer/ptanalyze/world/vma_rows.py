"""The VMAs of leaf entries: rows of a result by VMA, the tracer's own VMAs left out."""

import numpy as np

from ..core import snapshot as bits
from ..core.snapshot import Snapshot, Tree
from ..core.trace import REGION_SHIFT
from ..core.walks import Tables

LEFT_OUT = -1
NO_VMA = "no VMA"  # memory that was walked or mapped, but in no VMA when the snapshot was taken
REGION = np.uint64(1 << REGION_SHIFT)
VMA_PAGES = np.arange(512, dtype=np.uint64) << np.uint64(12)


def groups(snapshot: Snapshot, by: str) -> tuple[tuple[str, ...], np.ndarray]:
    """(names of the groups, int64[V + 1]: group of each VMA, LEFT_OUT for the tracer's; the last: none)."""
    vmas = snapshot.vmas
    if by == "vma":
        spans = zip(vmas["start"], vmas["end"], snapshot.vma_names, strict=True)
        names = (*(f"{int(a):x}-{int(b):x} {name}".rstrip() for a, b, name in spans), NO_VMA)
        group = np.arange(len(vmas) + 1)
    else:
        names, group = ("all",), np.zeros(len(vmas) + 1, np.int64)
    group[:-1][vmas["emulator"]] = LEFT_OUT
    return names, group


def vma_of(addresses: np.ndarray, vmas: np.ndarray) -> np.ndarray:
    """int64: index of the VMA around each address (uint64), len(vmas) for none."""
    if not len(vmas):
        return np.zeros(len(addresses), np.int64)
    at = np.searchsorted(vmas["start"], addresses, side="right") - 1
    inside = (at >= 0) & (addresses < vmas["end"][at])
    return np.where(inside, at, len(vmas))


def tracers_leaves(snapshot: Snapshot) -> dict[int, int]:
    """{level: leaf entries in VMAs of the tracer's own}; {} where it has none."""
    tree, own = snapshot.guest, snapshot.vmas["emulator"]
    if not own.any():
        return {}
    table, lo, hi, _ = segments(tree, snapshot.vmas, np.append(np.where(own, 0, LEFT_OUT), LEFT_OUT))
    entries = (tree.entries[t, a:b] for t, a, b in zip(table, lo, hi, strict=True))
    counts = {1: sum(int(np.count_nonzero(bits.leaf(some, 1, tree.encoding))) for some in entries)}
    for level in (2, 3):
        of_level = np.flatnonzero(tree.level == level)
        at, slots = np.nonzero(bits.leaf(tree.entries[of_level], level, tree.encoding))
        va = tree.base[of_level[at]] + (slots.astype(np.uint64) << np.uint64(3 + 9 * level))
        counts[level] = int(np.count_nonzero(np.append(own, False)[vma_of(va, snapshot.vmas)]))
    return counts


def segments(
    tree: Tree | Tables, vmas: np.ndarray, group: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(table int32, lo int16, hi int16, group int64): tables of level 1, cut where the group changes."""
    table = np.flatnonzero(tree.level == 1).astype(np.int32)
    of_region, mixed = _regions(tree.base[table], vmas, group)
    whole = of_region >= 0
    lo, hi = [np.zeros(np.count_nonzero(whole), np.int16)], [np.full(np.count_nonzero(whole), 512, np.int16)]
    tables, rows = [table[whole]], [of_region[whole]]
    for k in np.flatnonzero(mixed):
        by_slot = group[vma_of(tree.base[table[k]] + VMA_PAGES, vmas)]
        starts = np.concatenate([[0], np.flatnonzero(np.diff(by_slot)) + 1])
        kept = by_slot[starts] >= 0
        tables.append(np.full(np.count_nonzero(kept), table[k], np.int32))
        lo.append(starts[kept].astype(np.int16))
        hi.append(np.append(starts[1:], 512)[kept].astype(np.int16))
        rows.append(by_slot[starts[kept]])
    return np.concatenate(tables), np.concatenate(lo), np.concatenate(hi), np.concatenate(rows)


def of_regions(
    va: np.ndarray, vmas: np.ndarray, group: np.ndarray, scale: int
) -> tuple[np.ndarray, np.ndarray]:
    """(int64[R] group * scale by 2 MiB region, LEFT_OUT, or -2 - k: see row k of int64[k, 512] by slot)."""
    base = va << np.uint64(REGION_SHIFT)
    row, mixed = _regions(base, vmas, group)
    row = np.where(row >= 0, row * scale, LEFT_OUT)
    at = np.flatnonzero(mixed)
    row[at] = -2 - np.arange(len(at))
    by_slot = group[vma_of((base[at][:, None] + VMA_PAGES).ravel(), vmas)].reshape(-1, 512)
    return row, np.where(by_slot >= 0, by_slot * scale, LEFT_OUT)


def _regions(base: np.ndarray, vmas: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(group of each 2 MiB region, or LEFT_OUT; bool: several VMAs or a gap share the region)."""
    if not len(vmas) or (group == group[0]).all():
        return np.full(len(base), group[0]), np.zeros(len(base), bool)
    first = np.searchsorted(vmas["end"], base, side="right")
    overlapping = np.searchsorted(vmas["start"], base + REGION, side="left") - first
    vma = np.minimum(first, len(vmas) - 1)
    inside = (overlapping == 1) & (vmas["start"][vma] <= base) & (vmas["end"][vma] >= base + REGION)
    alone = np.where(inside, group[vma], group[-1])
    mixed = (overlapping > 0) & ~inside
    return np.where(mixed, LEFT_OUT, alone), mixed
