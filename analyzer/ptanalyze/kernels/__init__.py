"""What a replay counts, and its names: calls, kinds of events, classes of walks. Nothing here needs Numba."""

from typing import NamedTuple

import numpy as np

READ_BITS = 48  # bit 8 * g + h of Reads.read
OWN_CACHES = 2  # of a CPU, before the LLC: L1D and L2
CALLS = (  # MmSteps.call: on whose behalf; 0 to 12 as trace.Event, what follows the kernel does on its own
    "walk", "thread_start", "thread_exit", "mmap", "munmap", "mprotect", "mremap", "madvise", "brk",
    "roi_start", "roi_end", "move_pages", "first_touch", "numa_balancing",
)  # fmt: skip
BALANCING = 13
LL, LR, RL, RR = range(4)  # guest leaf first, host leaf second; native walks are LL or RL

(
    PTE_WRITE, PTE_FANOUT, FAULT, REPLICA_FAULT, PTE_COPY, TABLE_NEW, TABLE_FREE, IPI, IPI_SAVED, TABLE_MOVED,
    VM_EXIT, PAGES_ZEROED,
) = range(12)  # fmt: skip
OF_TABLES = [TABLE_NEW, TABLE_FREE, TABLE_MOVED]


class Kind(NamedTuple):
    """A kind of event, and how people read of it: `title` "" nowhere; host: of host tables, None: none."""

    name: str
    meaning: str
    title: str = ""
    host: str | None = None


KINDS = (
    Kind("pte_writes", "stores to leaf entries of first copies, two to each by mprotect; to = its node",
         "PTE writes", "ePT writes"),
    Kind("pte_fanout", "such stores to further copies",
         "PTE writes fanned out", "ePT writes fanned out"),
    Kind("faults", "demand faults; to = node that holds the new entry first",
         "page faults"),
    Kind("replica_faults", "faults (host: violations) that only copied an entry; to = node it came from",
         "replica faults", "ePT violations"),
    Kind("pte_copies", "entries copied, prefetched ones included; to = node they were copied from",
         "PTE copies", "ePT copies"),
    Kind("tables_new", "table pages made (zeroed, linked into their parent); to = node they are on",
         "", ""),
    Kind("tables_freed", "table pages freed"),
    Kind("ipis", "TLB shootdown IPIs; to = node of the interrupted CPU", "IPIs"),
    Kind("ipis_saved", "CPUs with a live thread that a filter spared", "IPIs saved"),
    Kind("tables_moved", "table pages copied whole to another node; from = node they were on",
         "tables moved", "ePT tables moved"),
    Kind("vm_exits", "guest entries written that trap into the hypervisor (shadow paging)",
         "VM exits"),
    Kind("pages_zeroed", "pages of 4 KiB that demand faults zero, 512 for a page of 2 MiB; to = from",
         "4 KiB pages zeroed"),
)  # fmt: skip
EVENT_KINDS = tuple(kind.name for kind in KINDS)


class Counters(NamedTuple):
    """Everything a replay counts. `from` is the node of the CPU that walked, faulted or made the system call.

    reads        int64[48, nodes, nodes, 3 + shares]  [bit of Reads.read, reader's node, serving node, how
                                             many caches miss it, Reads.missed: 0 comes from L1D, 1 from L2,
                                             2 from the LLC, the last from DRAM, both at every share]
    classes      int64[nodes, 4]             walks by [reader's node, LL LR RL RR] of the leaf entries that
                                             they end with: where a walk copied the entry, its own node's
    events       int64[calls, kinds, nodes, nodes]  [steps.CALLS, EVENT_KINDS, from, to] of the guest's table
    host_events  the same of the host's
    pages        int64[2]                    guest table pages now, and at most so far; host_pages: the host's
    """

    reads: np.ndarray
    classes: np.ndarray
    events: np.ndarray
    host_events: np.ndarray
    pages: np.ndarray
    host_pages: np.ndarray
