"""The contract of placement policies: a name, typed parameters, and a side for each dimension.

The walks, their demand faults, and the steps of the memory manager are the same under every policy
(docs/data-path.md). Only the tables differ: a PolicySide describes a dimension by a state and three
Numba functions that never allocate.

The guest's (or, native, the only) table, GuestHooks:

server_of(state, table, node) -> node
    Which node serves a read of `table` (flat id) by a CPU of `node`? Inlined.
on_walk(state, tables, leaf, row, slot, node, fault, counters) -> node
    A CPU of `node` walks through entry `slot` of `leaf`, row `row`. `fault` is 0, or 1 + the number of table
    pages that a demand fault made, `leaf` upwards. Keeps up the state, counts what the policy writes and
    copies (kernels.replay.CallCounters), and says which node serves the read of the leaf entry: node, or
    kernels.replay.COPIED + node where the CPU's own node lacked the entry and copied it from there. Such a
    walk is done again in the own table, its leaf entry counts as local. Inlined: keep the common way short.
on_step(state, tables, rows, steps, shootdowns, mapped, counters, step)
    The memory manager takes a step of kernels.replay; mapped.changed[step] is the number of changed entries,
    the columns of kernels.replay.MmSteps say which. Not inlined.

The host's, HostHooks:

server_of(state, table, node) -> node
on_walk(state, tables, table, slot, node, counters) -> node
    A CPU of `node` needs leaf entry `slot` of host table `table`. Counts into counters.host_events, and says
    which node serves the read. Inlined.
on_step(state, tables, rows, steps, mapped, counters, step)
    Data moved (kernels.replay.DATA and above).

A policy may also reshape the Scenario before anything is replayed: other frames, other page sizes, another
paging mode. Policies that act on different things go together: "ptemagnet+hydra" (registry.py).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from ..core.columns import Finding
from ..core.errors import UNKNOWN_NODE, RefusedError, UsageError, is_whole
from ..core.machine import Machine, Strict
from ..core.safe_files import field_and_why
from ..kernels.jit import called_hook, hook, kernel
from ..world.page_homes import single_node
from ..world.scenario import Scenario
from ..world.traced_program import LEFT_OUT

__all__ = ["GuestHooks", "HostHooks", "Policy", "PolicySide", "Scenario", "called_hook", "hook", "kernel"]

Hook: TypeAlias = Callable[..., Any]  # compiled, with the arguments above


class GuestHooks(NamedTuple):
    server_of: Hook
    on_walk: Hook
    on_step: Hook


class HostHooks(NamedTuple):
    server_of: Hook
    on_walk: Hook
    on_step: Hook


class PolicySide(NamedTuple):
    """Tables of a dimension under a policy. Its state and its params are of types of the policy's own.

    start(scenario, params) -> (state of the hooks, table pages it starts with)
    implicit_tables(state, scenario, tables) -> table pages: number of pages needed to make `tables` (flat
    ids), which the snapshot has though the trace's events had freed them: the kernel filled them on the
    program's behalf. None: one each.
    initial_servers(state, ids) -> int16[k, nodes]: node that serves each table of the slice `ids` to each
    reader before anything is touched, or None where that depends on it. Without it the policy needs a trace.
    facts(state, scenario, params, pages) -> {name: number} of the replay for the Result; pages: Counters'.
    setup_events(state, scenario, events): counts what it takes to get from the captured tables to the
    policy's before the first walk, into int64[kinds, nodes, nodes].
    between_runs(state, events, pages): changes the tables once, between the trace and its further run,
    counted into int64[kinds, nodes, nodes] and `pages` as in Counters.
    """

    hooks: GuestHooks | HostHooks
    start: Callable[[Scenario, Any], tuple[Any, int]]
    implicit_tables: Callable[[Any, Scenario, np.ndarray], int] | None = None
    initial_servers: Callable[[Any, slice], np.ndarray | None] | None = None
    facts: Callable[[Any, Scenario, Any, np.ndarray], dict[str, Any]] | None = None
    setup_events: Callable[[Any, Scenario, np.ndarray], None] | None = None
    between_runs: Callable[[Any, np.ndarray, np.ndarray], None] | None = None


class Availability(NamedTuple):
    """How to get a policy on a machine.

    line  to type on mainline Linux, "" where it has no such thing; when: for what, or on which condition
    otherwise in words, where it has none
    """

    line: str = ""
    when: str = ""
    otherwise: str = ""

    def __str__(self) -> str:
        return f"today{', ' if self.when else ''}{self.when}: {self.line}" if self.line else self.otherwise


RESEARCH = Availability(otherwise="research kernel")


class Policy(NamedTuple):
    """`guest` and `host` are what the policy does in each dimension, None: as captured.

    source        the paper and section it follows
    needs         names of NEEDS, all required
    finding       what a reader of its results must know
    availability  how to get it on a machine; available: (params) -> the same, where they matter (had_by)
    extra_needs   (params) -> names of NEEDS that these parameters require besides
    reshape       (scenario, params) -> Scenario, before anything is replayed
    scope         (params) -> names of what it acts on; policies that share a name do not go together.
                  "gPT" and "ePT" also say which of its sides take effect. None: those of its sides
    wrap_guest    (PolicySide, its params, params) -> (PolicySide, its params) put over what another policy
                  does to the guest's table, (None, None) where none does
    """

    name: str
    doc: str
    guest: PolicySide | None = None
    host: PolicySide | None = None
    params: type[msgspec.Struct] = Strict
    source: str = ""
    needs: tuple[str, ...] = ()
    reshape: Callable[[Scenario, Any], Scenario] | None = None
    scope: Callable[[Any], Collection[str]] | None = None
    wrap_guest: Callable[[PolicySide | None, Any, Any], tuple[PolicySide, Any]] | None = None
    extra_needs: Callable[[Any], Collection[str]] | None = None
    finding: Finding | None = None
    availability: Availability = RESEARCH
    available: Callable[[Any], Availability] | None = None

    def configure(self, settings: Mapping[str, Any]) -> msgspec.Struct:
        """Parameters from {key: text or value}; UsageError names the key and the allowed values."""
        for key in settings:
            if key not in self.params.__struct_fields__:
                why = f"no such parameter; it has: {', '.join(self.params.__struct_fields__) or 'none'}"
                raise UsageError(f"policy {self.name}: {key} = {settings[key]}: {why}")
        try:
            return msgspec.convert(settings, self.params, strict=False)
        except UnicodeEncodeError as error:
            raise UsageError(f"policy {self.name}: {error.object}: no UTF-8 text") from None
        except msgspec.ValidationError as error:
            field, why = field_and_why(error)
            key = field.partition("[")[0] or next(iter(settings))
            _, _, values, doc = next(row for row in parameters(self) if row[0] == key)
            text = f"{doc}; allowed: {values}" if values else doc
            raise UsageError(f"policy {self.name}: {key} = {settings[key]}: {why} ({text})") from None

    def needed(self, params: msgspec.Struct) -> tuple[str, ...]:
        """Names of NEEDS that the policy has with these parameters."""
        return (*self.needs, *(self.extra_needs(params) if self.extra_needs else ()))

    def had_by(self, settings: Mapping[str, Any], host_nodes: Sequence[tuple[int, ...]] = ()) -> Availability:
        """How to get it with these parameters, as configure takes them, on a host (Machine.host_nodes)."""
        if self.available is None:
            return self.availability
        params: Any = self.configure(settings)
        if host_nodes:
            params = msgspec.structs.replace(params, node=host_nodes[params.node][0])
        return self.available(params)

    def acts_on(self, params: msgspec.Struct) -> frozenset[str]:
        """Names of what the policy acts on with these parameters."""
        if self.scope is not None:
            return frozenset(self.scope(params))
        return frozenset(name for name, part in (("gPT", self.guest), ("ePT", self.host)) if part)


LAYERS_ACT = {"both": {"gPT", "ePT"}, "gpt": {"gPT"}, "ept": {"ePT"}}  # parameter layers -> Policy.scope
RECORD = (
    "record one with `ptanalyze record -- COMMAND`, or of a process that runs, where perf samples TLB "
    "misses, with `ptanalyze record -p PID`"
)
# need -> (is it met?, the gap in words, how to fill it)
NEEDS: dict[str, tuple[Callable[[Scenario], bool], str, str]] = {
    "trace": (lambda scenario: scenario.traced, "needs the order of accesses, so it needs a trace", RECORD),
    "events": (
        lambda scenario: len(scenario.trace.events) > 0,
        "depends on memory-management events, and the trace has none",
        "record with `ptanalyze record` (traces of Valgrind or perf hold none)",
    ),
    "nested tables": (
        lambda scenario: not scenario.snapshot.native,
        "a native capture has no host tables (ept.tables)",
        "of a VM, `ptanalyze dump vm` on its host and `ptanalyze join` that with the guest's capture",
    ),
    "node numbers": (
        lambda scenario: not scenario.snapshot.numa_oblivious,
        "the guest's kernel needs node numbers, and this VM shows it none (NUMA-oblivious)",
        "use vmitosis-replicate:mode=no-p (the guest asks the hypervisor) or mode=no-f (it discovers groups)",
    ),
    "data nodes": (
        lambda scenario: (
            scenario.traced or not scenario.snapshot.native or len(scenario.snapshot.topology) > 1
        ),
        "all data of a single-node capture are on that node; which threads touch them takes a trace",
        RECORD + ", or dump on a machine with several nodes",
    ),
    "VMAs": (
        lambda scenario: len(scenario.snapshot.vmas) > 0,
        "the capture has no VMAs (maps)",
        "dump with `ptanalyze dump process`",
    ),
}
OF_THE_TRACE = ("trace", "events", "data nodes")  # needs that a trace meets


def check_needs(policy: Policy, params: Any, scenario: Scenario, by_guest: bool = True) -> None:
    """RefusedError names the first need of the policy that the capture lacks, and the way out.

    by_guest  False: the hypervisor, which knows the nodes, keeps the table that the policy acts on
    """
    for need in policy.needed(params):
        if need not in NEEDS:
            known = ", ".join(NEEDS)
            raise UsageError(f"policy {policy.name}: needs {need!r}: no such need; there are: {known}")
        there, what, how = NEEDS[need]
        if not there(scenario) and (by_guest or need != "node numbers"):
            lacks = LEFT_OUT if scenario.left_out and need in OF_THE_TRACE else f"{what}: {how}"
            raise RefusedError(lacks, policy.name)


def parameters(policy: Policy) -> list[tuple[str, Any, str, str]]:
    """[(name, default, allowed values, meaning)] of a policy's parameters, for help texts."""
    rows = []
    for field in msgspec.structs.fields(policy.params):
        info, doc = msgspec.inspect.type_info(field.type), ""
        if isinstance(info, msgspec.inspect.Metadata):
            doc = (info.extra_json_schema or {}).get("description", "")
            info = info.type
        low, high, values = (getattr(info, name, None) for name in ("ge", "le", "values"))
        allowed = ", ".join(map(str, values or ()))
        if low is not None:
            allowed = f"{low}..{high}" if high is not None else f"{low} or more"
        rows.append((field.name, field.default, allowed, doc))
    return rows


def captured_nodes(scenario: Scenario, dimension: int) -> np.ndarray:
    """int16: nodes of the guest's (0) or host's (1) captured tables. RefusedError where a node is unknown."""
    nodes: np.ndarray = scenario.space.tables.node[scenario.space.sides[dimension]]
    file = "ept.tables" if dimension else "gpt.tables"
    unknown = int(np.count_nonzero(nodes == UNKNOWN_NODE))
    if unknown:
        raise RefusedError(
            f"{file}: node unknown for {unknown} of {len(nodes)} table pages: dump with `ptanalyze "
            "dump process` as root (BPF) to learn them, or use a policy that re-places tables: first-touch, "
            "interleave, mitosis"
        )
    must_exist(scenario, nodes, file)
    return nodes


def must_exist(scenario: Scenario, nodes: np.ndarray, file: str) -> None:
    """RefusedError where one of the captured `nodes` of the tables in a file is none of the machine's."""
    if len(nodes) and nodes.max() >= scenario.nodes:
        raise RefusedError(
            f"{file}: node = {nodes.max()}: machine {scenario.machine.name} has nodes "
            f"0..{scenario.nodes - 1}; use a machine with more nodes, or first-touch"
        )


def guest_homes(scenario: Scenario) -> tuple[np.ndarray, np.ndarray]:
    """(int16[T] node of each guest table at the start, the same when it is made again), -1: of who needs it.

    As captured, but by first touch where a capture of a single node says nothing of a machine with several:
    then this is where the policy first-touch has them too. UsageError as captured_nodes.
    """
    home = np.full(len(scenario.space.tables.level), UNKNOWN_NODE, np.int16)
    if scenario.traced and single_node(scenario.space):  # where threads touch it first
        home[0] = scenario.first_homes[0]
        return scenario.first_homes.copy(), home
    home[: scenario.space.guest_tables] = captured_nodes(scenario, 0)
    return home, home.copy()


def tables_of(scenario: Scenario, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """bool[T]: guest tables, of each level, that map a byte of one of the ranges start <= address < end.

    starts, ends  uint64[n] bytes, ascending; ranges do not overlap
    UsageError where they are no two arrays of one length.
    """
    for name, given in (("starts", starts), ("ends", ends)):
        if np.ndim(given) != 1 or len(given) != np.size(starts):
            shape = list(np.shape(given))
            raise UsageError(f"tables_of: {name} has shape {shape}: give arrays of one length, vmas['start']")
    space = scenario.space
    low, level = space.tables.base, space.tables.level.astype(np.uint64)
    high = low + (np.uint64(1) << (np.uint64(12) + np.uint64(9) * level))
    past, reached = np.searchsorted(ends, low, side="right"), np.searchsorted(starts, high, side="left")
    map_some: np.ndarray = past < reached
    map_some[space.sides[1]] = False
    return map_some


def wrong_return(function: Callable[..., Any], what: str, value: object) -> UsageError:
    """UsageError for a function of a policy that returned a value in place of what it must."""
    code = getattr(function, "__code__", None)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    name = getattr(function, "__name__", "start")
    return UsageError(f"{name} must return {what}, not {type(value).__name__}{where}")


def owner_masks(scenario: Scenario, ids: np.ndarray) -> np.ndarray:
    """uint64[len(ids)]: nodes that own a VMA within the span of each guest table at the trace's end.

    Tables without any VMA are given to the unknown VMA's owner, the main thread's node.
    """
    starts, ends, owners = scenario.history.last
    masks = np.zeros(len(ids), np.uint64)
    for node in np.unique(owners):
        own = owners == node
        masks[tables_of(scenario, starts[own], ends[own])[ids]] |= np.uint64(1) << np.uint64(node)
    masks[masks == 0] = np.uint64(1) << np.uint64(scenario.history.vma_owner[0])
    return masks


def guest_exists(scenario: Scenario) -> np.ndarray:
    """bool[T]: guest tables (inferred ones included) that exist at the start."""
    exists: np.ndarray = scenario.history.exists.copy()
    exists[scenario.space.sides[1]] = False
    return exists


# Settings of several policies, given together: KEY goes to all that have it, POLICY.KEY to that policy.

Setting: TypeAlias = tuple[str, Any]  # KEY or POLICY.KEY, and its value as text or typed


def share_out(where: str, policies: Sequence[Policy], settings: Iterable[Setting]) -> list[dict[str, Any]]:
    """[{KEY: value}] for each policy. UsageError, which begins with `where`: a setting that none takes."""
    shares: list[dict[str, Any]] = [{} for _ in policies]
    for key, value in settings:
        own = key.rpartition(".")[2]
        takers = [k for k, policy in enumerate(policies) if speaks_to(key, policy)]
        if not takers:
            known = {policy.name: ", ".join(policy.params.__struct_fields__) or "none" for policy in policies}
            has = "; ".join(f"{name}: {names}" for name, names in known.items())
            why = f"no policy asked for has this parameter; they have: {has}"
            raise UsageError(f"{where} {key}={value}: {why}")
        refusing = [policies[k].name for k in takers if not allows(policies[k], own, value)]
        if refusing and len(refusing) < len(takers):
            others = [f"{policies[k].name}.{key}={value}" for k in takers if policies[k].name not in refusing]
            raise UsageError(
                f"{where} {key}={value}: no such value for policy {', '.join(refusing)}; name the policy "
                f"that it is for: {', '.join(others)}"
            )
        for k in takers:
            shares[k][own] = value
    return shares


def speaks_to(key: str, policy: Policy) -> bool:
    """Whether KEY is a parameter of the policy's, or POLICY.KEY names the policy."""
    owner, _, name = key.rpartition(".")
    return policy.name == owner if owner else name in policy.params.__struct_fields__


def allows(policy: Policy, key: str, value: Any) -> bool:
    """Whether the policy's parameter may have this value; False where it has no such parameter."""
    try:
        policy.configure({key: value})
    except UsageError:
        return False
    return True


# Node lists among the parameters of policies: "0,2,3" names nodes, "0+1,2+3" groups of them.

NODES = 'nodes that get a replica, "0,2,3"; empty: all with CPUs. CPUs elsewhere walk the nearest replica'


def node_numbers(parts: Iterable[str], machine: Machine, setting: str, hint: str = "") -> list[int]:
    """Node of each part. UsageError: `setting` ("policy P: KEY = TEXT"), wrong part, machine."""
    names = [part.strip() for part in parts]
    for name in names:
        if not is_whole(name) or int(name) >= machine.nodes:
            raise UsageError(f"{setting}: {name!r} is not a node, {nodes_of(machine)}{hint}")
    return [int(name) for name in names]


def nodes_of(machine: Machine) -> str:
    return f"machine {machine.name} has nodes 0..{machine.nodes - 1}"


def replica_nodes(policy: str, text: str, machine: Machine) -> list[int]:
    """Sorted node numbers from "0,2", all nodes if empty."""
    if not text:
        return list(machine.cpu_nodes)
    return sorted(set(node_numbers(text.split(","), machine, f"policy {policy}: nodes = {text}")))
