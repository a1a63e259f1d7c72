"""Page tables cut and grown: Tree in, Tree out; the input Tree stays unchanged.

Memory: 4 KiB of copied entries for each table page that is kept, unless a function says otherwise. Entries of
a capture stay in their file.
"""

from dataclasses import replace
from mmap import mmap

import numpy as np

from ..core import snapshot as bits
from ..core.snapshot import NO_PARENT, Tree

ROW_BYTES = 4096
TO_TABLE = {"x86": 0x67, "ept": 0x7, "kvm": 0x807}  # flags of an entry that points to a table
MAX_LEVELS = 5


def with_frame(raw: np.ndarray, frame: np.ndarray, encoding: str) -> np.ndarray:
    """uint64[n]: entries (uint64[n], mapped) that lead to other frames (int64[n]), all flags as they were.

    x86 entries that are mapped but not present keep their frame inverted (pgtable-invert.h).
    """
    address = np.asarray(frame, np.int64).astype(np.uint64) << np.uint64(12)
    if encoding == "x86":
        address = np.where(raw & bits.PRESENT == bits.NONE, ~address, address)
    led: np.ndarray = (raw & ~bits.ADDRESS) | (address & bits.ADDRESS)
    return led


def slot_in_parent(tree: Tree, tables: np.ndarray) -> np.ndarray:
    """int64[n]: entry of its parent that leads to each of `tables`, which are no roots."""
    shift = (12 + 9 * tree.level[tables].astype(np.int64)).astype(np.uint64)
    slots: np.ndarray = tree.base[tables] >> shift & np.uint64(511)
    return slots.astype(np.int64)


def with_huge_leaves(tree: Tree, tables: np.ndarray, leaves: np.ndarray) -> Tree:
    """The Tree without the leaf tables `tables` (int64[k], of level 1), huge leaves in their place.

    leaves  uint64[k]: their parents' new entries
    """
    keep = np.ones(len(tree), bool)
    keep[tables] = False
    number = np.cumsum(keep) - 1
    kept = np.flatnonzero(keep)
    entries = tree.entries[kept]
    entries[number[tree.parent[tables]], slot_in_parent(tree, tables)] = leaves
    parent = tree.parent[kept]
    parent = np.where(parent == NO_PARENT, NO_PARENT, number[parent]).astype(np.int32)
    columns = {name: getattr(tree, name)[kept] for name in ("base", "frame", "node", "level", "flags")}
    return replace(tree, entries=entries, parent=parent, **columns)


def with_root_above(tree: Tree, frame: int = -1) -> Tree:
    """The Tree, a level higher: a new root, in page frame `frame`, on the node of the old one.

    A tree whose entries are a whole capture file, as recorded, takes no memory but the new root's: the file
    is mapped again from a page earlier, where the new root replaces its header.
    """
    root = int(np.flatnonzero(tree.parent == NO_PARENT)[0])
    row = np.zeros(512, np.uint64)
    number = max(int(tree.frame[root]), 0)
    row[int(tree.base[root]) >> (12 + 9 * tree.levels) & 511] = number << 12 | TO_TABLE[tree.encoding]
    before = {"base": 0, "frame": frame, "node": tree.node[root], "level": tree.levels + 1, "flags": 0}
    columns = {name: _after(value, getattr(tree, name)) for name, value in before.items()}
    parent = _after(NO_PARENT, np.where(tree.parent == NO_PARENT, 0, tree.parent + 1))
    return Tree(
        _rows_after(row, tree.entries), parent=parent.astype(np.int32), levels=tree.levels + 1,
        encoding=tree.encoding, **columns,
    )  # fmt: skip


def _after(value: int, column: np.ndarray) -> np.ndarray:
    return np.concatenate([np.array([value], column.dtype), column])


def _rows_after(row: np.ndarray, entries: np.ndarray) -> np.ndarray:
    moved = mapped_again(entries, rows_before=1)
    if moved is None:
        return np.concatenate([row[None], entries])
    moved[0] = row
    return moved


def mapped_again(entries: np.ndarray, rows_before: int = 0) -> np.ndarray | None:
    """A private, writable mapping of the file behind `entries`, from `rows_before` rows earlier.

    None where they are not a whole read-only mapping, or the file does not begin that early.
    """
    if not (isinstance(entries, np.memmap) and isinstance(entries.base, mmap) and entries.mode == "r"):
        return None
    offset = entries.offset - rows_before * ROW_BYTES
    if offset < 0 or entries.filename is None:
        return None
    shape = len(entries) + rows_before, entries.shape[1]
    return np.memmap(entries.filename, entries.dtype, "c", offset, shape)


def free_frame(tree: Tree, host_of: np.ndarray) -> int:
    """A page frame for another table of a guest's tree, near its root's, -1 where that is not known.

    No table page of the tree is in it, and it lies where the host maps memory (AddressSpace.host_of). Data
    pages are not considered.
    """
    root = int(tree.frame[np.flatnonzero(tree.parent == NO_PARENT)[0]])
    if root < 0:
        return -1
    blocks = np.flatnonzero(host_of >= 0)
    for block in blocks[np.argsort(np.abs(blocks - (root >> 9)), kind="stable")].tolist():
        frames = (block << 9) + np.arange(512)
        frames = frames[~np.isin(frames, tree.frame)]
        if len(frames):
            return int(frames[np.argmin((frames - root) % (1 << 52))])
    return -1


def with_small_leaves(tree: Tree, tables: np.ndarray, slots: np.ndarray) -> Tree:
    """The Tree with tables of 512 leaves in place of huge leaves of a level.

    tables, slots  int64[k]: the places of those leaves. The new tables are on the nodes of their parents,
    in unknown frames.
    """
    (level,) = np.unique(tree.level[tables]).tolist()
    base = tree.base[tables] + (slots.astype(np.uint64) << np.uint64(3 + 9 * level))
    raw = tree.entries[tables, slots]
    own = np.arange(len(tree)), np.arange(len(tables)) + len(tree)
    columns = {"frame": np.full(len(tables), -1), "parent": tables, "level": np.full(len(tables), level - 1)}
    columns |= {"base": base, "node": tree.node[tables], "flags": tree.flags[tables]}
    columns = {
        name: np.concatenate([getattr(tree, name), value.astype(getattr(tree, name).dtype)])
        for name, value in columns.items()
    }
    order = np.lexsort((-columns["level"].astype(np.int64), columns["base"]))  # depth first
    place = np.argsort(order)
    entries = np.empty((len(order), 512), np.uint64)
    entries[place[own[0]]] = tree.entries
    entries[place[tables], slots] = TO_TABLE[tree.encoding]
    entries[place[own[1]]] = _smaller(raw, level, tree.encoding)
    parent = columns.pop("parent")
    parent = np.where(parent == NO_PARENT, NO_PARENT, place[parent]).astype(np.int32)[order]
    columns = {name: value[order] for name, value in columns.items()}
    return Tree(entries, parent=parent, levels=tree.levels, encoding=tree.encoding, **columns)


def _smaller(raw: np.ndarray, level: int, encoding: str) -> np.ndarray:
    """uint64[k, 512]: the leaves of level - 1 that together map what each leaf of `level` does."""
    first = bits.frame(raw, level, encoding)
    frames = first[:, None] + (np.arange(512) << 9 * (level - 2))
    if encoding == "x86":
        raw = np.where(raw & bits.PRESENT == bits.NONE, raw | bits.PROTNONE, raw)
    if level == 2:
        raw = raw & ~bits.HUGE
    return with_frame(raw[:, None], frames, encoding)
