"""What the policies share that keep every table page in a fixed set of copies (fixed_copies_hooks.py)."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from .base import Part, World, captured_nodes, guest_exists
from .fixed_copies_hooks import FIRST_TOUCH, GUEST, HOST, INTERLEAVE, NOWHERE, State

Begin: TypeAlias = Callable[[World, Any], State]  # of a World and the policy's parameters


def settle(state: State, world: World, tables: np.ndarray) -> int:
    """Tables that the kernel filled on the program's behalf take one page a copy."""
    return len(tables) * max(len(state.copies), 1)


def at_rest(state: State, ids: slice) -> np.ndarray | None:
    """As Part.at_rest: homes in the order of the tables where the rule is round-robin."""
    home, nodes, (rule, node) = state.home[ids], len(state.serve), state.rule.tolist()
    if (state.serve >= 0).all():
        return np.broadcast_to(state.serve, (len(home), nodes))
    if (home < 0).any() and rule == FIRST_TOUCH:
        return None
    turn = np.arange(len(home)) % nodes if rule == INTERLEAVE else node
    home = np.where(home < 0, turn, home).astype(np.int16)
    return np.where(state.serve < 0, home[:, None], state.serve).astype(np.int16)


def guest_part(begin: Begin) -> Part:
    """Part of the guest's tables; begin(world, params) -> State."""

    def start(world: World, params: Any) -> tuple[State, int]:
        state = begin(world, params)
        return state, int(np.count_nonzero(guest_exists(world))) * max(len(state.copies), 1)

    return Part(GUEST, start, settle, at_rest)


def host_part(begin: Begin) -> Part:
    """Part of the host's tables; begin(world, params) -> State."""

    def start(world: World, params: Any) -> tuple[State, int]:
        state = begin(world, params)
        return state, world.space.host_tables * max(len(state.copies), 1)

    return Part(HOST, start, at_rest=at_rest)


def one_copy(
    world: World,
    home: np.ndarray,
    serve: np.ndarray | int = NOWHERE,
    rule: tuple[int, int] = (FIRST_TOUCH, 0),
) -> State:
    """State of a single copy of each table at `home` (int16[T]), or read at `serve`."""
    return State(home, home.copy(), _row(world, serve), np.zeros(0, np.int16), np.array(rule, np.int64))


def replicas(world: World, copies: Sequence[int] | np.ndarray, serve: np.ndarray) -> State:
    """State of a copy of each table on the nodes `copies`, readers served as `serve` (int16[nodes]) says."""
    home = nowhere(world)
    rule = np.array((FIRST_TOUCH, 0), np.int64)
    return State(home, home.copy(), _row(world, serve), np.array(copies, np.int16), rule)


def _row(world: World, serve: np.ndarray | int) -> np.ndarray:
    return np.broadcast_to(np.asarray(serve, np.int16), (world.nodes,)).copy()


def nowhere(world: World) -> np.ndarray:
    """int16[T]: tables that are placed when they are first needed."""
    return np.full(len(world.space.tables.level), NOWHERE, np.int16)


def captured_guest(world: World, params: object = None) -> State:
    """State of the guest's tables where they were captured.

    Tables that were gone when the snapshot was taken are placed by first touch, as Linux had done.
    """
    home = nowhere(world)
    home[: world.space.guest_tables] = captured_nodes(world, 0)
    return one_copy(world, home)


def captured_host(world: World, params: object = None) -> State:
    """State of the host's tables where they were captured."""
    home = nowhere(world)
    home[world.space.guest_tables :][: world.space.host_tables] = captured_nodes(world, 1)
    return one_copy(world, home)


AS_CAPTURED = guest_part(captured_guest), host_part(captured_host)
