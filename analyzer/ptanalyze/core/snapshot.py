"""Every page-table page of an address space: native, or a guest's tables over a VM's nested tables."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import UNKNOWN_NODE
from .footprint import Footprint

# How often pages are walked for, estimated from samples of accessed bits.

BATCHES = 10  # parts of the time; estimates without each of them say how sure the whole is
BISECTIONS = 60
SLOWEST, FASTEST = 1e-6, 1e9  # walks per second
ROBUST = 3.0  # against walks at equal intervals
ALIKE = 0.02  # windows that differ by less than this part are taken as one


@dataclass(frozen=True)
class Heat:
    """Samples of which pages were used: P pages, L lengths of samples, BATCHES parts of the time.

    address  uint64[P]      first byte of each page that some sample found used
    level    uint8[P]       of the table whose entry maps it: 1 = 4 KiB
    seen     uint8 or uint16[P, BATCHES, L]  samples that found it used
    samples  int64[BATCHES, L]
    seconds  float64[L]     mean of the samples' shortest windows, the shortest first
    spread   float64[L]     mean seconds by which their longest windows are longer
    within   float32[P, L]  part of these within the page's window, which begins when its table is cleared and
                            ends when that is read: about 1 for what is cleared first and read last
    over     seconds that walks are estimated for, 0: those sampled; the same of processes sampled together
    footprint  of its leaf lines; None where each clearing was read once only

    An accessed bit that was cleared is set again when the page is walked for: clearing flushes no TLB
    (clear_refs_write() of fs/proc/task_mmu.c, since Linux 5.11; ptdump needs 5.17). So a sample finds a page
    used if it was walked for at least once. Hot pages saturate the long samples, cold ones need them.
    """

    address: np.ndarray
    level: np.ndarray
    seen: np.ndarray
    samples: np.ndarray
    seconds: np.ndarray
    spread: np.ndarray
    within: np.ndarray
    over: float = 0.0
    footprint: Footprint | None = None

    @property
    def sampled_seconds(self) -> float:
        """Sum of the longest windows of the samples."""
        return float(self.samples.sum(axis=0) @ (self.seconds + self.spread))

    @cached_property
    def walks(self) -> np.ndarray:
        """int64[P]: estimated walks of each page in `over` seconds.

        Rounded so that those of pages that follow one another add up to what is estimated of all of them.
        """
        return self._walks(self.seen.sum(axis=1, dtype=np.int64), self.samples.sum(axis=0))

    @cached_property
    def walks_without(self) -> np.ndarray:
        """int64[P, BATCHES]: the same without the samples of each part of the time; 0 where none is left."""
        seen, samples = self.seen.sum(axis=1, dtype=np.int64), self.samples.sum(axis=0)
        parts = [self._walks(seen - self.seen[:, b], samples - self.samples[b]) for b in range(BATCHES)]
        return np.stack(parts, axis=1)

    @property
    def enough(self) -> bool:
        """Whether every part of the time has samples, so that they say how sure the whole is."""
        return bool(self.samples.sum(axis=1).all())

    @cached_property
    def saturated(self) -> np.ndarray:
        """bool[P]: every sample found it used, so that its walks may be far more than estimated."""
        return (self.seen.sum(axis=1) == self.samples.sum(axis=0)).all(axis=1)

    @cached_property
    def _alike(self) -> tuple[np.ndarray, np.ndarray]:
        """(uint64[P] of each page, float64[K, L] s: mean windows of pages that differ by less than ALIKE)."""
        new = np.append(True, (self.within[1:] != self.within[:-1]).any(axis=1))[: len(self.within)]
        windows = self.seconds + self.within[new] * self.spread
        steps = np.rint(np.log(windows) / ALIKE).astype(np.int64)
        _, kind, times = np.unique(steps, axis=0, return_inverse=True, return_counts=True)
        mean = np.zeros((len(times), len(self.seconds)))
        np.add.at(mean, kind.reshape(-1), windows)
        return kind.reshape(-1)[np.cumsum(new) - 1].astype(np.uint64), mean / times[:, None]

    def _walks(self, seen: np.ndarray, samples: np.ndarray) -> np.ndarray:
        place = np.cumprod(np.append(1, samples[:-1] + 1))
        kind, windows = self._alike
        kinds = np.uint64(max(len(windows), 1))
        patterns, which = np.unique((seen @ place).astype(np.uint64) * kinds + kind, return_inverse=True)
        of_pattern = (patterns // kinds).astype(np.int64)[:, None] // place % (samples + 1)
        time = float(samples @ (self.seconds + self.spread))
        scale = self.over / self.sampled_seconds if self.over else 1.0
        walks = (rates(of_pattern, samples, windows[patterns % kinds]) * time * scale)[which]
        return np.diff(np.floor(np.cumsum(walks) + 0.5).astype(np.int64), prepend=0)


def rates(seen: np.ndarray, samples: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """float64[U]: walks per second that int64[U, L] `seen` of int64[L] `samples` tell of.

    seconds  float64[L] or float64[U, L], of each sample
    A page walked for at rate r is seen in a sample of t seconds with probability p = 1 - exp(-r t) if walks
    come at random times (Poisson), but min(r t, 1) at equal intervals: nearly the same where both are small.
    So after the likeliest r samples count by w = exp(-ROBUST r t): the root of sum(w (seen - samples p)),
    by bisection (the likeliest is that of w = t / p). Its bias of first order is taken off (Firth, "Bias
    reduction of maximum likelihood estimates", Biometrika 80, 1993). Of one length r is
    log((samples + 1/2) / (samples - seen + 1/2)) / t: a lower bound where all saw it. Equal intervals are
    taken for up to 1.2 r, 1.3 r, 2 r where the shortest sample has r t = 0.25, 0.4, 0.8; bursts are more.
    """
    rate = np.zeros(len(seen))
    if not samples.any():
        return rate
    for likeliest in (True, False):
        weight = np.exp(-ROBUST * rate[:, None] * (seconds - seconds.min(axis=-1, keepdims=True)))
        low, high = np.full(len(seen), np.log(SLOWEST)), np.full(len(seen), np.log(FASTEST))
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            passed = np.exp(middle)[:, None] * seconds
            missed, met = np.exp(-passed), -np.expm1(-passed)
            weight = seconds / met if likeliest else weight
            slope = weight * samples * seconds * missed
            bias = (slope * seconds).sum(axis=1) * (weight**2 * samples * met * missed).sum(axis=1) / 2
            more = (weight * (seen - samples * met)).sum(axis=1) * slope.sum(axis=1) ** 2 > bias
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        rate = np.where(seen.any(axis=1), np.exp(low), 0.0)
    return rate


ENTRIES_PER_TABLE = 512
NO_PARENT = -1

CHANGED = 1  # the parent's entry changed between reading the parent and the child; the newer value was used
TORN = 2  # the parent's entry changed while the child was copied
FAULT = 4  # the table could not be read: its entries are zero
BAD_TYPE = 8  # the frame was no longer a page table when it was read
INFERRED = 16  # rebuilt from /proc/PID/pagemap: contents inferred; frame and node of the table are unknown
EMULATOR = 32  # all it can map belongs to the tracer: no table of the program's (set on reading, not on disk)

MOST_SCALED = 1_000_000  # of Snapshot.scale

VMA_DTYPE = np.dtype(
    [
        ("start", np.uint64),  # first byte
        ("end", np.uint64),  # one past the last byte
        ("prot", np.uint8),  # bit 0 read, 1 write, 2 execute
        ("shared", np.bool_),
        ("emulator", np.bool_),  # belongs to the tracer (QEMU, Pin), not to the traced program
    ]
)


@dataclass(frozen=True)
class Tree:
    """A radix page table, its T table pages in depth-first order: a parent comes before its children.

    entries  uint64[T, 512]  raw entries, usually memory-mapped; read them through `encoding`
    base     uint64[T]       first (guest-)virtual or guest-physical address the table page maps, bytes
    frame    int64[T]        page frame the table page lives in (host-physical for native and host trees,
                             guest-physical for a guest's tree); -1 unknown
    parent   int32[T]        index of the parent table page, NO_PARENT for a root
    node     int16[T]        NUMA node of `frame`, UNKNOWN_NODE where not known
    level    uint8[T]        1 = leaf table (4 KiB entries) ... `levels` = root
    flags    uint8[T]        CHANGED | TORN | FAULT | BAD_TYPE | INFERRED | EMULATOR
    encoding                 "x86", "ept" or "kvm" (KVM's SPTEs: present = bit 0 and bit 11)
    """

    entries: np.ndarray
    base: np.ndarray
    frame: np.ndarray
    parent: np.ndarray
    node: np.ndarray
    level: np.ndarray
    flags: np.ndarray
    levels: int
    encoding: str = "x86"

    def __len__(self) -> int:
        return len(self.level)


@dataclass(frozen=True)
class Node:
    """One NUMA node of the captured machine: `frames` is int64[k, 2], half-open ranges of page frames."""

    id: int
    cpus: tuple[int, ...]
    frames: np.ndarray
    distance: tuple[int, ...] = ()


@dataclass(frozen=True)
class Topology:
    nodes: tuple[Node, ...]

    def __len__(self) -> int:
        return len(self.nodes)

    def node_of_cpu(self) -> np.ndarray:
        """int16[max CPU + 1]: NUMA node of each CPU, UNKNOWN_NODE for holes."""
        last = max((cpu for node in self.nodes for cpu in node.cpus), default=-1)
        table = np.full(last + 1, UNKNOWN_NODE, np.int16)
        for node in self.nodes:
            table[list(node.cpus)] = node.id
        return table

    def node_of_frame(self, frames: np.ndarray) -> np.ndarray:
        """int16, the shape of `frames`: NUMA node of each page frame, UNKNOWN_NODE outside every node."""
        frames = np.asarray(frames)
        found = np.full(frames.shape, UNKNOWN_NODE, np.int16)
        for node in self.nodes:
            for first, end in node.frames.tolist():  # few: a search would take four times as long
                found[(frames >= first) & (frames < end)] = node.id
        return found


@dataclass(frozen=True)
class Snapshot:
    """The tables of an address space. `host` is None when nothing is nested below `guest` (native)."""

    guest: Tree
    vmas: np.ndarray  # VMA_DTYPE[V], sorted by start, disjoint
    vma_names: tuple[str, ...]
    topology: Topology
    host: Tree | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # of the dumper: quiescence, completeness, retries
    heat: Heat | None = None  # of the guest's pages
    trial: Any = None  # of page sizes, taken with it: a cost.law.PageTrial

    @property
    def native(self) -> bool:
        return self.host is None

    @property
    def numa_oblivious(self) -> bool:
        """Whether this is a VM whose guest sees a single node, whatever its host has."""
        return not self.native and bool((self.facts.get("vm") or {}).get("numa_oblivious"))

    @property
    def scale(self) -> int:
        """How many times its memory the program has that this stands for (`synth --scale`), 1 for itself."""
        return int(self.facts.get("scale") or 1)

    @property
    def trees(self) -> dict[str, Tree]:
        """{"PT": guest}, or of a VM {"gPT": guest, "ePT": host}."""
        return {"PT": self.guest} if self.host is None else {"gPT": self.guest, "ePT": self.host}

    @property
    def nested(self) -> Tree:
        """`host`, for questions about two dimensions only; ValueError on a native snapshot."""
        if self.host is None:
            raise ValueError("a native snapshot has no nested tables")
        return self.host


# Decoding of raw page-table entries, by encoding: present, mapped, leaf, frame.
#
# x86   a CPU uses an entry with bit 0. Linux keeps a page mapped without it: PROT_NONE and NUMA-hint entries
#       have bit 8 (_PAGE_PROTNONE) instead, a huge page being split bit 7; their frames are inverted because
#       of L1TF (arch/x86/include/asm/pgtable-invert.h). Bit 7 makes leaves of level 2 and 3; swap: neither.
# ept   present when any of read, write, execute (bits 0-2) is set (Intel SDM 3C, 29.3.2); bit 7 makes leaves.
# kvm   KVM's SPTEs: present = bits 0 and 11 (arch/x86/kvm/mmu/spte.h, SPTE_MMU_PRESENT_MASK), bit 7: ept's.
#       With bit 11 alone KVM suspended access to a mapped page (mark_spte_for_access_track); MMIO and removed
#       entries lack bit 11.

PRESENT = np.uint64(1)
HUGE = np.uint64(1 << 7)
PROTNONE = np.uint64(1 << 8)
KVM_MAPPED = np.uint64(1 << 11)
KVM_PRESENT = KVM_MAPPED | PRESENT
EPT_ACCESS = np.uint64(7)
ADDRESS = np.uint64((1 << 52) - (1 << 12))
NONE = np.uint64(0)
BLOCK = 3072  # table pages read at a time: 12 MiB of entries, in half the time of 16
NEAR = 128  # of them, whose entries stay in L2 for all that is done with each


def blocks(tree: Tree, levels: Iterable[int]) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.uint64]]]:
    """Yield (level, table ids int64[n], raw entries uint64[n, 512]), BLOCK tables of a level at a time."""
    for level in levels:
        at_level = np.flatnonzero(tree.level == level)
        for start in range(0, len(at_level), BLOCK):
            ids = at_level[start : start + BLOCK]
            yield level, ids, tree.entries[ids]


def present(entries: NDArray[np.uint64], encoding: str = "x86") -> NDArray[np.bool_]:
    """bool: the page walker follows the entry."""
    if encoding == "kvm":  # both bits, of the others any
        return entries & KVM_PRESENT == KVM_PRESENT
    return entries & (PRESENT if encoding == "x86" else EPT_ACCESS) != NONE


def inaccessible(entries: NDArray[np.uint64], level: int) -> NDArray[np.bool_]:
    """bool: mapped by an x86 kernel, but the walker faults: PROT_NONE, NUMA hint, split or suspended."""
    return (entries & PRESENT == NONE) & (entries & (PROTNONE | HUGE if level > 1 else PROTNONE) != NONE)


def mapped(entries: NDArray[np.uint64], level: int, encoding: str = "x86") -> NDArray[np.bool_]:
    """bool: the entry points somewhere, whether or not a walker may use it (pte_present, pmd_present)."""
    x86 = PRESENT | PROTNONE | (HUGE if level > 1 else NONE)
    return entries & {"x86": x86, "ept": EPT_ACCESS}.get(encoding, KVM_MAPPED) != NONE


def leaf(entries: NDArray[np.uint64], level: int, encoding: str = "x86") -> NDArray[np.bool_]:
    """bool: the entry maps a page of 4 KiB (level 1), 2 MiB (2) or 1 GiB (3)."""
    if level > 3:
        return np.zeros(np.shape(entries), bool)
    here = mapped(entries, level, encoding)
    return here if level == 1 else here & (entries & HUGE != NONE)


def table(entries: NDArray[np.uint64], level: int, encoding: str = "x86") -> NDArray[np.bool_]:
    """bool: the entry points to a table of level - 1."""
    return present(entries, encoding) & ~leaf(entries, level, encoding) & (level > 1)


def frame(
    entries: NDArray[np.uint64], level: int, encoding: str = "x86", leaves: bool = True
) -> NDArray[np.int64]:
    """int64: page frame of each mapped entry, the first of a huge page; meaningless where nothing is mapped.

    leaves  False for entries that point to tables, whose frame has no alignment beyond 4 KiB.
    """
    entries = np.asarray(entries, np.uint64)
    if encoding == "x86" and (hidden := inaccessible(entries, level)).any():
        entries = np.where(hidden, ~entries, entries)
    mask = ADDRESS
    if leaves and level > 1:
        mask &= ~np.uint64((1 << (3 + 9 * level)) - 1)
    return ((entries & mask) >> np.uint64(12)).view(np.int64)


def leaf_frames(tree: Tree, tables: NDArray[np.int64]) -> Iterator[tuple[slice, NDArray[np.int64]]]:
    """Yield (which of the tables, int64[n, 512]: first frame behind each entry, -1 where it maps no page)."""
    for begin in range(0, len(tables), BLOCK):
        some = slice(begin, begin + BLOCK)
        first = np.empty((len(tables[some]), 512), np.int64)
        for level in np.unique(levels := tree.level[tables[some]]).tolist():
            for at in np.split(every := np.flatnonzero(levels == level), range(NEAR, len(every), NEAR)):
                raw = tree.entries[tables[begin + at]]
                first[at] = np.where(leaf(raw, level, tree.encoding), frame(raw, level, tree.encoding), -1)
        yield some, first


# Bits of a word of /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst).

FRAME = np.uint64((1 << 55) - 1)  # of a present page; zeros where frames are hidden from the reader
PAGEMAP_PRESENT = np.uint64(1 << 63)
