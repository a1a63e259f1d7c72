"""first-touch, interleave, bind: one copy of each table page, placed anew in the order of first use.

Both dimensions are re-placed: a guest's table by the demand fault that makes it, a host's by the first walk
that reads it.
"""

from typing import Annotated

from msgspec import Meta

from ..errors import UsageError
from ..machine import Strict
from . import fixed_copies
from .base import Policy

LINUX = "Linux memory policies (set_mempolicy(2)): page tables follow the policy of the faulting thread"


class BindParams(Strict):
    node: Annotated[int, Meta(ge=0, description="the node that gets every table page")] = 0


def first_touch(world, params):
    return fixed_copies.FIRST_TOUCH, 0, world.history.vma_owner[0]


def interleave(world, params):
    return fixed_copies.INTERLEAVE, 0, 0


def bind(world, params):
    if params.node >= world.nodes:
        allowed = f"machine {world.machine.name} has nodes 0..{world.nodes - 1}"
        raise UsageError(f"policy bind: node = {params.node}: {allowed}")
    return fixed_copies.BIND, params.node, params.node


def _policy(name, doc, rule_of, params=Strict, needs=()):
    def guest(world, params):
        """The root existed before the first walk: it is on node `root`, everything else follows `rule`."""
        kind, node, root = rule_of(world, params)
        home = fixed_copies.nowhere(world)
        home[0] = root
        after_root = (node + 1) % world.nodes if kind == fixed_copies.INTERLEAVE else node
        return fixed_copies.one_copy(world, home, rule=(kind, after_root))

    def host(world, params):
        return fixed_copies.one_copy(world, fixed_copies.nowhere(world), rule=rule_of(world, params)[:2])

    parts = fixed_copies.guest_part(guest), fixed_copies.host_part(host)
    return Policy(name, doc, *parts, params, source=LINUX, needs=needs)


FIRST_TOUCH = _policy(
    "first-touch",
    "one copy, on the node of the CPU that first needs the table page",
    first_touch,
    needs=("trace",),
)
INTERLEAVE = _policy(
    "interleave", "one copy, round-robin over all nodes in the order of first use", interleave
)
BIND = _policy("bind", "one copy, all on one node", bind, BindParams)
