"""vmitosis-replicate: both dimensions of a VM's walks replicated (Panwar et al., vMitosis, section 3.3).

The hypervisor keeps a replica of every ePT page on each node, written under the same lock as the master. The
host's tables are taken as fully built: a trace holds no ePT violations, so writes to ePT replicas are not
counted, their pages are. The guest replicates its gPT as Mitosis does. The mode is its way to learn nodes:

nv    the VM shows them (3.3.2)
no-p  it shows none; hypercalls say on which node each vCPU runs and pin the replicas' pages there (3.3.3):
      every replica is where it belongs, as with nv
no-f  not told: groups of vCPUs are discovered from cache-line latencies, a vCPU of each touches the
      pages of its group's replica first, and the host's local allocation places them (3.3.4). Where a node
      had no memory left, a page of a replica is elsewhere: `misplaced`
"""

from typing import Annotated, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from ..core.errors import UsageError
from ..core.machine import Machine, Strict
from ..kernels import FAULT
from ..kernels.replay import CLEAR, DATA, HINT, MOVE, UPDATE, move_target, stores
from . import static_replicas
from .contract import (
    LAYERS_ACT,
    NODES,
    GuestHooks,
    Policy,
    PolicySide,
    Scenario,
    called_hook,
    guest_exists,
    hook,
    node_groups,
    nodes_in_guest,
    replica_nodes,
)
from .static_replicas import nearest

NAME = "vmitosis-replicate"
LAYERS = "what is replicated: the guest's table, the host's, or both; the other stays as captured"
MODE = "how the guest comes by nodes: the VM shows them, it asks the hypervisor, or it discovers groups"
GROUPS = (
    'no-f: nodes of each discovered group, "0+1,2+3"; a group has one replica of the gPT, on its first node. '
    "Empty: each node is a group"
)
MISPLACED = (
    "no-f: share of the gPT's table pages whose replicas are on the next replica's node; 1: every CPU walks "
    "another node's replica (4.2.2)"
)
SEED = "which table pages are misplaced"


class Params(Strict):
    layers: Annotated[Literal["both", "gpt", "ept"], Meta(description=LAYERS)] = "both"
    nodes: Annotated[str, Meta(description=NODES)] = ""
    mode: Annotated[Literal["nv", "no-p", "no-f"], Meta(description=MODE)] = "nv"
    groups: Annotated[str, Meta(description=GROUPS)] = ""
    misplaced: Annotated[float, Meta(ge=0, le=1, description=MISPLACED)] = 0.0
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1, description=SEED)] = 0


class State(NamedTuple):
    """Replicas of the guest's tables, some of whose pages are on the wrong node (3.3.4, 4.2.2).

    A misplaced table page has as many copies on the same nodes as any other, but each node's CPUs are served
    by another node's.

    here, away  static_replicas.State  of well placed table pages and of misplaced ones: `serve` differs
    misplaced   bool[T]
    """

    here: static_replicas.State
    away: static_replicas.State
    misplaced: np.ndarray


@hook
def server_of(state, table, node):
    if state.misplaced[table]:
        return state.away.serve[node]
    return state.here.serve[node]


@hook
def on_walk(state, tables, leaf, row, slot, node, fault, counters):
    if fault:
        install(state, tables, leaf, node, np.int64(fault) - 1, counters)
    return server_of(state, leaf, node)


@called_hook
def install(state, tables, leaf, node, made, counters):
    static_replicas.make(state.here, tables, leaf, node, made, counters)
    counters.events[FAULT, node, server_of(state, leaf, node)] += 1
    write(state, leaf, node, 1, counters.events)


@hook
def write(state, table, node, entries, events):
    if state.misplaced[table]:
        static_replicas.write(state.away, table, node, entries, events)
    else:
        static_replicas.write(state.here, table, node, entries, events)


@called_hook
def on_step(state, tables, rows, steps, shootdowns, mapped, counters, step):
    kind, row, node, changed = steps.kind[step], steps.row[step], steps.node[step], mapped.changed[step]
    if kind in (CLEAR, UPDATE, MOVE, DATA, HINT):
        if changed:
            write(state, rows.leaf[row], node, stores(kind) * changed, counters.events)
            if kind == MOVE:
                into, _, each = move_target(steps, step)
                target = rows.leaf[into]
                static_replicas.make(state.here, tables, target, node, np.int64(mapped.made[step]), counters)
                write(state, target, node, each * changed, counters.events)
    else:
        static_replicas.on_step(state.here, tables, rows, steps, shootdowns, mapped, counters, step)


HOOKS = GuestHooks(server_of, on_walk, on_step)


def drawn(tables: int, share: float, seed: int) -> np.ndarray:
    """bool[tables]: ids whose hash with `seed` is below `share` (splitmix64, Steele et al., OOPSLA 2014)."""
    x = np.arange(1, tables + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    x ^= x >> np.uint64(31)
    chosen: np.ndarray = (x >> np.uint64(11)).astype(np.float64) * 2.0**-53 < share
    return chosen


def implicit_tables(state: State, scenario: Scenario, tables: np.ndarray) -> int:
    return static_replicas.implicit_tables(state.here, scenario, tables)


def initial_servers(state: State, ids: slice) -> np.ndarray:
    return np.where(state.misplaced[ids, None], state.away.serve, state.here.serve)


def start_guest(scenario: Scenario, params: Params) -> tuple[State, int]:
    state = _replicas(scenario, params)
    return state, int(np.count_nonzero(guest_exists(scenario))) * len(state.here.copies)


def _replicas(scenario: Scenario, params: Params) -> State:
    """State of the hooks; UsageError for parameters that the mode or the machine does not allow."""
    _check(params)
    if params.groups:
        copies, serve = grouped(params.groups, scenario.machine)
    else:
        copies = replica_nodes(NAME, params.nodes, scenario.machine)
        serve = nearest(copies, scenario.machine)
    if params.misplaced and len(copies) == 1:
        raise UsageError(
            f"policy {NAME}: misplaced = {params.misplaced}: one replica has no other's node to be on"
        )
    following = np.zeros(scenario.nodes, np.int16)
    following[copies] = np.roll(copies, -1)
    return State(
        static_replicas.replicas(scenario, copies, serve),
        static_replicas.replicas(scenario, copies, following[serve]),
        drawn(len(scenario.space.tables.level), params.misplaced, params.seed),
    )


def copy_guest(state: State, scenario: Scenario, events: np.ndarray) -> None:
    """PolicySide.setup_events of the replicas that are where they belong."""
    static_replicas.copy_guest(state.here, scenario, events)


def start_host(scenario: Scenario, params: Params) -> static_replicas.State:
    copies = replica_nodes(NAME, params.nodes, scenario.machine)
    return static_replicas.replicas(scenario, copies, nearest(copies, scenario.machine))


def _check(params: Params) -> None:
    for key in ("groups", "misplaced"):
        value = getattr(params, key)
        if value and params.mode != "no-f":
            raise UsageError(
                f"policy {NAME}: {key} = {value}: only where groups are discovered: --set mode=no-f "
                f"(mode = {params.mode})"
            )
    if params.groups and params.nodes:
        raise UsageError(
            f"policy {NAME}: groups = {params.groups}: each group has a replica; leave out "
            f"nodes = {params.nodes}"
        )


def grouped(text: str, machine: Machine) -> tuple[list[int], np.ndarray]:
    """(first node of each group, int16[nodes]: first node of each node's group) of "0+1,2+3"."""
    groups = node_groups(NAME, text, machine)
    serve = np.zeros(machine.nodes, np.int16)
    for group in groups:
        serve[group] = group[0]
    return [group[0] for group in groups], serve


def guest_facts(state: State, scenario: Scenario, params: Params, pages: np.ndarray) -> dict[str, int]:
    """Number of table pages with misplaced replicas."""
    if not params.misplaced:
        return {}
    away = state.misplaced[: scenario.space.guest_tables] & scenario.space.program_tables
    return {"gpt_tables_misplaced": int(np.count_nonzero(away))}


POLICY = Policy(
    NAME,
    "a VM's guest and host tables replicated eagerly on every node: both dimensions of all walks local",
    PolicySide(HOOKS, start_guest, implicit_tables, initial_servers, guest_facts, copy_guest),
    static_replicas.host_part(start_host),
    Params,
    source="vMitosis, sections 3.3 and 4.2.2",
    needs=("nested tables",),
    scope=lambda params: LAYERS_ACT[params.layers],
    extra_needs=lambda params: nodes_in_guest(params) if params.mode == "nv" else (),
)
