"""The replay loop: the node that serves each read of each walk under a policy, and the memory manager's steps
between the walks. It counts; cost prices.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from . import BALANCING, CALLS, EVENT_KINDS, FAULT, LL, OWN_CACHES, PAGES_ZEROED, READ_BITS, RL, Counters  # noqa: F401
from .jit import called_hook, hook, kernel

SET = 0  # slots now belong to another VMA (0: to none that is known)
CLEAR = 1  # their valid entries are cleared: munmap, madvise, what an mmap lands on
UPDATE = 2  # their valid entries are cleared and set to something else: mprotect, MADV_FREE, MADV_COLD
MOVE = 3  # they are cleared and set again in another row, or elsewhere in theirs: mremap
FREE = 4  # a table covers no VMA any more: free_pgtables (mm/memory.c)
FLUSH = 5  # TLB shootdown, if any valid entry changed or table went since the last
DATA = 6  # the kernel that owns the guest's table moved a data page to another node
HOST_DATA = 7  # the hypervisor did: the guest's entry stays as it is, the host's is rewritten
TABLE_DATA = 8  # the hypervisor moved the page of a guest table to another node, as any guest memory
RUN = 9  # most of the process's threads run on another node from now on
HINT = 11  # NUMA balancing marked an entry (change_prot_numa) or restored it
ALL = -1  # slot: every entry of the host table, which maps one huge page of the guest
SPLIT = -1  # first slot there, of a MOVE: a huge entry becomes the 512 of a leaf table (__split_huge_pmd)


class MmSteps(NamedTuple):
    """S steps, sorted by `at`. A row is one leaf table that the trace touches; its slots are the 512 entries.

    at    int64[S]  before walk number `at` of the stream
    chunk int32[S]  before the walks of this chunk of the trace, or among them
    kind  uint8[S]  SET ... HINT
    row   int32[S]  of the slots; FREE: the table's, -1 where it has none
    node  int16[S]  node of the CPU that made the system call
    call  uint8[S]  index into CALLS

    Operands, int16[S] (number: int32[S]), by kind; slot_range, move_target and host_entry read several:

                   lo          hi         was          number         to
    SET            first slot  past last               VMA id
    CLEAR, UPDATE  first slot  past last  VMA's owner  1: in no TLB
    MOVE           first slot  past last  VMA's owner  target row     first slot there, or SPLIT
    FREE                                               table
    FLUSH                                              shootdown
    DATA           slot        host slot  node before  host table     node now
    HOST_DATA      slot        host slot  node before  host table     node now
    TABLE_DATA     rewritten   host slot  node before  table          node now
    RUN                                   node before                 node now
    HINT           slot
    """

    at: np.ndarray
    chunk: np.ndarray
    kind: np.ndarray
    row: np.ndarray
    lo: np.ndarray
    hi: np.ndarray
    was: np.ndarray
    number: np.ndarray
    to: np.ndarray
    node: np.ndarray
    call: np.ndarray


def blank_steps(count):
    """MmSteps, all numbers 0."""
    at, (chunk, row, number) = np.zeros(count, np.int64), np.zeros((3, count), np.int32)
    kind, call = np.zeros((2, count), np.uint8)
    lo, hi, was, to, node = np.zeros((5, count), np.int16)
    return MmSteps(at, chunk, kind, row, lo, hi, was, number, to, node, call)


class Shootdowns(NamedTuple):
    """F TLB shootdowns that may become necessary.

    live    int32[F, nodes]  CPUs of each node that run a live thread, the calling CPU left out
    single  bool[F]          the range lies within one leaf table page
    kernel  bool[F]          it unmaps, or the range and the byte after it lie within one leaf table page
    broadcast bool[F]        an instruction flushes all CPUs (INVLPGB): none are interrupted, `live` is 0
    """

    live: np.ndarray
    single: np.ndarray
    kernel: np.ndarray
    broadcast: np.ndarray


class Rows(NamedTuple):
    """The leaf tables a trace touches: row r is one of them, a region's translations are in one row.

    of_region  int32[R]  row of each region of the trace
    leaf       int32[L]  flat table id of each row
    """

    of_region: np.ndarray
    leaf: np.ndarray


# Of the number of a step in hooks, or in Python, which @hook would refuse; LLVM inlines them.
view = register_jitable


@view
def slot_range(steps, step):
    """(row, first slot, one past the last) of a SET, CLEAR, UPDATE or MOVE."""
    return steps.row[step], steps.lo[step], steps.hi[step]


@view
def move_target(steps, step):
    """(row, first slot, entries there for each one here) that a MOVE moves its slots to."""
    return steps.number[step], max(steps.to[step], 0), 512 if steps.to[step] == SPLIT else 1


@view
def moves_table(steps, step):
    """Whether a MOVE takes all of a leaf table to where another one would lie."""
    return steps.lo[step] == 0 and steps.hi[step] == 512 and steps.to[step] == 0


@hook
def host_entry(steps, tables, step):
    """(flat id of the host table, slot or ALL) that maps the page a DATA, HOST_DATA or TABLE_DATA moved.

    The table is -1 where there is none (native), and of a TABLE_DATA whose page shares its entry with that of
    the step before: it is rewritten once.
    """
    table = np.int64(steps.number[step])
    if steps.kind[step] == TABLE_DATA:
        table = np.int64(tables.host_leaf[table]) if steps.lo[step] else np.int64(-1)
    return table, np.int64(steps.hi[step])


@hook
def stores(kind):
    """Number of stores per entry of a step: UPDATE clears it before it sets it (mm/mprotect.c)."""
    return 2 if kind == UPDATE else 1


@hook
def word_mask(lo, hi, word):
    """uint64: the bits of slots lo..hi that fall into 64-bit word number `word` of a row."""
    first = max(lo - 64 * word, 0)
    last = min(hi - 64 * word, 64)
    if first >= last:
        return np.uint64(0)
    return (~np.uint64(0) >> np.uint64(64 - (last - first))) << np.uint64(first)


@hook
def popcount(x):
    """Number of set bits of a uint64."""
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    x = x + (x >> np.uint64(8))
    x = x + (x >> np.uint64(16))
    x = x + (x >> np.uint64(32))
    return np.int64(x & np.uint64(0x7F))


ONE = np.uint64(1)
HOST_BITS = np.uint64(0x3E)
NO_NODE, FARTHEST = np.int64(-1 << 62), np.int64(1 << 32)  # of what a replay returns where a hook fails
COPIED = np.int64(1 << 31)  # on_walk returns COPIED + node of a walk that copies the entry from that node


class CallCounters(NamedTuple):
    """Counters of hooks: the events of a call (steps.CALLS), or of walks.

    events       int64[kinds, nodes, nodes]  [EVENT_KINDS, from, to] of the guest's table
    host_events  the same of the host's
    pages        int64[2]                    as in Counters; host_pages: the host's
    """

    events: np.ndarray
    host_events: np.ndarray
    pages: np.ndarray
    host_pages: np.ndarray


def counters(nodes, shares=1):
    """Counters of zeros for a machine with `nodes` nodes."""
    events = len(CALLS), len(EVENT_KINDS), nodes, nodes
    return Counters(
        np.zeros((READ_BITS, nodes, nodes, OWN_CACHES + shares + 1), np.int64),
        np.zeros((nodes, 4), np.int64),
        np.zeros(events, np.int64),
        np.zeros(events, np.int64),
        np.zeros(2, np.int64),
        np.zeros(2, np.int64),
    )


@hook
def missed_at(missed, walk, bit):
    """uint64: how many caches miss a read, of Reads.missed, of 2 or 3 planes: a loop takes a fifth longer."""
    at = np.uint64(bit)
    misses = (missed[walk, 0] >> at) & ONE | ((missed[walk, 1] >> at) & ONE) << ONE
    if missed.shape[1] > 2:
        misses |= ((missed[walk, 2] >> at) & ONE) << np.uint64(2)
    return misses


@hook
def grow(pages, by):
    """Count `by` more table pages."""
    pages[0] += by
    pages[1] = max(pages[0], pages[1])


@hook
def call_counters(counters, call):
    """The CallCounters of `call`, a view of Counters."""
    return CallCounters(
        counters.events[call], counters.host_events[call], counters.pages, counters.host_pages
    )


@hook
def take_none(tables, rows, steps, shootdowns, mapped, guest_state, host_state, counters, step):
    """For a trace without steps: the hooks for steps are half of what there is to compile."""


@hook
def missing(server, nodes):
    """Whether the machine lacks the node that a hook returned."""
    return server < 0 or server >= nodes


@hook
def no_node(server):
    """What a replay returns then, for wrong_node."""
    return NO_NODE + min(max(np.int64(server), -FARTHEST), FARTHEST)


def wrong_node(returned):
    """The node that the machine lacks, of what a replay returned that is below 0."""
    return int(returned - NO_NODE)


@cache
def replay_for(guest, host, any_steps=True):
    """Compile the loop for the hooks of both dimensions (policies.contract: GuestHooks, HostHooks).

    any_steps  False: `steps` is empty, and nothing is compiled for steps

    _nrt=False: no reference counts, which cost 20 times as much as the replay; nothing here allocates.

    Returns replay(cpu_node, reads, fault, tables, rows, steps, shootdowns, mapped, guest_state,
    host_state, counters, first, step, last): replays walks first, first + 1, ... of the stream and
    the steps due before them, if `last` those after them too; returns the next step, or, for wrong_node, that
    a hook returned a node that the machine lacks.
    """
    server_of, on_walk, on_step = guest
    host_locate, on_nested, on_host_step = host

    @hook
    def count_read(counts, bit, node, server, missed, walk):
        at = np.uint64(bit), np.uint64(node), np.uint64(server), missed_at(missed, walk, bit)
        counts[at] += 1

    @called_hook
    def take_one(tables, rows, steps, shootdowns, mapped, guest_state, host_state, counters, step):
        now = call_counters(counters, steps.call[step])
        on_step(guest_state, tables, rows, steps, shootdowns, mapped, now, step)
        if steps.kind[step] >= DATA:
            on_host_step(host_state, tables, rows, steps, mapped, now, step)

    take = take_one if any_steps else take_none

    @kernel
    def replay(
        cpu_node, reads, fault, tables, rows, steps, shootdowns, mapped, guest_state, host_state,
        counters, first, step, last,
    ):  # fmt: skip
        cpu, page, leaves, slots = reads.cpu, reads.page, reads.leaf, reads.slot
        hosts, host_slots, masks, missed = reads.host_leaf, reads.host_slot, reads.read, reads.missed
        parent, level, host_leaf, host_slot = tables.parent, tables.level, tables.host_leaf, tables.host_slot
        due, of_region, nodes = steps.at, rows.of_region, counters.classes.shape[0]
        for w in range(np.uint64(page.size)):
            while step < due.size and due[step] <= first + np.int64(w):
                take(tables, rows, steps, shootdowns, mapped, guest_state, host_state, counters, step)
                step += 1
            node, table, host = np.int64(cpu_node[np.uint64(cpu[w])]), np.int64(leaves[w]), np.int64(hosts[w])
            mask, slot = masks[w], np.int64(host_slots[w])
            counts, now = counters.reads, call_counters(counters, 0)
            row = of_region[page[w] >> np.uint32(9)]
            server = np.int64(on_walk(guest_state, tables, table, row, slots[w], node, fault[w], now))
            copied = server >= COPIED  # and is walked again, in the own table
            if copied:
                server -= COPIED
            if missing(server, nodes):
                return no_node(server)
            kind = LL if copied or server == node else RL
            guest = np.int64(level[np.uint64(table)])
            if fault[w]:
                now.events[PAGES_ZEROED, node, node] += np.int64(1) << (9 * (guest - 1))
            at = 8 * guest
            count_read(counts, at, node, server, missed, w)
            mask ^= ONE << np.uint64(at)
            if host >= 0:
                server = np.int64(on_nested(host_state, tables, host, slot, node, now))
                if missing(server, nodes):
                    return no_node(server)
                kind += server != node
                bit = np.int64(level[host])
                if (mask >> np.uint64(bit)) & ONE:
                    count_read(counts, bit, node, server, missed, w)
                    mask ^= ONE << np.uint64(bit)
                host, slot = np.int64(parent[host]), np.int64(-1)
            counters.classes[np.uint64(node), np.uint64(kind)] += 1
            at = 0
            while mask != 0:
                while host >= 0 and (mask >> np.uint64(at)) & HOST_BITS:
                    bit = at + np.int64(level[host])
                    if (mask >> np.uint64(bit)) & ONE:
                        if slot >= 0:
                            server = np.int64(on_nested(host_state, tables, host, slot, node, now))
                        else:
                            server = host_locate(host_state, host, node)
                        if missing(server, nodes):
                            return no_node(server)
                        count_read(counts, bit, node, server, missed, w)
                        mask ^= ONE << np.uint64(bit)
                    host, slot = np.int64(parent[host]), np.int64(-1)
                if at > 0:
                    table = np.int64(parent[np.uint64(table)])
                    if table < 0:
                        break
                    guest += 1
                at = 8 * guest
                if (mask >> np.uint64(at)) & ONE:
                    server = server_of(guest_state, table, node)
                    if missing(server, nodes):
                        return no_node(server)
                    count_read(counts, at, node, server, missed, w)
                    mask ^= ONE << np.uint64(at)
                at_table = np.uint64(table)
                host, slot = np.int64(host_leaf[at_table]), np.int64(host_slot[at_table])
        while last and step < due.size:
            take(tables, rows, steps, shootdowns, mapped, guest_state, host_state, counters, step)
            step += 1
        return step

    return replay


# Which walks are demand faults and what each step changes: the same under every policy, so found once.


# Pages that are to be freed wait for the shootdown in batches: of 8 and 19 of 510 (MMU_GATHER_BUNDLE,
# MAX_GATHER_BATCH_COUNT, MAX_GATHER_BATCH, include/asm-generic/tlb.h). When these are full, zap_pte_range
# flushes, and goes on.
GATHERED, CLEARED = 8 + 19 * 510, 2


class PteState(NamedTuple):
    """State of the pass, carried from batch to batch.

    valid    uint64[L, 8]  bit map of the valid entries of each row
    exists   bool[T]       the table page exists on some node
    changed  int32[S]      valid entries each step changed; DATA, HOST_DATA, HINT: 1 if the page was mapped;
                           FREE, TABLE_DATA: 1 if the table existed; FLUSH: shootdowns; RUN: 1
    made     uint8[S]      table pages a MOVE had to make for its target
    pending  int64[3]      entries changed, and tables freed, since a FLUSH: by system calls, by balancing;
                           those that a call cleared, whose pages it gathers
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
def carry_out(first, past, rows, parent, steps, mapped):
    for step in range(first, past):
        carry_out_one(step, rows, parent, steps, mapped)


@called_hook
def carry_out_one(step, rows, parent, steps, mapped):
    kind, by = steps.kind[step], np.int64(steps.call[step] == BALANCING)
    if kind == FREE:
        table = steps.number[step]
        mapped.changed[step] = mapped.exists[table]
        mapped.exists[table] = False
        mapped.pending[by] += mapped.changed[step]
    elif kind == FLUSH:
        full = mapped.pending[CLEARED] // GATHERED if by == 0 else 0
        mapped.changed[step] = full + (mapped.pending[by] > full * GATHERED)
        mapped.pending[by] = 0
        mapped.pending[CLEARED] *= by
    elif kind in (CLEAR, UPDATE):
        row, lo, hi = slot_range(steps, step)
        changed = 0
        for word in range(lo >> 6, (hi + 63) >> 6):
            mask = word_mask(lo, hi, word)
            changed += popcount(mapped.valid[row, word] & mask)
            if kind == CLEAR:
                mapped.valid[row, word] &= ~mask
        mapped.changed[step] = changed
        mapped.pending[by] += changed if steps.number[step] == 0 else 0
        mapped.pending[CLEARED] += changed if kind == CLEAR else 0
    elif kind in (DATA, HOST_DATA, HINT):
        row, slot = steps.row[step], steps.lo[step]
        mapped.changed[step] = (mapped.valid[row, slot >> 6] >> np.uint64(slot & 63)) & ONE
        mapped.pending[by] += 0 if kind == HOST_DATA else mapped.changed[step]
    elif kind == TABLE_DATA:
        mapped.changed[step] = mapped.exists[steps.number[step]]
    elif kind == MOVE:
        _move(step, rows, parent, steps, mapped)
    elif kind == RUN:
        mapped.changed[step] = 1


@called_hook
def _move(step, rows, parent, steps, mapped):
    row, lo, hi = slot_range(steps, step)
    target, first, each = move_target(steps, step)
    changed = 0
    for slot in range(lo, hi):
        bit = ONE << np.uint64(slot & 63)
        if mapped.valid[row, slot >> 6] & bit:
            mapped.valid[row, slot >> 6] &= ~bit
            for there in range(first + slot - lo, first + slot - lo + each):
                mapped.valid[target, there >> 6] |= ONE << np.uint64(there & 63)
            changed += 1
    mapped.changed[step] = changed
    mapped.pending[0] += changed
    if changed:
        mapped.made[step] = _make(rows.leaf[target], parent, mapped.exists)


@kernel
def mark_faults(page, slot, rows, parent, steps, mapped, first, step, fault):
    """Mark the demand faults among walks first, first + 1, ... and carry out the steps due before them.

    page   uint32[n], slot int16[n]  as in Reads
    parent int32[T]
    step   first step not yet done
    fault  uint8[n], filled: 0 the page was mapped; k + 1: it was not, and k table pages had to be made,
           from the leaf table upwards (handle_mm_fault in mm/memory.c)

    It returns the first step that is still to be done, and changes `mapped`.
    """
    for w in range(page.size):
        while step < steps.at.size and steps.at[step] <= first + w:
            carry_out_one(step, rows, parent, steps, mapped)
            step += 1
        row, entry = rows.of_region[page[w] >> np.uint32(9)], slot[w]
        bit = ONE << np.uint64(entry & 63)
        if mapped.valid[row, entry >> 6] & bit:
            fault[w] = 0
        else:
            mapped.valid[row, entry >> 6] |= bit
            fault[w] = 1 + _make(rows.leaf[row], parent, mapped.exists)
    return step
