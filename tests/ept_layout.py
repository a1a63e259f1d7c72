"""KVM's nested entries in AMD's layout (NPT) and in Intel's (EPT), bit by bit, there and back.

EPT   Intel SDM volume 3C, chapter 29.3.2: 0 read, 1 write, 2 execute, 3-5 memory type and 6 "ignore PAT" of
      leaves, 7 maps a page, 8 accessed, 9 dirty (leaves), 10 execute in user mode, 63 suppress #VE.
NPT   AMD APM volume 2, 15.25.5: x86-64 entries; 0 present, 1 write, 2 user, 3 PWT, 4 PCD, 5 accessed,
      6 dirty, 7 maps a page, 63 no execute.
KVM   arch/x86/kvm/mmu/spte.h: 11 MMU-present in both; host-writable and MMU-writable are 9 and 10 in NPT,
      57 and 58 in EPT; 52-53 how accesses are tracked; EPT without accessed bits keeps read and execute of
      an entry that it made inaccessible in 54 and 56. MMIO and removed entries lack bit 11: they map nothing.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ptanalyze.core.snapshot import Tree

Entries = NDArray[np.uint64]

ADDRESS = np.uint64((1 << 52) - (1 << 12))
TRACKING = np.uint64(3 << 52)
MMU_PRESENT, HUGE = np.uint64(1 << 11), np.uint64(1 << 7)
SAME = ADDRESS | TRACKING | MMU_PRESENT | HUGE
MEMORY_TYPE = np.uint64(7 << 3)
WRITE_BACK, WRITE_THROUGH, UNCACHED = (np.uint64(kind << 3) for kind in (6, 4, 0))
IGNORE_PAT = np.uint64(1 << 6)
PWT, PCD, USER, NX = (np.uint64(1 << bit) for bit in (3, 4, 2, 63))
READ, EXECUTE = np.uint64(1), np.uint64(4)
ACCESS = np.uint64(7)
HARDWARE = ADDRESS | np.uint64(0x7FF) | np.uint64(1 << 63)
SAVED = np.uint64(54)
NONE = np.uint64(0)
MOVED = ((0, 0), (1, 1), (5, 8), (6, 9), (9, 57), (10, 58))  # bit in NPT, bit in EPT


def npt_to_ept(entries: Entries, level: int) -> Entries:
    """uint64, the shape of `entries`: what KVM keeps on Intel for the NPT entries of tables at `level`.

    Pages become write-back with "ignore PAT", as KVM maps memory, or the type that PWT and PCD ask for. What
    maps nothing becomes 0.
    """
    entries = np.asarray(entries, np.uint64)
    out = entries & SAME
    for npt, ept in MOVED:
        out |= moved(entries, npt, ept)
    out |= np.where(entries & NX == NONE, EXECUTE, NONE)
    kind = np.where(entries & PWT != NONE, WRITE_THROUGH, WRITE_BACK)
    kind = np.where(entries & PCD != NONE, UNCACHED, kind)
    leaf = is_leaf(entries, level)
    out |= np.where(leaf, kind | IGNORE_PAT, NONE)
    out &= np.where(leaf, ~NONE, ~np.uint64(1 << 9))
    return np.where(entries & MMU_PRESENT != NONE, out, NONE)


def ept_to_npt(entries: Entries, level: int) -> Entries:
    """uint64: the NPT entries that npt_to_ept() makes these of; accesses that KVM suspended are restored."""
    entries = restored(np.asarray(entries, np.uint64))
    out = entries & SAME
    for npt, ept in MOVED:
        out |= moved(entries, ept, npt)
    out |= np.where(entries & READ != NONE, USER, NONE)
    out |= np.where(entries & EXECUTE == NONE, NX, NONE)
    kind, leaf = entries & MEMORY_TYPE, is_leaf(entries, level)
    out |= np.where(leaf & (kind == UNCACHED), PCD, NONE)
    out |= np.where(leaf & (kind == WRITE_THROUGH), PWT, NONE)
    return np.where(entries & MMU_PRESENT != NONE, out, NONE)


def hardware(entries: Entries) -> Entries:
    """uint64: KVM's EPT entries as the CPU reads them, its own bits and what maps nothing cleared."""
    entries = np.asarray(entries, np.uint64)
    used = (entries & MMU_PRESENT != NONE) & (entries & ACCESS != NONE)
    return np.where(used, entries & HARDWARE, NONE)


def restored(entries: Entries) -> Entries:
    """uint64: KVM's EPT entries with the access that it suspended given back (restore_acc_track_spte)."""
    suspended = (entries & MMU_PRESENT != NONE) & (entries & ACCESS == NONE)
    saved = entries >> SAVED & (READ | EXECUTE)
    return np.where(suspended, entries & ~((READ | EXECUTE) << SAVED) | saved, entries)


def as_ept(tree: Tree) -> Tree:
    """A Tree of KVM's NPT entries as the EPT that the CPU would walk; encoding "ept"."""
    return converted(tree, "ept", lambda raw, level: hardware(npt_to_ept(raw, level)))


def converted(tree: Tree, encoding: str, convert: Callable[[Entries, int], Entries]) -> Tree:
    """`tree` with every entry converted: convert(entries uint64[n, 512], level)."""
    entries = np.empty(tree.entries.shape, np.uint64)
    for level in range(1, tree.levels + 1):
        at = tree.level == level
        entries[at] = convert(tree.entries[at], level)
    return replace(tree, entries=entries, encoding=encoding)


def is_leaf(entries: Entries, level: int) -> NDArray[np.bool_]:
    return np.full(np.shape(entries), True) if level == 1 else (entries & HUGE).astype(bool)


def moved(entries: Entries, source: int, target: int) -> Entries:
    return (entries >> np.uint64(source) & np.uint64(1)) << np.uint64(target)
