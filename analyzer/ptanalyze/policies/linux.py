"""linux: as captured. Page tables, a VM's host tables too, are where the kernel put them and stay there."""

from . import fixed_copies
from .base import Policy


def start(world, params):
    home = fixed_copies.captured_homes(world)
    return fixed_copies.start(world, home, home.copy())


POLICY = Policy(
    "linux",
    "as captured: every table page on the node the dump found it on",
    fixed_copies.HOOKS,
    start,
    fixed_copies.settle,
)
