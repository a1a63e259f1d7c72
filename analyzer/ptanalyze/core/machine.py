"""The simulated machine: nodes, TLBs, page-walk caches, data caches, latencies; how its kernel moves data."""

from collections.abc import Iterator, Mapping
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, dataclass_transform

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from .columns import Finding, noted
from .errors import MOST_CPUS, MOST_NODES, UsageError, bundled, meant, plural
from .interval import Interval
from .safe_files import Undecodable, field_and_why, plain_toml, read_given, struct_of

LINE_BYTES = 64
ONE = "a share is at most 1"
INTERVALS = ("exposed", "cycles_per_instruction", "data_exposed")  # of Costs

Matrix = tuple[tuple[float, ...], ...]
Fault = tuple[str, object, str]  # field, value, error
Read = TypeVar("Read", bound="Strict")


@dataclass_transform(frozen_default=True)  # as in msgspec: a subclass of a frozen struct is frozen
class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


MOST_ENTRIES = 1 << 16  # of a TLB or page-walk cache: many times any that was built
LEAST, MOST = 1e-9, 10**12  # of costs in ns, cycles or shares: what is computed of them stays finite
Count: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_ENTRIES)]
Share: TypeAlias = Annotated[float, Meta(ge=LEAST, le=1)]
Positive: TypeAlias = Annotated[float, Meta(ge=LEAST, le=MOST)]
Nonnegative: TypeAlias = Annotated[float, Meta(ge=0, le=MOST)]


class Array(Strict):
    """A set-associative array: `entries` in sets of `ways`; the number of sets need not be a power of two."""

    entries: Count
    ways: Count

    @property
    def sets(self) -> int:
        return self.entries // self.ways


@cache
def shape(array: Array | None) -> tuple[int, int] | None:
    """(sets, ways) of an array, None if the machine lacks it."""
    return (array.sets, array.ways) if array else None


JOINS = (1, 2, 4, 8, 16)


class Tlb(Strict):
    """First-level arrays by page size; `l2` is shared by the sizes in `l2_holds`, `l2_1g` stands apart.

    joins  aligned 4 KiB pages in a row, of aligned frames in a row, that share an entry of both levels
    """

    l1_4k: Array
    l1_2m: Array
    l1_1g: Array
    l2: Array
    l2_holds: tuple[str, ...] = ("4k", "2m")
    l2_1g: Array | None = None
    joins: int = 1


class WalkCaches(Strict):
    """Paging-structure caches per CPU: a hit in `pde` skips to the leaf table, in `pdpte` to level 2, ...

    cycles  that a walk takes beside its reads
    """

    pde: Array
    pdpte: Array
    pml4e: Array
    pml5e: Array | None = None
    nested: Array | None = None  # nested TLB: guest frame -> host frame, used by two-dimensional walks
    cycles: Nonnegative = 0.0


LINES = 4  # times its ways: lines of a set that all shares of an LLC are ways of (ADR 22)


class Cache(Strict):
    """A data cache as page-table entries see it: `share` of its `bytes` holds page-table lines, of an L2
    where they bring as many lines as data do (`world.cache_pass.ways_of_tables`).

    shares  least and most that the share may be, where it is an estimate
    """

    bytes: Annotated[int, Meta(ge=1, le=1 << 32)]
    ways: Count
    share: Share
    cycles: Positive
    shares: tuple[float, ...] | None = None

    @property
    def lines(self) -> int:
        """Number of 64-byte lines left to page tables: a multiple of `ways`, at least one set."""
        return self.lines_at(self.share)

    def lines_at(self, share: float) -> int:
        return max(int(self.bytes * share) // (LINE_BYTES * self.ways), 1) * self.ways

    @property
    def every_share(self) -> tuple[float, ...]:
        """Its share and the bounds of it, ascending."""
        return tuple(sorted({self.share, *(self.shares or ())}))

    @property
    def stacks(self) -> tuple[int, list[tuple[int, int]]]:
        """(sets, [(ways of each set, sets with one more) at each of every_share])."""
        sets = max(self.bytes // (LINE_BYTES * self.ways * LINES), 1)
        return sets, [divmod(self.lines_at(share), sets) for share in self.every_share]


class Latency(Strict):
    """DRAM latency in ns, [reader's node][serving node]; `contended` under load of the interconnect.

    walk  ns of a page walk that reads its leaf entry alone from there, idle (`machines --measure`)
    """

    idle: tuple[tuple[Positive, ...], ...]
    contended: tuple[tuple[Positive, ...], ...] | None = None
    walk: tuple[tuple[Positive, ...], ...] | None = None


def _resized(matrix: Matrix, nodes: int) -> Matrix:
    known, far = len(matrix), max(max(row) for row in matrix)
    return tuple(
        tuple(matrix[a % known][b % known] if a // known == b // known else far for b in range(nodes))
        for a in range(nodes)
    )


class Machine(Strict):
    """A model of a NUMA machine, as `models/machines/NAME.toml` has it."""

    name: str
    description: str
    nodes: Annotated[int, Meta(ge=1, le=64)]
    cpus_per_node: Annotated[int, Meta(ge=1, le=MOST_CPUS)]  # hardware threads
    ghz: Annotated[float, Meta(ge=LEAST, le=1000)]
    tlb: Tlb
    walk_caches: WalkCaches
    l2: Cache  # per CPU
    llc: Cache  # per node
    latency: Latency
    costs: str  # stem of the file in models/costs/
    sources: dict[str, str]  # of each number
    memory_nodes: tuple[int, ...] = ()  # nodes without CPUs: CXL or other slower memory
    # of each node, its host's number of it, then of nodes of CPUs alone that count with it; (): 0, 1, ...
    host_nodes: tuple[tuple[int, ...], ...] = ()
    l1d: Cache | None = None  # per CPU, where walks read through it; None: they begin at L2
    walkers: Annotated[int, Meta(ge=1, le=64)] = 1  # page walks that a core has under way at most
    walk_spread: tuple[Nonnegative, Nonnegative] = (1.0, 1.0)  # quartiles of measured walks over their median
    llc_data: Positive | None = None  # cycles of a read of data that an LLC could hold which guests share
    invlpgb: bool = False  # an instruction that flushes the TLBs of all CPUs: AMD, Zen 3 and newer

    @property
    def cpu_nodes(self) -> tuple[int, ...]:
        return tuple(node for node in range(self.nodes) if node not in self.memory_nodes)

    def on_host(self, node: int) -> tuple[int, ...]:
        """The host's numbers of a node: first that of its memory. `numactl` takes these."""
        return self.host_nodes[node] if self.host_nodes else (node,)

    def latency_cycles(self, contended: bool = False) -> np.ndarray:
        """float64[nodes, nodes]: cycles of a DRAM read, [reader's node, serving node].

        UsageError for contended latencies of a machine that has none.
        """
        matrix = self.latency.contended if contended else self.latency.idle
        if matrix is None:
            raise UsageError(
                f"machine {self.name}: latency.contended = none: leave out --contended, or name a machine "
                "whose latencies under load are known"
            )
        return np.asarray(matrix, np.float64) * self.ghz

    def table_cycles(self, contended: bool = False) -> np.ndarray:
        """float64[nodes, nodes]: the same of a page walker's read of a table.

        Where walks were measured, what a walk takes beyond a read of the same memory and its own cycles is
        part of it, under load too; else it is a read like any other.
        """
        cycles = self.latency_cycles(contended)
        if self.latency.walk is None:
            return cycles
        beyond = np.subtract(self.latency.walk, self.latency.idle) * self.ghz - self.walk_caches.cycles
        return cycles + np.maximum(beyond, 0)

    def resized(self, nodes: int) -> "Machine":
        """The machine with another number of nodes: its first nodes, or more of them, each new pair as far
        apart as the farthest. UsageError outside 1..64."""
        if not 1 <= nodes <= 64:
            raise UsageError(f"nodes = {nodes}: a machine has 1 to 64 nodes")
        if nodes == self.nodes:
            return self
        contended, walk = self.latency.contended, self.latency.walk
        latency = Latency(
            idle=_resized(self.latency.idle, nodes),
            contended=None if contended is None else _resized(contended, nodes),
            walk=None if walk is None else _resized(walk, nodes),
        )
        slow = tuple(node for node in range(nodes) if node % self.nodes in self.memory_nodes)
        name = f"{self.name}, {plural(nodes, 'node')}"
        return replace(self, name=name, nodes=nodes, latency=latency, memory_nodes=slow, host_nodes=())


class CallCosts(Strict):
    """ns of a call that changes nothing: into the kernel and back, locks, VMAs."""

    mmap: Nonnegative
    munmap: Nonnegative
    mprotect: Nonnegative
    mremap: Nonnegative
    madvise: Nonnegative
    brk: Nonnegative


class EntryCost(Strict):
    """ns per entry in the first copy of its table, and in each further copy."""

    first: Nonnegative
    copy: Nonnegative


class EntryCosts(Strict):
    """Costs by what happens to an entry and its page, including the flush of the caller's own TLB."""

    fill: EntryCost  # a page is allocated and mapped; not zeroed, which is the same under every policy
    rewrite: EntryCost  # mprotect
    clear: EntryCost  # munmap: the page is freed


class Costs(Strict):
    """Costs of page-table management, assumptions of the run-time estimate (cost/price.py); times in ns."""

    name: str
    description: str
    call: CallCosts
    entry: EntryCosts
    copies_ns: Nonnegative  # to start on a further copy, once per call and copy
    remote_entry_ns: Nonnegative  # extra for an entry of a first copy on another socket
    pte_copy_ns: Nonnegative  # per entry copied to a replica
    fault_ns: Nonnegative  # demand fault, without filling its entry and zeroing its page
    zero_ns: Nonnegative  # zero a page of 4 KiB; 512 times for one of 2 MiB, 262,144 times for one of 1 GiB
    replica_fault_ns: Nonnegative  # Hydra's fault that only copies an entry, without the copy itself
    table_ns: Nonnegative  # make or free a table page
    table_move_ns: Nonnegative  # copy a table page to another node
    vm_exit_ns: Nonnegative  # into the hypervisor and back, including the work there
    ipi_first_ns: Nonnegative  # once per shootdown that interrupts any CPU; the initiator's
    ipi_local_ns: Nonnegative  # per interrupted CPU on the initiator's socket; the initiator's
    ipi_remote_ns: Nonnegative  # per interrupted CPU elsewhere; the initiator's
    ipi_handler_ns: Nonnegative  # lost by each interrupted CPU
    exposed: Interval  # cycles that the program stalls per walk cycle; above 1 where threads share a walker
    cycles_per_instruction: Interval  # outside page walks and waits for the data of walks
    data_exposed: Interval  # waits for the node's own DRAM per walk, for the data walked for
    instructions_per_access: Nonnegative  # where the trace has no instruction counts
    sources: dict[str, str]  # of each field: "published", "derived" (and how) or "estimate"
    collapse_ns: Nonnegative = 1027.0  # copy a page of 4 KiB into a huge page; older files lack it
    broadcast_ns: Nonnegative = 2700.0  # shootdown by INVLPGB; the initiator's; older files lack it
    kernel: str = ""  # Linux version that it was measured on; older files lack it


def load_machine(name_or_path: str | PathLike[str]) -> Machine:
    """Machine from models/machines/NAME.toml or from a file. UsageError names file, field and value."""
    path = model_file("machines", name_or_path)
    machine = _struct(path, Machine)
    for field, value, why in _machine_faults(machine):
        raise UsageError(f"{path}: {field} = {value}: {why}")
    return machine


def load_costs(machine: Machine, path: str | PathLike[str] | None = None) -> Costs:
    """Costs named by a Machine, or from the file `path`. UsageError names file, field and value."""
    file = model_file("costs", path or machine.costs)
    costs = _struct(file, Costs)
    for field, value, why in _cost_faults(costs):
        raise UsageError(f"{file}: {field} = {value}: {why}")
    return costs


def machine_names() -> list[str]:
    """Names of the machine files that come with the package."""
    return sorted(path.stem for path in (bundled("models") / "machines").glob("*.toml"))


def model_file(kind: str, name: str | PathLike[str]) -> Path:
    """The file of a bundled model, of "machines" or "costs", or the TOML file that the name is."""
    path = Path(name)
    known = {path.stem: path for path in (bundled("models") / kind).glob("*.toml")}
    if path.exists() and (path.suffix == ".toml" or len(path.parts) > 1):
        return path
    if str(path) not in known:
        near = meant(path.name, [*known, *(one.name for one in path.parent.glob("*.toml"))])
        there = f"there are: {', '.join(sorted(known))}; or give a .toml file"
        what = "no such file" if path.suffix else "unknown"
        raise UsageError(f"{kind.removesuffix('s')} {name}: {what}; {near}{there}")
    return known[str(path)]


def _with_middles(raw: dict[str, Any]) -> dict[str, Any]:
    """A cost file may give the ends of an interval alone: its middle is half way."""
    given = {name: raw[name] for name in INTERVALS if isinstance(raw.get(name), dict)}
    return raw | {name: {"middle": _half_way(ends), **ends} for name, ends in given.items()}


def _half_way(ends: dict[str, Any]) -> float:
    try:
        return float((ends["low"] + ends["high"]) / 2)
    except (KeyError, TypeError, OverflowError):
        return 0.0  # the ends are checked, and errors reported, elsewhere


def _struct(path: Path, kind: type[Read]) -> Read:
    try:
        plain = plain_toml(read_given(path))
        return struct_of(_with_middles(plain) if kind is Costs else plain, kind)
    except Undecodable as error:
        raise UsageError(f"{path}: {error}; `ptanalyze machines NAME` shows a whole file") from None


def _machine_faults(machine: Machine) -> Iterator[Fault]:
    known = [node for node in set(machine.memory_nodes) if 0 <= node < machine.nodes]
    if len(known) != len(machine.memory_nodes) or len(known) == machine.nodes:
        why = f"must name nodes of 0..{machine.nodes - 1}, each once, and leave one with CPUs"
        yield "memory_nodes", list(machine.memory_nodes), why
    if machine.host_nodes:
        numbers = [number for each in machine.host_nodes for number in each]
        fits = len(machine.host_nodes) == machine.nodes and all(machine.host_nodes)
        if not fits or len({*numbers} & {*range(MOST_NODES)}) < len(numbers):
            why = f"must have {machine.nodes} lists of numbers from 0 to {MOST_NODES - 1}, each once"
            yield "host_nodes", [*map(list, machine.host_nodes)], why
    for group in ("tlb", "walk_caches"):
        for name, array in msgspec.structs.asdict(getattr(machine, group)).items():
            if isinstance(array, Array) and array.entries % array.ways:
                why = f"must be a multiple of its ways, {array.ways}"
                yield f"{group}.{name}.entries", array.entries, why
    if not machine.walk_spread[0] <= 1 <= machine.walk_spread[1]:
        yield "walk_spread", list(machine.walk_spread), "must be a number up to 1 and one from 1 on"
    if machine.tlb.joins not in JOINS:
        yield "tlb.joins", machine.tlb.joins, f"must be one of {', '.join(map(str, JOINS))}"
    for name, own in (("l1d", machine.l1d), ("l2", machine.l2)):
        if own is not None and own.shares is not None:
            yield f"{name}.shares", list(own.shares), "only the LLC's share has bounds: leave it out"
    if (shares := machine.llc.shares) is not None and len(shares) != BOUNDS:
        yield "llc.shares", list(shares), "must be two numbers, the least and the most of llc.share"
    elif shares is not None and not 0 < shares[0] <= machine.llc.share <= shares[1] <= 1:
        bounds = f"must be bounds of llc.share, {machine.llc.share}, above 0 and at most 1"
        yield "llc.shares", list(shares), bounds
    yield from _latency_faults("latency.idle", machine.latency.idle, machine.nodes)
    if machine.latency.contended is not None:
        contended = machine.latency.contended  # a loaded node's own memory may be slower
        yield from _latency_faults("latency.contended", contended, machine.nodes, own_is_fastest=False)
    yield from walk_faults(machine)


def _latency_faults(field: str, matrix: Matrix, nodes: int, own_is_fastest: bool = True) -> Iterator[Fault]:
    if len(matrix) != nodes or any(len(row) != nodes for row in matrix):
        shape = f"{len(matrix)} rows of {sorted({len(row) for row in matrix})}"
        yield field, shape, f"must have {nodes} rows of {nodes} numbers, one per node"
    for a, row in enumerate(matrix):
        for b, value in enumerate(row):
            if value != matrix[b][a]:
                yield f"{field}[{a}][{b}]", value, f"differs from [{b}][{a}], {matrix[b][a]}"
            elif own_is_fastest and value < row[a]:
                yield f"{field}[{a}][{b}]", value, f"below node {a}'s own memory, {row[a]}"


def walk_faults(machine: Machine) -> Iterator[Fault]:
    """What is wrong with Latency.walk; a walk contains a read of the same memory."""
    idle, walk = machine.latency.idle, machine.latency.walk
    if walk is None:
        return
    yield from _latency_faults("latency.walk", walk, machine.nodes, own_is_fastest=False)
    for a, (reads, walks) in enumerate(zip(idle, walk, strict=False)):
        for b, (read, took) in enumerate(zip(reads, walks, strict=False)):
            if took < read:
                why = f"below a read of the same memory, {read:g}: caches held the tables; leave it out"
                yield f"latency.walk[{a}][{b}]", took, why


def _cost_faults(costs: Costs) -> Iterator[Fault]:
    for name in INTERVALS:
        low, middle, high = getattr(costs, name)
        for end, value in (("low", low), ("high", high)):
            if not 0 <= value <= MOST:
                yield f"{name}.{end}", value, f"must be a finite number, not negative, at most {MOST:,}"
        if low > high:
            yield name, f"{low}..{high}", "low must not be above high"
        elif not low <= middle <= high:
            yield f"{name}.middle", middle, f"not between low and high, {low}..{high}"
    for name, most, why in (("exposed", 2, "at most 2 threads share a walker"), ("data_exposed", 1, ONE)):
        if getattr(costs, name).high > most:
            yield f"{name}.high", getattr(costs, name).high, why
    if costs.ipi_local_ns > costs.ipi_remote_ns:
        yield "ipi_local_ns", costs.ipi_local_ns, f"above ipi_remote_ns, {costs.ipi_remote_ns}"


# The share of the LLC that holds page-table lines: an estimate, so answers cover its bounds.


def at_own_share(machine: Machine) -> Machine:
    """The machine without bounds of that share, for questions whose answers have no such interval."""
    return _sharing(machine, machine.llc.share, None)


def sharing(machine: Machine, text: str) -> Machine:
    """The machine with another share of its LLC left to page tables, "0.25", or other bounds, "0.1:0.5".

    UsageError for other texts, and for bounds that leave out the machine's own share.
    """
    try:
        shares = [float(part) for part in text.split(":")]
    except ValueError:
        shares = []
    if len(shares) not in (1, 2) or not all(0 < share <= 1 for share in shares):
        raise UsageError(
            f"--cache-share {text}: write the share of the LLC that holds page-table lines, above 0, at most "
            "1, as 0.25, or its bounds, as 0.1:0.5"
        )
    if len(shares) == 1:
        return _sharing(machine, shares[0], None)
    own, (low, high) = machine.llc.share, shares
    if not low <= own <= high:
        raise UsageError(
            f"--cache-share {text}: leaves out the machine's own share, {own:g}; give bounds around it, or a "
            "single share"
        )
    return _sharing(machine, own, (low, high))


BOUNDS = 2


def share_of_cache(machine: Machine) -> list[Finding]:
    """How much of the LLC is taken to hold page tables; none where the share has no bounds."""
    if machine.llc.shares is None:
        return []
    low, high = machine.llc.shares
    return [noted("cache-share", share=machine.llc.share, low=low, high=high)]


def _sharing(machine: Machine, share: float, shares: tuple[float, ...] | None) -> Machine:
    return replace(machine, llc=replace(machine.llc, share=share, shares=shares))


# A machine with a given ratio of remote to local latency.

MOST_LATENCY_RATIO = 1000  # remote over local latency


def at_latency_ratio(machine: Machine, ratio: float) -> Machine:
    """The Machine with remote nodes at `ratio` times the reader's own latency, idle and loaded.

    Nodes without CPUs, and nodes no farther than a node's own memory, stay as they are. UsageError for a
    ratio outside 1 to MOST, and for a machine without remote nodes.
    """
    if not 1 <= ratio <= MOST_LATENCY_RATIO:
        what = f"remote over local latency, from 1 to {MOST_LATENCY_RATIO}"
        raise UsageError(f"latency_ratio = {ratio:g}: {what}")
    idle, loaded = machine.latency.idle, machine.latency.contended
    far = np.asarray(idle) > np.diagonal(np.asarray(idle))[:, None]
    slow = list(machine.memory_nodes)
    far[slow], far[:, slow] = False, False
    if not far.any():
        raise UsageError(f"latency_ratio = {ratio:g}: machine {machine.name} has no remote nodes with CPUs")
    near, walk = _stretched(idle, far, ratio), machine.latency.walk
    latency = Latency(
        idle=near,
        contended=None if loaded is None else _stretched(loaded, far, ratio),
        walk=None if walk is None else _rows(np.add(walk, near) - idle),
    )
    name = f"{machine.name}, remote {ratio:g} times local"
    return msgspec.structs.replace(machine, name=name, latency=latency)


def _stretched(matrix: Matrix, far: np.ndarray, ratio: float) -> Matrix:
    """The latencies, those `far` (bool[nodes, nodes]) at `ratio` times the reader's own."""
    latency = np.asarray(matrix)
    return _rows(np.where(far, np.diagonal(latency)[:, None] * ratio, latency))


def _rows(matrix: np.ndarray) -> Matrix:
    return tuple(tuple(row) for row in matrix.tolist())


class Moves(Strict):
    """Moves of data pages, by default only by the trace's events; the rest are Linux's defaults."""

    autonuma: bool = False
    by: Annotated[
        Literal["auto", "guest", "host"],
        Meta(description="whose kernel moves data: auto is the hypervisor's for NUMA-oblivious guests"),
    ] = "auto"
    delay_ms: Annotated[float, Meta(ge=0, le=1e9, description="before the first scan")] = 1000.0
    scan_period_ms: Annotated[float, Meta(ge=LEAST, le=1e9, description="from one scan to the next")] = 1000.0
    scan_size_mb: Annotated[float, Meta(gt=0, le=1e9, description="marked per scan")] = 256.0
    rate_limit_mb_s: Annotated[
        float, Meta(ge=0, le=1e9, description="data moved per second, 0: no limit")
    ] = 0.0


OF_AUTONUMA = ("by", "delay_ms", "scan_period_ms", "scan_size_mb", "rate_limit_mb_s")
NOTHING_MOVES = Moves()  # except by the trace's events


def moves_from(settings: Mapping[str, Any]) -> Moves:
    """Moves with autonuma from {key: text}; UsageError names an unknown key and the known keys."""
    for key in settings:
        if key not in OF_AUTONUMA:
            known = ", ".join(OF_AUTONUMA)
            raise UsageError(f"autonuma: {key} = {settings[key]}: no such setting; it has: {known}")
    try:
        return msgspec.convert({"autonuma": True, **settings}, Moves, strict=False)
    except msgspec.ValidationError as error:
        key, why = field_and_why(error)
        raise UsageError(f"autonuma: {key} = {settings.get(key)}: {why}") from None
