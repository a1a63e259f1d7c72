"""What the memory manager does to leaf tables: the steps that every replay interleaves with the walks."""

from typing import NamedTuple

import numpy as np
from numba import njit

SET = 0  # slots lo..hi of `row` now belong to VMA `other` (0: to none that is known)
CLEAR = 1  # their valid entries are cleared: munmap, madvise, what an mmap lands on
UPDATE = 2  # their valid entries are cleared and set to something else: mprotect, MADV_FREE, MADV_COLD
MOVE = 3  # they are cleared and set again from slot `to` of row `other` on: mremap
FREE = 4  # table `other` covers no VMA any more: free_pgtables (mm/memory.c)
FLUSH = 5  # TLB shootdown number `other`, if any valid entry changed or table went since the last
DATA = 6  # the kernel that owns the guest's table moved the data page of slot `lo` from node `owner` to `to`
HOST_DATA = 7  # the hypervisor did: the guest's entry stays as it is, the host's is rewritten
TABLE_DATA = 8  # the hypervisor moved the page of guest table `other` to node `to`, as any guest memory
RUN = 9  # most of the process's threads run on node `to` from now on, before on `owner`
CALLS = (  # Steps.call: on whose behalf; 0 to 11 as trace.Event, 12 is the kernel's own NUMA balancing
    "walk", "thread_start", "thread_exit", "mmap", "munmap", "mprotect", "mremap", "madvise", "brk",
    "roi_start", "roi_end", "move_pages", "numa_balancing",
)  # fmt: skip
BALANCING = 12


class Steps(NamedTuple):
    """S steps, sorted by `at`. A row is one leaf table that the trace touches; its slots are the 512 entries.

    at     int64[S]  before walk number `at` of the stream
    kind   uint8[S]  SET ... RUN
    row    int32[S]  FREE: the table's row, -1 where it has none
    lo     int16[S]  first slot; TABLE_DATA: 1 if the host's entry is rewritten for it, 0 if for another step
    hi     int16[S]  one past the last slot; DATA, HOST_DATA, TABLE_DATA: slot of the host table that maps the
                     page, -1: all of them
    owner  int16[S]  CLEAR, UPDATE, MOVE: node that owns the VMA of these slots; DATA ...: node before
    other  int32[S]  SET: VMA id; MOVE: target row; FREE, TABLE_DATA: flat table id; FLUSH: index into
                     Shootdowns; DATA, HOST_DATA: flat id of the host table that maps the page, -1 native
    to     int16[S]  MOVE: first slot in the target row; DATA ... RUN: node from now on
    node   int16[S]  node of the CPU that made the system call
    call   uint8[S]  index into CALLS
    """

    at: np.ndarray
    kind: np.ndarray
    row: np.ndarray
    lo: np.ndarray
    hi: np.ndarray
    owner: np.ndarray
    other: np.ndarray
    to: np.ndarray
    node: np.ndarray
    call: np.ndarray


class Shootdowns(NamedTuple):
    """F TLB shootdowns that may become necessary.

    live    int32[F, nodes]  CPUs of each node that run a live thread, the calling CPU left out
    single  bool[F]          the range lies within one leaf table page
    kernel  bool[F]          it unmaps, or the range and the byte after it lie within one leaf table page
    """

    live: np.ndarray
    single: np.ndarray
    kernel: np.ndarray


class Rows(NamedTuple):
    """The leaf tables a trace touches: row r is one of them, a region's translations are in one row.

    of_region  int32[R]  row of each region of the trace
    leaf       int32[L]  flat table id of each row
    """

    of_region: np.ndarray
    leaf: np.ndarray


@njit(inline="always")
def stores(kind):
    """How often a step of this kind writes an entry: UPDATE clears it before it sets it (mm/mprotect.c)."""
    return 2 if kind == UPDATE else 1


@njit(inline="always")
def word_mask(lo, hi, word):
    """uint64: the bits of slots lo..hi that fall into 64-bit word number `word` of a row."""
    first = max(lo - 64 * word, 0)
    last = min(hi - 64 * word, 64)
    if first >= last:
        return np.uint64(0)
    return (~np.uint64(0) >> np.uint64(64 - (last - first))) << np.uint64(first)


@njit(inline="always")
def popcount(x):
    """Number of set bits of a uint64."""
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    x = x + (x >> np.uint64(8))
    x = x + (x >> np.uint64(16))
    x = x + (x >> np.uint64(32))
    return np.int64(x & np.uint64(0x7F))
