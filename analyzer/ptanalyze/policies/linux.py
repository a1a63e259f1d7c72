"""linux: as captured. Page tables are where the kernel put them and stay there."""

import numpy as np

from . import fixed_copies
from .base import Policy, captured_nodes


def start(world, params):
    """Tables that were gone when the snapshot was taken are placed by first touch, as Linux had done."""
    space = world.space
    home = np.full(len(space.tables.level), fixed_copies.NOWHERE, np.int16)
    home[: space.guest_tables] = captured_nodes(world, 0)
    if not space.native:
        home[space.guest_tables :][: space.host_tables] = captured_nodes(world, 1)
    return fixed_copies.start(world, home, home.copy())


POLICY = Policy(
    "linux",
    "as captured: every table page on the node the dump found it on",
    fixed_copies.HOOKS,
    start,
    fixed_copies.settle,
)
