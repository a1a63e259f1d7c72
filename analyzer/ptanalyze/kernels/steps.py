"""What the memory manager does to leaf tables: the steps that every replay interleaves with the walks."""

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from .jit import hook

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
CALLS = (  # Steps.call: on whose behalf; 0 to 12 as trace.Event, what follows the kernel does on its own
    "walk", "thread_start", "thread_exit", "mmap", "munmap", "mprotect", "mremap", "madvise", "brk",
    "roi_start", "roi_end", "move_pages", "first_touch", "numa_balancing",
)  # fmt: skip
BALANCING = 13
ALL = -1  # slot: every entry of the host table, which maps one huge page of the guest


class Steps(NamedTuple):
    """S steps, sorted by `at`. A row is one leaf table that the trace touches; its slots are the 512 entries.

    at    int64[S]  before walk number `at` of the stream
    chunk int32[S]  before the walks of this chunk of the trace, or among them
    kind  uint8[S]  SET ... HINT
    row   int32[S]  of the slots; FREE: the table's, -1 where it has none
    node  int16[S]  node of the CPU that made the system call
    call  uint8[S]  index into CALLS

    Operands, int16[S] (number: int32[S]), are read by the functions below, each for the kinds it names:

                   lo          hi         was          number         to
    SET            first slot  past last               VMA id
    CLEAR, UPDATE  first slot  past last  VMA's owner
    MOVE           first slot  past last  VMA's owner  target row     first slot there
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
    """Steps, all numbers 0."""
    at, (chunk, row, number) = np.zeros(count, np.int64), np.zeros((3, count), np.int32)
    kind, call = np.zeros((2, count), np.uint8)
    lo, hi, was, to, node = np.zeros((5, count), np.int16)
    return Steps(at, chunk, kind, row, lo, hi, was, number, to, node, call)


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


# Of the number of a step in hooks, of an index array in Python, which @hook would refuse; LLVM inlines them.
view = register_jitable


@view
def slot_range(steps, step):
    """(row, first slot, one past the last) of a SET, CLEAR, UPDATE or MOVE."""
    return steps.row[step], steps.lo[step], steps.hi[step]


@view
def vma_id(steps, step):
    """VMA that the slots of a SET belong to from now on."""
    return steps.number[step]


@view
def slots_owner(steps, step):
    """Node that owns the VMA of the slots of a CLEAR, UPDATE or MOVE."""
    return steps.was[step]


@view
def move_target(steps, step):
    """(row, first slot) that a MOVE moves its slots to."""
    return steps.number[step], steps.to[step]


@view
def moves_table(steps, step):
    """Whether a MOVE takes all of a leaf table to where another one would lie."""
    return steps.lo[step] == 0 and steps.hi[step] == 512 and steps.to[step] == 0


@view
def freed_table(steps, step):
    """Flat id of the table that a FREE frees."""
    return steps.number[step]


@view
def shootdown(steps, step):
    """Index into Shootdowns of a FLUSH."""
    return steps.number[step]


@view
def data_page(steps, step):
    """(row, slot) of the page that a DATA or HOST_DATA moved, or whose entry a HINT rewrote."""
    return steps.row[step], steps.lo[step]


@view
def moved_table(steps, step):
    """Flat id of the guest table whose page a TABLE_DATA moved."""
    return steps.number[step]


@view
def node_now(steps, step):
    """Node that DATA, HOST_DATA and TABLE_DATA moved a page to, or that runs the threads after a RUN."""
    return steps.to[step]


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
