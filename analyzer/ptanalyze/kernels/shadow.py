"""Guest leaf entries rewritten to the host frames behind their guest frames."""

from typing import NamedTuple

import numpy as np

from .entries import ADDRESS, NONE, PRESENT, X86, frame, leaf
from .hooks import hook, kernel


class Nested(NamedTuple):
    """The host's tables. host_of counts them from `first` on."""

    entries: np.ndarray  # uint64[H, 512]
    level: np.ndarray  # uint8[H]
    host_of: np.ndarray  # int32[D], AddressSpace.host_of
    first: int
    code: int


@kernel
def to_host_frames(entries, levels, code, nested):
    """Rewrite every leaf entry of `entries` (uint64[T, 512]) of tables of `levels` (uint8[T]) in place.

    Entries that the host does not map become 0; returns the number of 4 KiB pages they mapped.
    """
    missing = 0
    for table in range(len(levels)):
        level = np.int64(levels[table])
        if level > 3:
            continue
        for slot in range(512):
            entry = entries[table, slot]
            if not leaf(entry, level, code):
                continue
            number = host_frame(frame(entry, level, code), nested)
            if number < 0:
                missing += 1 << (9 * (level - 1))
                entries[table, slot] = NONE
                continue
            address = np.uint64(number) << np.uint64(12)
            if code == X86 and (entry & PRESENT) == NONE:
                address = ~address
            entries[table, slot] = (entry & ~ADDRESS) | (address & ADDRESS)
    return missing


@hook
def host_frame(number, nested):
    """int64 host frame behind a guest frame, -1 where the host maps nothing."""
    if number >> 9 >= len(nested.host_of) or nested.host_of[number >> 9] < 0:
        return np.int64(-1)
    table = np.int64(nested.host_of[number >> 9]) - nested.first
    level = np.int64(nested.level[table])
    shift = 9 * (level - 1)
    entry = nested.entries[table, (number >> shift) & 511]
    if not leaf(entry, level, nested.code):
        return np.int64(-1)
    return frame(entry, level, nested.code) + (number & ((np.int64(1) << shift) - 1))
