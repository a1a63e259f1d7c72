"""Expected results of a synthetic capture, where a closed form exists."""

import numpy as np

from ...kernels.synth import FIRST_TOUCH, INTERLEAVE
from .frames import new_group
from .plan import Plan


def leaf_classes(plan: Plan) -> dict[str, np.ndarray] | None:
    """{class: float64[nodes]}: expected share of leaf entries by class, seen from each socket; None: no form.

    First touch puts leaf tables on the nodes of the threads that own the mapped part; interleaving draws
    nodes evenly; two dimensions are independent unless both follow the threads: a share of a socket's own gPT
    times a share of its own ePT (vMitosis, section 2.2: 1/N^2). Huge leaves lie in tables that span 1 GiB,
    which several threads may share: no form.
    """
    if plan.asked.munmap_every is not None or plan.data is not None or plan.asked.node_memory is not None:
        return None
    if plan.asked.thp or plan.asked.host_thp:
        return None
    host = spread(plan, plan.host_policy)
    if not plan.nested:
        local = spread(plan, plan.policy)
        return {"Local": local, "Remote": 1 - local}
    policy = plan.host_policy if plan.asked.guest == "oblivious" else plan.policy
    guest = spread(plan, policy)
    together = guest if policy == plan.host_policy == FIRST_TOUCH else guest * host
    return {
        "Local-Local": together,
        "Local-Remote": guest - together,
        "Remote-Local": host - together,
        "Remote-Remote": 1 - guest - host + together,
    }


def spread(plan: Plan, policy: int) -> np.ndarray:
    """float64[nodes]: expected share of the leaf tables' entries on each node."""
    nodes = plan.asked.nodes
    if policy == INTERLEAVE:
        return np.full(nodes, 1 / nodes)
    share = np.zeros(nodes)
    if policy >= 0:
        share[policy] = 1
    elif plan.asked.init == "single":
        share[plan.threads.node[0]] = 1
    else:
        np.add.at(share, plan.threads.node, np.diff(plan.threads.part) / plan.pages)
    return share


def fragmentation(plan: Plan) -> float | None:
    """PTEMagnet's metric (section 3.2): lines of ePT entries behind a line of gPT entries; None: no form.

    A page shares its line with the page before it unless it begins 8 frames of its own: 1 + 7 p, with p from
    frames.new_group. Without a co-runner groups stay aligned: 1.
    """
    plain = plan.policy != INTERLEAVE and plan.asked.munmap_every is None and plan.data is None
    if not plan.nested or not plain or plan.asked.thp == 1:
        return None
    chance = plan.asked.fragmentation
    return 1.0 + 7 * new_group(chance) if chance > 0 else 1.0
