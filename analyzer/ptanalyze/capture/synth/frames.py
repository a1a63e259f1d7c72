"""Memory sizes of the nodes of the modelled machine and of its VM."""

from dataclasses import dataclass

import numpy as np

from ...core.errors import UsageError, show_size
from ...kernels.synth import FIRST_TOUCH, INTERLEAVE
from .parameters import refused
from .plan import RANGE, Plan

BLOCK = 512  # frames of a pageblock
PAGE = 4096
HYPERVISOR = 16  # a host node has this many parts, of which one is not the VM's
GUEST_TOP = 1 << 32  # guest frames end below 16 TiB: the analysis counts higher frames as outside
MOST_FREED = 1 << 24
MARGIN = 1.02


@dataclass(frozen=True)
class Frames:
    """Equal nodes. host: frames of each host (or native) node; guest: of each guest node, 0 if there is none.

    guest_nodes  1 in an oblivious guest
    room         int64[nodes]: frames of each node of the process's own machine that the run may need
    freed        room of the list of frames given back
    """

    host: int
    guest: int
    guest_nodes: int
    room: np.ndarray
    freed: int


def frames_of(plan: Plan) -> Frames:
    """Frames of a Plan: --node-memory, or enough that each node holds what the policies send it.

    UsageError for less than 16M, no whole 2 MiB, or guest memory above 16 TiB.
    """
    asked, freed = plan.asked, given_back(plan)
    need = needed(plan, min(freed, plan.pages))
    nodes = 1 if asked.guest == "oblivious" else asked.nodes
    host = default_memory(need) if asked.node_memory is None else asked.node_memory // PAGE
    if host < 8 * BLOCK or host % BLOCK or host > GUEST_TOP:
        raise refused("node_memory", show_size(asked.node_memory or 0), "16M to 16T, whole 2 MiB")
    if not plan.nested:
        return Frames(host, 0, nodes, np.minimum(need, host), freed)
    vnode = host * (HYPERVISOR - 1) // HYPERVISOR // BLOCK * BLOCK
    guest = vnode * asked.nodes // nodes
    if guest * nodes > GUEST_TOP and (asked.node_memory is not None or need.max() > GUEST_TOP // nodes):
        allowed = "a guest's memory ends below 16T, nodes are alike; give less to spill to the next node"
        raise refused("node_memory", show_size(host * PAGE), allowed)
    guest = min(guest, GUEST_TOP // nodes // BLOCK * BLOCK)
    return Frames(host, guest, nodes, np.minimum(need, guest), freed)


def given_back(plan: Plan) -> int:
    """Upper bound of the frames that munmap gives back."""
    every = plan.asked.munmap_every
    if every is None:
        return 1
    most = (plan.accesses // every + 1) * RANGE
    if most > MOST_FREED:
        raise refused("munmap_every", every, f"at least {plan.accesses * RANGE // MOST_FREED + 1} here")
    return most


def needed(plan: Plan, again: int) -> np.ndarray:
    """int64[nodes]: frames that each node of the process's machine may have to give, rounded up."""
    asked = plan.asked
    pages = pages_on(plan) + again
    if plan.data is not None:
        pages += plan.pages
    tables = plan.regions + (plan.regions >> 9) + 64
    frames = (pages * growth(asked.fragmentation) * MARGIN).astype(np.int64) + tables
    return (frames // BLOCK + 16) * BLOCK


def growth(fragmentation: float) -> float:
    """Frames used up for each page that is faulted in: a co-runner takes the rest of 8 frames.

    The place of a page among 8 frames is a Markov chain: after a share F of pages it goes back to the first,
    else to the next. It stands at the first with probability F / (1 - (1 - F)^8), once in 8 frames.
    """
    return 8 * new_group(fragmentation)


def new_group(fragmentation: float) -> float:
    """Probability that a page begins 8 frames of its own, in the long run; 1/8 without a co-runner."""
    return fragmentation / (1 - (1 - fragmentation) ** 8) if fragmentation > 0 else 0.125


def pages_on(plan: Plan) -> np.ndarray:
    """int64[nodes]: the most pages that the policy puts on each node at first."""
    on = np.zeros(1 if plan.asked.guest == "oblivious" else plan.asked.nodes, np.int64)
    if plan.policy == INTERLEAVE:
        return on + plan.pages // len(on) + 8 * BLOCK * int(np.sqrt(plan.regions) + 1)
    if plan.policy == FIRST_TOUCH and plan.asked.init == "parallel":
        np.add.at(on, plan.threads.node, np.diff(plan.threads.part))
    else:
        on[plan.threads.node[0] if plan.policy == FIRST_TOUCH else plan.policy] = plan.pages
    return on


def default_memory(need: np.ndarray) -> int:
    """Frames of a node: the largest need, a hypervisor's part, any ePT; whole 64 MiB, or whole GiB."""
    least = int(need.max()) * HYPERVISOR // (HYPERVISOR - 1) + int(need.sum()) // 256 + HYPERVISOR * BLOCK
    unit = (1 << 18) if least >= 1 << 18 else 1 << 14
    return -(-least // unit) * unit


def full(plan: Plan, frames: Frames) -> UsageError:
    """The error of a run that found no frame."""
    given = show_size(frames.host * PAGE)
    total = needed(plan, min(given_back(plan), plan.pages)).sum()
    enough = show_size(default_memory(np.array([total])) * PAGE)
    return UsageError(
        f"--node-memory {given}: the machine is full; leave it out, or give more ({enough} is enough)"
    )
