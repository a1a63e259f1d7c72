"""Decoding of raw page-table entries, by encoding: present, mapped, leaf, frame.

x86   a CPU uses an entry with bit 0. Linux keeps a page mapped without it: PROT_NONE and NUMA-hint entries
      have bit 8 (_PAGE_PROTNONE) instead, a huge page being split bit 7; their frames are inverted because
      of L1TF (arch/x86/include/asm/pgtable-invert.h). Bit 7 makes leaves of level 2 and 3; swap has neither.
ept   present when any of read, write, execute (bits 0-2) is set (Intel SDM 3C, 29.3.2); bit 7 makes leaves.
kvm   KVM's SPTEs: present = bits 0 and 11 (arch/x86/kvm/mmu/spte.h, SPTE_MMU_PRESENT_MASK), bit 7 as in ept.
      With bit 11 alone KVM suspended access to a mapped page (mark_spte_for_access_track); MMIO and removed
      entries lack bit 11.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from .snapshot import Tree

PRESENT = np.uint64(1)
HUGE = np.uint64(1 << 7)
PROTNONE = np.uint64(1 << 8)
KVM_MAPPED = np.uint64(1 << 11)
KVM_PRESENT = KVM_MAPPED | PRESENT
EPT_ACCESS = np.uint64(7)
ADDRESS = np.uint64((1 << 52) - (1 << 12))
NONE = np.uint64(0)
BLOCK = 4096  # table pages read at a time: 16 MiB of entries


def blocks(tree: Tree, levels: Iterable[int]) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.uint64]]]:
    """Yield (level, table ids int64[n], raw entries uint64[n, 512]), BLOCK tables of a level at a time."""
    for level in levels:
        at_level = np.flatnonzero(tree.level == level)
        for start in range(0, len(at_level), BLOCK):
            ids = at_level[start : start + BLOCK]
            yield level, ids, tree.entries[ids]


def present(entries: NDArray[np.uint64], encoding: str = "x86") -> NDArray[np.bool_]:
    """bool: the page walker follows the entry."""
    follows: NDArray[np.bool_]
    if encoding == "x86":
        follows = entries & PRESENT != NONE
    elif encoding == "ept":
        follows = entries & EPT_ACCESS != NONE
    else:
        follows = entries & KVM_PRESENT == KVM_PRESENT
    return follows


def inaccessible(entries: NDArray[np.uint64], level: int, encoding: str = "x86") -> NDArray[np.bool_]:
    """bool: mapped by the kernel, but the walker faults: PROT_NONE, NUMA hint, split or suspended."""
    denied: NDArray[np.bool_]
    if encoding == "kvm":
        denied = entries & KVM_PRESENT == KVM_MAPPED
    elif encoding == "ept":
        denied = np.zeros(np.shape(entries), bool)
    else:
        hints = PROTNONE | HUGE if level > 1 else PROTNONE
        denied = (entries & PRESENT == NONE) & (entries & hints != NONE)
    return denied


def mapped(entries: NDArray[np.uint64], level: int, encoding: str = "x86") -> NDArray[np.bool_]:
    """bool: the entry points somewhere, whether or not a walker may use it (pte_present, pmd_present)."""
    return present(entries, encoding) | inaccessible(entries, level, encoding)


def leaf(entries: NDArray[np.uint64], level: int, encoding: str = "x86") -> NDArray[np.bool_]:
    """bool: the entry maps a page of 4 KiB (level 1), 2 MiB (2) or 1 GiB (3)."""
    if level > 3:
        return np.zeros(np.shape(entries), bool)
    here = mapped(entries, level, encoding)
    return here if level == 1 else here & (entries & HUGE != NONE)


def table(entries: NDArray[np.uint64], level: int, encoding: str = "x86") -> NDArray[np.bool_]:
    """bool: the entry points to a table of level - 1."""
    return (
        present(entries, encoding) & ~leaf(entries, level, encoding)
        if level > 1
        else np.zeros(entries.shape, bool)
    )


def frame(
    entries: NDArray[np.uint64], level: int, encoding: str = "x86", leaves: bool = True
) -> NDArray[np.int64]:
    """int64: page frame of each mapped entry, the first of a huge page; meaningless where nothing is mapped.

    leaves  False for entries that point to tables, whose frame has no alignment beyond 4 KiB.
    """
    entries = np.asarray(entries, np.uint64)
    if encoding == "x86":
        entries = np.where(inaccessible(entries, level), ~entries, entries)
    mask = ADDRESS
    if leaves and level > 1:
        mask &= ~np.uint64((1 << (3 + 9 * level)) - 1)
    return ((entries & mask) >> np.uint64(12)).astype(np.int64)
