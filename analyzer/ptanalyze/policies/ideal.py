"""ideal: every read is local at the price of a single copy. No machine does this; it bounds the gain."""

import numpy as np

from ..core.machine import Strict
from . import fixed_copies
from .base import Policy, World
from .fixed_copies import State


def start(world: World, params: Strict) -> State:
    home = np.zeros(len(world.space.tables.level), np.int16)
    return fixed_copies.one_copy(world, home, serve=np.arange(world.nodes))


POLICY = Policy(
    "ideal",
    "every read local: the bound that no policy beats",
    fixed_copies.guest_part(start),
    fixed_copies.host_part(start),
    source="a bound, not a system",
)
