"""mitosis: a replica of every table page on each node of a set, written eagerly (Achermann et al., 2020).

mode = migrate keeps one copy where most of the process's threads run: when they go to another node, all
tables are replicated there, the roots are switched and the old copies freed (vMitosis, Table 3).
"""

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from ..core.errors import UsageError
from ..core.machine import Strict
from ..kernels import TABLE_FREE, TABLE_MOVED
from ..kernels.replay import RUN, grow, node_now
from . import static_replicas
from .contract import (
    NODES,
    GuestHooks,
    Policy,
    PolicySide,
    Scenario,
    called_hook,
    guest_exists,
    replica_nodes,
)
from .static_replicas import FOLLOW, State, nearest

MODE = "replicas at all times, or one copy that is replicated where the process goes and freed where it was"


class Params(Strict):
    nodes: Annotated[str, Meta(description=NODES)] = ""
    mode: Annotated[Literal["replicate", "migrate"], Meta(description=MODE)] = "replicate"


@called_hook
def on_step(state, tables, rows, steps, shootdowns, mapped, counters, step):
    if steps.kind[step] != RUN:
        static_replicas.on_step(state, tables, rows, steps, shootdowns, mapped, counters, step)
    elif state.rule[0] == FOLLOW:
        follow(state, np.int64(node_now(steps, step)), counters)


@called_hook
def follow(state, to, counters):
    """Replicate every table on `to`, switch the roots, free what was."""
    pages, before = counters.pages[0], np.int64(state.copies[0])
    grow(counters.pages, pages)
    counters.events[TABLE_MOVED, before, to] += pages
    counters.events[TABLE_FREE, to, before] += pages
    grow(counters.pages, -pages)
    state.copies[0] = to
    state.serve[:] = to


HOOKS = GuestHooks(static_replicas.server_of, static_replicas.on_walk, on_step)


def start(scenario: Scenario, params: Params) -> tuple[State, int]:
    state = _state(scenario, params)
    return state, int(np.count_nonzero(guest_exists(scenario))) * len(state.copies)


def _state(scenario: Scenario, params: Params) -> State:
    if params.mode == "replicate":
        copies = replica_nodes("mitosis", params.nodes, scenario.machine)
        return static_replicas.replicas(scenario, copies, nearest(copies, scenario.machine))
    if params.nodes:
        raise UsageError(
            f"policy mitosis: nodes = {params.nodes}: with mode = migrate the copy follows the process; "
            "give nodes with mode = replicate"
        )
    state = static_replicas.replicas(
        scenario, [scenario.history.home], np.full(scenario.nodes, scenario.history.home)
    )
    state.rule[0] = FOLLOW
    return state


def initial_servers(state: State, ids: slice) -> np.ndarray | None:
    """PolicySide.initial_servers; where the process runs a snapshot does not say."""
    return None if state.rule[0] == FOLLOW else static_replicas.initial_servers(state, ids)


POLICY = Policy(
    "mitosis",
    "eager, full replicas on every node: all reads local, every entry written everywhere; a VM's guest only",
    guest=PolicySide(
        HOOKS,
        start,
        static_replicas.implicit_tables,
        initial_servers,
        setup_events=static_replicas.copy_guest,
    ),
    params=Params,
    needs=("node numbers",),
    source="Mitosis, ASPLOS '20; a guest's tables only where the VM sees the nodes (vMitosis, Table 1)",
)
