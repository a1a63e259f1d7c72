"""Guest frames of the 4 KiB pages of a snapshot, and new frames for them."""

from typing import NamedTuple

import numpy as np

from .entries import ADDRESS, PRESENT, X86, frame, mapped
from .hooks import kernel
from .reserve import FREE, NONE, SPECIAL, WAITING

SEVERAL, MOVABLE = 2, 3  # of `users`, below that a frame's number of pages
NO_POOL = 0xFF  # of `pool_of`: the host maps nothing there


class Parts(NamedTuple):
    """S runs of slots lo..hi-1 of leaf tables (level 1)."""

    table: np.ndarray  # int32[S]  flat id of the table
    base: np.ndarray  # int64[S]  number of its first page
    lo: np.ndarray  # int16[S]
    hi: np.ndarray  # int16[S]
    movable: np.ndarray  # bool[S]  the allocator serves its pages


@kernel
def count_users(entries, tables, users):
    """users[f] (uint8[F]) += 1, up to SEVERAL, for each entry with frame f of leaf tables (int32[n])."""
    for t in range(len(tables)):
        for slot in range(512):
            entry = entries[tables[t], slot]
            if mapped(entry, 1, X86):
                number = frame(entry, 1, X86)
                if number < len(users) and users[number] < SEVERAL:
                    users[number] += 1


@kernel
def pick(entries, parts, pool_of, users, captured, now, kept):
    """Pick the pages that the allocator serves: captured (uint32[P]) gets their frame, now (uint32[P]) FREE.

    Pages that are not mapped get FREE where the allocator would serve them. users[f] becomes MOVABLE.
    kept  int64[3]  mapped pages that stay: of other VMAs, whose frame others use too, unmapped in the host
    """
    for s in range(len(parts.table)):
        table, base = parts.table[s], parts.base[s]
        for slot in range(parts.lo[s], parts.hi[s]):
            there = table < len(entries) and mapped(entries[table, slot], 1, X86)
            if not there:
                if parts.movable[s]:
                    now[base + slot] = FREE
                continue
            number = frame(entries[table, slot], 1, X86)
            if not parts.movable[s]:
                kept[0] += 1
            elif number >= len(users) or pool_of[number >> 9] == NO_POOL:
                kept[2] += 1
            elif users[number] != 1:
                kept[1] += 1
            else:
                users[number] = MOVABLE
                captured[base + slot], now[base + slot] = np.uint32(number), FREE


@kernel
def mark_walked(page, region_base, now):
    """Pages that are FREE and walked for become WAITING. page, region_base: as in kernels.reserve.run."""
    for i in range(len(page)):
        base = region_base[page[i] >> np.uint32(9)]
        if base != NONE:
            number = base + np.int64(page[i] & np.uint32(511))
            if now[number] == FREE:
                now[number] = WAITING


@kernel
def rewrite(entries, table, captured, now):
    """Entries (uint64[T, 512]) of leaf tables get the frames `now`: page k << 9 | slot is in table[k].

    Flags stay; the frame of an entry without the present bit is inverted, as it was.
    """
    for k in range(len(table)):
        for slot in range(512):
            number = k << 9 | slot
            if captured[number] >= SPECIAL or now[number] == captured[number]:
                continue
            entry, address = entries[table[k], slot], np.uint64(now[number]) << np.uint64(12)
            if entry & PRESENT == np.uint64(0):
                address = ~address & ADDRESS
            entries[table[k], slot] = (entry & ~ADDRESS) | address
