"""Nodes that a policy places tables on: the machine must have them; compiled code does not look."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..core.machine import Machine
from .broken import BrokenPolicyError
from .fixed_copies import BIND, NOWHERE, State
from .node_lists import nodes_of


def check_nodes(policy: str, what: str, nodes: np.ndarray, machine: Machine, least: int = 0) -> None:
    """BrokenPolicyError for the first of `nodes` that is below `least` or that the machine lacks."""
    wrong = nodes[(nodes < least) | (nodes >= machine.nodes)]
    if wrong.size:
        raise BrokenPolicyError(policy, f"{what} node {wrong.flat[0]}, {nodes_of(machine)}")


def check_placed(policy: str, state: Any, machine: Machine) -> None:
    """The same for all nodes in the fixed_copies.State that a hook's state is or holds."""
    for placed in fixed(state):
        what = "start placed a table on"
        for anywhere in (placed.home, placed.again, placed.serve):
            check_nodes(policy, what, anywhere, machine, NOWHERE)
        bound = placed.rule[1:] if placed.rule[0] == BIND else placed.rule[:0]
        for named in (placed.copies, placed.turns, bound):
            check_nodes(policy, what, named, machine)


def fixed(state: Any) -> Iterator[State]:
    if isinstance(state, State):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from fixed(part)
