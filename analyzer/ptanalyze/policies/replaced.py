"""first-touch, interleave, bind: one copy of each table page, placed anew in the order of first use.

Both dimensions are re-placed: a guest's table by the demand fault that makes it, a host's by the first walk
that reads it.
"""

from typing import Annotated

import numpy as np
from msgspec import Meta

from ..errors import UsageError
from ..machine import Strict
from . import fixed_copies
from .base import Policy


class BindParams(Strict):
    node: Annotated[int, Meta(ge=0, description="the node that gets every table page")] = 0


def _start(world, root, rule):
    """The root existed before the first walk: it is on node `root`, everything else follows `rule`."""
    home = np.full(len(world.space.tables.level), fixed_copies.NOWHERE, np.int16)
    home[0] = root
    return fixed_copies.start(world, home, home.copy(), rule=rule)


def first_touch(world, params):
    return _start(world, world.history.vma_owner[0], (fixed_copies.FIRST_TOUCH, 0))


def interleave(world, params):
    return _start(world, 0, (fixed_copies.INTERLEAVE, 1 % world.nodes))


def bind(world, params):
    if params.node >= world.nodes:
        allowed = f"machine {world.machine.name} has nodes 0..{world.nodes - 1}"
        raise UsageError(f"policy bind: node = {params.node}: {allowed}")
    return _start(world, params.node, (fixed_copies.BIND, params.node))


def _policy(name, doc, start, params=Strict):
    return Policy(name, doc, fixed_copies.HOOKS, start, fixed_copies.settle, params)


FIRST_TOUCH = _policy(
    "first-touch", "one copy, on the node of the CPU that first needs the table page", first_touch
)
INTERLEAVE = _policy(
    "interleave", "one copy, round-robin over all nodes in the order of first use", interleave
)
BIND = _policy("bind", "one copy, all on one node", bind, BindParams)
