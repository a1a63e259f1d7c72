"""The machine walks are replayed on: nodes, TLBs, page-walk caches, data caches, latencies."""

import msgspec
import numpy as np

LINE_BYTES = 64
ENTRY_BYTES = 8


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Array(Strict):
    """A set-associative array: `entries` in sets of `ways`; the number of sets need not be a power of two."""

    entries: int
    ways: int

    @property
    def sets(self):
        return self.entries // self.ways


class Tlb(Strict):
    """First-level arrays by page size; `l2` is shared by the sizes in `l2_holds`, `l2_1g` stands apart."""

    l1_4k: Array
    l1_2m: Array
    l1_1g: Array
    l2: Array
    l2_holds: tuple[str, ...] = ("4k", "2m")
    l2_1g: Array | None = None


class WalkCaches(Strict):
    """Paging-structure caches per CPU: a hit in `pde` skips to the leaf table, in `pdpte` to level 2, ..."""

    pde: Array
    pdpte: Array
    pml4e: Array
    pml5e: Array | None = None
    nested: Array | None = None  # nested TLB: guest frame -> host frame, used by two-dimensional walks


class Cache(Strict):
    """A data cache as page-table entries see it: `share` of its `bytes` holds page-table lines."""

    bytes: int
    ways: int
    share: float
    cycles: float

    @property
    def lines(self):
        """Number of 64-byte lines left to page tables: a multiple of `ways`, at least one set."""
        return max(int(self.bytes * self.share) // (LINE_BYTES * self.ways), 1) * self.ways


class Latency(Strict):
    """DRAM latency in ns, [reader's node][serving node]; `contended` under load of the interconnect."""

    idle: tuple[tuple[float, ...], ...]
    contended: tuple[tuple[float, ...], ...] | None = None


class Machine(Strict):
    name: str
    description: str
    nodes: int
    cpus_per_node: int  # hardware threads
    ghz: float
    tlb: Tlb
    walk_caches: WalkCaches
    l2: Cache  # per CPU
    llc: Cache  # per node
    latency: Latency
    costs: str  # stem of the file in models/costs/
    sources: dict[str, str]  # what each number was taken from

    def latency_cycles(self, contended=False):
        """float64[nodes, nodes]: cycles of a DRAM read, [reader's node, serving node]."""
        matrix = self.latency.contended if contended else self.latency.idle
        return np.asarray(matrix, np.float64) * self.ghz
