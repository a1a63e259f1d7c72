"""`core.snapshot` for a single raw entry, inlined into kernels."""

import numpy as np

from .hooks import hook

X86, EPT, KVM = 0, 1, 2
CODES = {"x86": X86, "ept": EPT, "kvm": KVM}

PRESENT = np.uint64(1)
HUGE = np.uint64(1 << 7)
PROTNONE = np.uint64(1 << 8)
KVM_MAPPED = np.uint64(1 << 11)
EPT_ACCESS = np.uint64(7)
ADDRESS = np.uint64((1 << 52) - (1 << 12))
NONE = np.uint64(0)


@hook
def mapped(entry, level, code):
    """Something is behind the entry (uint64), whether or not a walker may use it."""
    if code == X86:
        hints = (PROTNONE | HUGE) if level > 1 else PROTNONE
        return (entry & (PRESENT | hints)) != NONE if (entry & PRESENT) == NONE else True
    if code == EPT:
        return (entry & EPT_ACCESS) != NONE
    return (entry & KVM_MAPPED) != NONE


@hook
def leaf(entry, level, code):
    """The entry maps a page of 4 KiB (level 1), 2 MiB (2) or 1 GiB (3)."""
    if level > 3 or not mapped(entry, level, code):
        return False
    return level == 1 or (entry & HUGE) != NONE


@hook
def frame(entry, level, code):
    """int64: page frame of a leaf entry, the first of a huge page."""
    if code == X86 and (entry & PRESENT) == NONE:
        entry = ~entry
    shift = np.uint64(9 * (level - 1))
    return np.int64((((entry & ADDRESS) >> np.uint64(12)) >> shift) << shift)
