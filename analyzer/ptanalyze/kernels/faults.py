"""Which walks are demand faults and what each step changes: the same under every policy, so found once."""

from functools import cache
from typing import NamedTuple

import numpy as np

from .hooks import called_hook, hook, kernel
from .steps import (
    BALANCING,
    CLEAR,
    DATA,
    FLUSH,
    FREE,
    HINT,
    HOST_DATA,
    MOVE,
    RUN,
    TABLE_DATA,
    UPDATE,
    data_page,
    freed_table,
    move_target,
    moved_table,
    popcount,
    slot_range,
    word_mask,
)

ONE = np.uint64(1)


class Mapped(NamedTuple):
    """State of the pass, carried from batch to batch.

    valid    uint64[L, 8]  bit map of the valid entries of each row
    exists   bool[T]       the table page exists on some node
    changed  int32[S]      valid entries each step changed; DATA, HOST_DATA, HINT: 1 if the page was mapped;
                           FREE, TABLE_DATA: 1 if the table existed; FLUSH: 1 if needed; RUN: 1
    made     uint8[S]      table pages a MOVE had to make for its target
    pending  int64[2]      valid entries changed, and tables freed, since the last FLUSH: by system calls, by
                           NUMA balancing
    """

    valid: np.ndarray
    exists: np.ndarray
    changed: np.ndarray
    made: np.ndarray
    pending: np.ndarray


@called_hook
def _make(table, parent, exists):
    """Make `table` and its missing ancestors; returns how many were missing."""
    made = 0
    while table >= 0 and not exists[table]:
        exists[table] = True
        table = parent[table]
        made += 1
    return made


@kernel
def carry_out(step, rows, parent, steps, mapped):
    kind, by = steps.kind[step], np.int64(steps.call[step] == BALANCING)
    if kind == FREE:
        table = freed_table(steps, step)
        mapped.changed[step] = mapped.exists[table]
        mapped.exists[table] = False
        mapped.pending[by] += mapped.changed[step]
    elif kind == FLUSH:
        mapped.changed[step] = mapped.pending[by] > 0
        mapped.pending[by] = 0
    elif kind in (CLEAR, UPDATE):
        row, lo, hi = slot_range(steps, step)
        changed = 0
        for word in range(lo >> 6, (hi + 63) >> 6):
            mask = word_mask(lo, hi, word)
            changed += popcount(mapped.valid[row, word] & mask)
            if kind == CLEAR:
                mapped.valid[row, word] &= ~mask
        mapped.changed[step] = changed
        mapped.pending[by] += changed
    elif kind in (DATA, HOST_DATA, HINT):
        row, slot = data_page(steps, step)
        mapped.changed[step] = (mapped.valid[row, slot >> 6] >> np.uint64(slot & 63)) & ONE
        mapped.pending[by] += 0 if kind == HOST_DATA else mapped.changed[step]
    elif kind == TABLE_DATA:
        mapped.changed[step] = mapped.exists[moved_table(steps, step)]
    elif kind == MOVE:
        _move(step, rows, parent, steps, mapped)
    elif kind == RUN:
        mapped.changed[step] = 1


@called_hook
def _move(step, rows, parent, steps, mapped):
    row, lo, hi = slot_range(steps, step)
    target, first = move_target(steps, step)
    changed = 0
    for slot in range(lo, hi):
        bit = ONE << np.uint64(slot & 63)
        if mapped.valid[row, slot >> 6] & bit:
            mapped.valid[row, slot >> 6] &= ~bit
            there = first + slot - lo
            mapped.valid[target, there >> 6] |= ONE << np.uint64(there & 63)
            changed += 1
    mapped.changed[step] = changed
    mapped.pending[0] += changed
    if changed:
        mapped.made[step] = _make(rows.leaf[target], parent, mapped.exists)


@cache
def marking(any_steps=True):
    """The kernel that marks demand faults.

    any_steps  False: `steps` is empty, and nothing is compiled for steps

    Returns mark_faults(page, slot, rows, parent, steps, mapped, first, step, fault): marks the demand faults
    among walks first, first + 1, ... and carries out the steps due before them.

    page   uint32[n], slot int16[n]  as in Reads
    parent int32[T]
    step   first step not yet done
    fault  uint8[n], filled: 0 the page was mapped; k + 1: it was not, and k table pages had to be made,
           from the leaf table upwards (handle_mm_fault in mm/memory.c)

    It returns the first step that is still to be done, and changes `mapped`.
    """
    carry = carry_out if any_steps else carry_none

    @kernel
    def mark_faults(page, slot, rows, parent, steps, mapped, first, step, fault):
        for w in range(page.size):
            while step < steps.at.size and steps.at[step] <= first + w:
                carry(step, rows, parent, steps, mapped)
                step += 1
            row, entry = rows.of_region[page[w] >> np.uint32(9)], slot[w]
            bit = ONE << np.uint64(entry & 63)
            if mapped.valid[row, entry >> 6] & bit:
                fault[w] = 0
            else:
                mapped.valid[row, entry >> 6] |= bit
                fault[w] = 1 + _make(rows.leaf[row], parent, mapped.exists)
        return step

    return mark_faults


@hook
def carry_none(step, rows, parent, steps, mapped):
    """For a trace without steps."""
