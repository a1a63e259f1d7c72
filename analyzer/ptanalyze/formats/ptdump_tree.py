"""Tables of a dump, known only by frame and level, assembled: which points to which, at which address."""

from pathlib import Path

import numpy as np

from ..core.errors import UNKNOWN_NODE, CaptureError
from ..core.snapshot import HUGE, Topology, Tree, frame, leaf, table
from .tables_file import enclosing_tables

LEVELS = 4
USER_SLOTS = 256
GIB_FRAMES = 1 << 18


def assemble(
    path: Path, level: np.ndarray, frames: np.ndarray, entries: np.ndarray, encoding: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, int]]:
    """(base, parent, order, repaired): tables in depth-first `order`, with base addresses and parents.

    Pointers to no table of the dump become 1 GiB leaves (level 3, aligned) or are cleared in `entries`,
    tables that nothing points to are left out; `repaired` counts them. The kernel half of an x86 root is
    cleared. CaptureError unless there is exactly one root.
    """
    roots = np.flatnonzero(level == LEVELS)
    if len(roots) != 1:
        raise CaptureError(path, "level4", len(roots), "expected exactly one root table")
    if encoding == "x86":
        entries[roots[0], USER_SLOTS:] = 0
    repaired = {"leaves_1g": 0, "dropped_pointers": 0, "dropped_tables": 0}
    tables, bases = [roots], [np.zeros(1, np.int64)]
    parents, below = roots, bases[0]
    for height in range(LEVELS, 1, -1):
        parents, below = children(parents, below, height, level, frames, entries, encoding, repaired)
        tables.append(parents)
        bases.append(below)
    index, base = np.concatenate(tables), np.concatenate(bases)
    repaired["dropped_tables"] = len(level) - len(index)
    sort = np.lexsort((-level[index], base))
    order, base = index[sort], base[sort]
    return base, enclosing_tables(level[order], LEVELS), order, repaired


def tree_of(
    entries: np.ndarray,
    base: np.ndarray,
    frames: np.ndarray,
    parent: np.ndarray,
    level: np.ndarray,
    encoding: str,
) -> Tree:
    """The Tree of tables in the order of `assemble`, whose nodes are not known."""
    return Tree(
        entries=entries,
        base=base.astype(np.uint64),
        frame=frames,
        parent=parent.astype(np.int32),
        node=np.full(len(base), UNKNOWN_NODE, np.int16),
        level=level.astype(np.uint8),
        flags=np.zeros(len(base), np.uint8),
        levels=LEVELS,
        encoding=encoding,
    )


def children(
    parents: np.ndarray,
    base: np.ndarray,
    height: int,
    level: np.ndarray,
    frames: np.ndarray,
    entries: np.ndarray,
    encoding: str,
    repaired: dict[str, int],
) -> tuple[np.ndarray, np.ndarray]:
    """(tables, bases) of level height - 1 that `parents` at addresses `base` point to, by address."""
    rows = entries[parents]
    at, slot = np.nonzero(table(rows, height, encoding))
    wanted = frame(rows[at, slot], height, encoding, leaves=False)
    pool = np.flatnonzero(level == height - 1)
    pool = pool[np.argsort(frames[pool], kind="stable")]
    place = np.minimum(np.searchsorted(frames[pool], wanted), max(len(pool) - 1, 0))
    there = frames[pool][place] == wanted if len(pool) else np.zeros(len(wanted), bool)
    there[there] = first_mention(pool[place[there]])
    huge = ~there & (height == 3) & (wanted % GIB_FRAMES == 0)
    entries[parents[at[huge]], slot[huge]] |= HUGE
    lost = ~there & ~huge
    entries[parents[at[lost]], slot[lost]] = 0
    repaired["leaves_1g"] += int(huge.sum())
    repaired["dropped_pointers"] += int(lost.sum())
    return pool[place[there]], base[at[there]] + (slot[there] << (3 + 9 * height))


def first_mention(tables: np.ndarray) -> np.ndarray:
    """bool[n]: no earlier pointer leads to the same table."""
    first = np.zeros(len(tables), bool)
    first[np.unique(tables, return_index=True)[1]] = True
    return first


def table_nodes(guest: Tree, host: Tree | None, topology: Topology) -> np.ndarray:
    """int16[T]: NUMA node of each guest table's frame, through the host tree if there is one."""
    if host is None:
        return topology.node_of_frame(guest.frame)
    backing = np.full(len(guest), UNKNOWN_NODE, np.int64)
    address = guest.frame << 12
    for level in (3, 2, 1):
        span = 1 << (3 + 9 * level)
        at = np.flatnonzero(host.level == level)
        if not len(at):
            continue
        bases = host.base[at].astype(np.int64)
        place = np.clip(np.searchsorted(bases, address, side="right") - 1, 0, None)
        inside = (address >= bases[place]) & (address < bases[place] + 512 * span)
        entry = host.entries[at[place], (address // span) & 511]
        hit = inside & leaf(entry, level, host.encoding)
        offset = (address % span) >> 12
        backing = np.where(hit, frame(entry, level, host.encoding) + offset, backing)
    return topology.node_of_frame(backing)
