"""Whether a capture holds the page tables of what its trace touched, or that was freed before the dump."""

import numpy as np

from ...core import snapshot as bits
from ...core.snapshot import Snapshot, Tree
from ...core.trace import REGION_SHIFT, SLOT_BITS, Trace
from .finding import OK, PARTIAL, Finding

FREED = 0.1  # share of touches beyond which a capture counts as partial
WAY_OUT = (
    "the memory was freed before the page tables were read, so those walks have no class; record again with "
    "--dump-at peak (or, if that was done, end the region earlier)"
)


class Covered:
    """Touches whose leaf entry has a known place: `add` each batch, then `finding`.

    Native: the table page is in the dump. In a VM the entry must be there too: its frame leads to the host's.
    """

    def __init__(self, trace: Trace, snapshot: Snapshot) -> None:
        tree = snapshot.guest
        self.native, self.tree, self.touches, self.gone = snapshot.native, tree, 0, 0
        regions = trace.regions
        small = np.flatnonzero(tree.level == 1)
        order = small[np.argsort(tree.base[small], kind="stable")]
        region_of = tree.base[order] >> np.uint64(REGION_SHIFT)
        at = np.minimum(np.searchsorted(region_of, regions), max(len(order) - 1, 0))
        found = region_of[at] == regions if len(order) else np.zeros(len(regions), bool)
        self.table = np.where(found, order[at] if len(order) else 0, -1)  # leaf table by region id
        self.huge = np.zeros(len(regions), bool)
        for level in (2, 3):
            self.huge |= mapped_huge(tree, level, regions)

    def add(self, pages: np.ndarray, counts: np.ndarray) -> None:
        """pages  page ids, each once; counts: touches of each."""
        region = pages >> SLOT_BITS
        table, slot = self.table[region], pages & ((1 << SLOT_BITS) - 1)
        there = self.huge[region].copy()
        if self.native:
            there |= table >= 0
        else:
            some = np.flatnonzero(table >= 0)
            entries = np.asarray(self.tree.entries[table[some], slot[some]])
            there[some] |= bits.leaf(entries, 1, self.tree.encoding)
        self.touches += int(counts.sum())
        self.gone += int(counts[~there].sum())

    def finding(self) -> Finding:
        verdict = PARTIAL if self.gone > FREED * self.touches else OK
        share = 100 * (1 - self.gone / max(self.touches, 1))
        return Finding(
            "trace: pages in the dump",
            self.touches,
            self.gone if verdict == PARTIAL else 0,
            verdict,
            f"touches without a page table in the dump, which holds those of {share:.0f} %: {WAY_OUT}"
            if verdict == PARTIAL
            else "",
        )


def mapped_huge(tree: Tree, level: int, regions: np.ndarray) -> np.ndarray:
    """bool[regions]: whether a leaf entry at `level` (2, 3) maps the region."""
    spans = []
    for table in np.flatnonzero(tree.level == level):
        slots = np.flatnonzero(bits.leaf(np.asarray(tree.entries[table]), level, tree.encoding))
        wide = np.uint64(level - 2) * np.uint64(SLOT_BITS)
        first = (tree.base[table] >> np.uint64(REGION_SHIFT)) + (slots.astype(np.uint64) << wide)
        spans.append(first >> wide)
    if not spans:
        return np.zeros(len(regions), bool)
    wide = np.uint64(level - 2) * np.uint64(SLOT_BITS)
    return np.isin(regions >> wide, np.concatenate(spans))
