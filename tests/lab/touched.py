"""What the toucher was asked to do and says it did, and where its pages are according to a page table."""

from dataclasses import dataclass

import numpy as np

from ptanalyze.core import snapshot as entries

MAGIC = np.uint64(0x5EA1D00DC0DE0000)
FACTOR = np.uint64(0x9E3779B97F4A7C15)
REGION_BITS = 39
LEAF_LEVEL = {"4k": 1, "thp": 2, "1g": 3}


@dataclass(frozen=True)
class Policy:
    mode: str
    nodes: tuple[int, ...]

    def __str__(self):
        return f"{self.mode}:{sum(1 << node for node in self.nodes):x}" if self.nodes else self.mode


DEFAULT = Policy("default", ())


def bind(*nodes):
    return Policy("bind", nodes)


def interleave(*nodes):
    return Policy("interleave", nodes)


@dataclass(frozen=True)
class Region:
    """`mib` of `kind` pages, touched on `cpu` every `step` bytes; `tables` is the policy of page tables.

    data  policy of the pages; DEFAULT: that of the task, which is `tables`
    """

    kind: str
    data: Policy
    tables: Policy
    cpu: int = 0
    mib: int = 8
    step: int = 4096

    @property
    def pages(self):
        """The policy that places the pages."""
        return self.tables if self.data is DEFAULT else self.data

    def __str__(self):
        return f"{self.kind},{self.data},{self.tables},{self.cpu},{self.mib},{self.step}"


@dataclass(frozen=True)
class Touched:
    """A Region as it was touched: `addresses` uint64[n] hold their magic values."""

    region: Region
    start: int
    addresses: np.ndarray

    def holds(self, base):
        """bool: tables with these first addresses belong to the region alone."""
        return (np.asarray(base) >> np.uint64(REGION_BITS)) == np.uint64(self.start >> REGION_BITS)


def arguments(base, regions, spin_ms=0):
    """The toucher's arguments after its log file."""
    return " ".join([f"{base:x}", str(spin_ms), *map(str, regions)])


def read_log(text, regions):
    """[Touched] of the toucher's log."""
    lines = [line.split() for line in text.splitlines() if line.startswith("region")]
    touched = []
    for region, (_, kind, start, size, step) in zip(regions, lines, strict=True):
        assert kind == region.kind
        first = int(start, 16)
        pages = np.arange(first, first + int(size), int(step), dtype=np.uint64)
        touched.append(Touched(region, first, pages))
    return touched


def magic(addresses):
    """uint64: what the toucher wrote at each address."""
    return MAGIC ^ addresses * FACTOR


def translate(tree, addresses):
    """Translate each address, from the dumped tables alone: int64[n] frame, leaf level, table of the leaf.

    -1, 0 and -1 where nothing is mapped.
    """
    frame = np.full(len(addresses), -1, np.int64)
    found = np.zeros(len(addresses), np.int64)
    holder = np.full(len(addresses), -1)
    for level in (3, 2, 1):
        at = np.flatnonzero(tree.level == level)
        if not len(at):
            continue
        shift = np.uint64(3 + 9 * level)
        bases = tree.base[at]
        order = np.argsort(bases)
        nearest = np.searchsorted(bases[order], addresses, side="right") - 1
        table = at[order[nearest]]
        inside = (nearest >= 0) & ((addresses - tree.base[table]) >> shift < 512)
        raw = tree.entries[table[inside], ((addresses >> shift) & np.uint64(511)).astype(np.int64)[inside]]
        leaf = entries.leaf(raw, level, tree.encoding)
        here = np.flatnonzero(inside)[leaf]
        within = (addresses[here] & ((np.uint64(1) << shift) - np.uint64(1))) >> np.uint64(12)
        frame[here] = entries.frame(raw[leaf], level, tree.encoding) + within.astype(np.int64)
        found[here] = level
        holder[here] = table[here]
    return frame, found, holder
