"""Replicas some of whose pages are on the wrong node (misplaced_hooks.py): which, and where they begin."""

from collections.abc import Callable
from typing import Any

import numpy as np

from . import fixed_copies
from .base import Part, World, guest_exists
from .misplaced_hooks import HOOKS, State


def drawn(tables: int, share: float, seed: int) -> np.ndarray:
    """bool[tables]: ids whose hash with `seed` is below `share` (splitmix64, Steele et al., OOPSLA 2014)."""
    x = np.arange(1, tables + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    x ^= x >> np.uint64(31)
    found: np.ndarray = (x >> np.uint64(11)).astype(np.float64) * 2.0**-53 < share
    return found


def settle(state: State, world: World, tables: np.ndarray) -> int:
    return fixed_copies.settle(state.here, world, tables)


def at_rest(state: State, ids: slice) -> np.ndarray:
    return np.where(state.misplaced[ids, None], state.away.serve, state.here.serve)


def guest_part(begin: Callable[[World, Any], State]) -> Part:
    """Part of the guest's tables; begin(world, params) -> State."""

    def start(world: World, params: Any) -> tuple[State, int]:
        state = begin(world, params)
        return state, int(np.count_nonzero(guest_exists(world))) * len(state.here.copies)

    return Part(HOOKS, start, settle, at_rest)
