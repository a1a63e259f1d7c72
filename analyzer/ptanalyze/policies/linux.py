"""linux: as captured. Page tables, a VM's host tables too, are where the kernel put them and stay there."""

import numpy as np

from ..core.finding import Finding
from ..core.machine import Strict
from . import static_replicas
from .contract import Availability, Policy, World
from .static_replicas import AS_CAPTURED, State

POLICY = Policy(
    "linux",
    "as captured: every table page on the node the dump found it on",
    *AS_CAPTURED,
    source="Linux 6.x: page tables are never moved; KVM allocates ePT pages on the faulting vCPU's node",
    availability=Availability("nothing to do, it runs like this"),
)


# ideal: every read is local at the price of a single copy. No machine does this.
#
# It bounds locality: of the same reads no placement has fewer remote ones, nor, where a node's own memory is
# the fastest, fewer walk cycles. It does not bound the run time of policies that read less (thp, shadow,
# ptemagnet) or interrupt fewer CPUs (hydra).


def start(world: World, params: Strict) -> State:
    home = np.zeros(len(world.space.tables.level), np.int16)
    return static_replicas.one_copy(world, home, serve=np.arange(world.nodes))


BOUNDED = Finding(
    "bound-of-locality",
    "bounds locality only: every table read from DRAM is local, at the price of one copy; policies "
    "that read less (thp, shadow, ptemagnet) or interrupt fewer CPUs (hydra) can be faster",
    policy="ideal",
)
IDEAL = Policy(
    "ideal",
    "every table read local at the price of one copy: bounds locality, not caching, page sizes or interrupts",
    static_replicas.guest_part(start),
    static_replicas.host_part(start),
    source="a bound of locality, not a system",
    finding=BOUNDED,
    availability=Availability(otherwise="a bound"),
)
