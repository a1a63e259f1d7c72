"""One copy of each table page. linux: as captured, where the kernel put it, a VM's host tables too.
first-touch, interleave, bind: placed again in the order of first use. ept-reset: the host's alone are placed
again. ideal: a bound of locality.

first-touch, interleave and bind re-place both dimensions: a guest's table by the demand fault that makes it,
a host's by the first walk that reads it. What was mapped before the region of interest is under first-touch
where it was touched then (world.page_homes), under interleave and bind where it is placed when first needed.

interleave: a kernel's round robin also gives turns to data pages, 512 for each leaf table, so that the turns
of the guest's and the host's tables have nothing to do with each other. Here only tables take turns, and a
new guest table comes with a new host table: with one order for both, a table and its host's would be together
on a node always, or never. So the host's round robin starts each round a node later than the last: of N * N
tables that are first used in pairs, each pair of nodes has one. A native capture has the plain round robin.

ept-reset: KVM drops the nested tables of all VMs when nx_huge_pages changes (set_nx_huge_pages calls
kvm_mmu_zap_all_fast, arch/x86/kvm/mmu/mmu.c, Linux 6.1), and makes each page again in the violation that
needs it, by the memory policy of the vCPU thread. mmu_topup_memory_caches keeps up to 40 pages for each
vCPU: the first tables of a moved vCPU come from its old node. So the line to type drops all twice, 1 s apart.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from msgspec import Meta

from ..core.columns import AS_STARTED, Finding
from ..core.errors import UsageError, is_whole
from ..core.machine import Strict
from ..kernels import PTE_WRITE, TABLE_FREE, TABLE_NEW
from . import static_replicas
from .contract import Availability, Policy, PolicySide, Scenario, nodes_of
from .static_replicas import AS_CAPTURED, State

LINUX = Policy(
    "linux",
    "as captured: every table page on the node the dump found it on",
    *AS_CAPTURED,
    source="Linux 6.x: page tables are never moved; KVM allocates ePT pages on the faulting vCPU's node",
    availability=Availability("nothing to do, it runs like this"),
)


def _all_local(scenario: Scenario, params: Strict) -> State:
    """ideal: every read is local at the price of a single copy. No machine does this.

    Of the same reads no placement has fewer remote ones, nor, where a node's own memory is the fastest, fewer
    walk cycles. Policies with other reads or interrupts can be faster: BOUNDED.
    """
    home = np.zeros(len(scenario.space.tables.level), np.int16)
    return static_replicas.one_copy(scenario, home, serve=np.arange(scenario.nodes))


BOUNDED = Finding(
    "bound-of-locality",
    "bounds locality only: every table read from DRAM is local, at the price of one copy; policies "
    "that read less (thp, shadow, ptemagnet) or interrupt fewer CPUs (hydra) can be faster",
    policy="ideal",
)
IDEAL = Policy(
    "ideal",
    "every table read local at the price of one copy: bounds locality, not caching, page sizes or interrupts",
    static_replicas.guest_part(_all_local),
    static_replicas.host_part(_all_local),
    source="a bound of locality, not a system",
    finding=BOUNDED,
    availability=Availability(otherwise="a bound"),
)


STARTED = Finding(
    AS_STARTED,
    "first-touch, interleave and bind place tables from the program's start on: what moving those of a "
    "running process takes is not priced",
)
Rule: TypeAlias = tuple[int, int, Sequence[int]]  # State.rule, and State.turns
MOST = 255  # of Linux's weights
WEIGHTS = (
    'table pages that each node gets in a round, "4,4,1" for nodes 0 to 2, 0: none; empty: one each. As '
    "MPOL_WEIGHTED_INTERLEAVE does, since Linux 6.9"
)
SOURCE = "Linux memory policies (set_mempolicy(2)): page tables follow the policy of the faulting thread"


class InterleaveParams(Strict):
    weights: Annotated[str, Meta(description=WEIGHTS)] = ""


class BindParams(Strict):
    node: Annotated[int, Meta(ge=0, description="the node that gets every table page")] = 0


def interleave(scenario: Scenario, params: InterleaveParams) -> Rule:
    return static_replicas.INTERLEAVE, 0, turns(params.weights, scenario)


def turns(text: str, scenario: Scenario) -> list[int]:
    """The nodes of a round, a node as often in a row as its weight says."""
    weights = [part.strip() for part in text.split(",")] if text else ["1"] * scenario.nodes
    known = [int(weight) for weight in weights if is_whole(weight) and int(weight) <= MOST]
    if not len(known) == len(weights) == scenario.nodes or not any(known):
        raise UsageError(
            f"policy interleave: weights = {text}: give one from 0 to {MOST} per node, not all 0; "
            f"{nodes_of(scenario.machine)}"
        )
    return [node for node, weight in enumerate(known) for _ in range(weight)]


def bind(scenario: Scenario, params: BindParams) -> Rule:
    if params.node >= scenario.nodes:
        raise UsageError(f"policy bind: node = {params.node}: {nodes_of(scenario.machine)}")
    return static_replicas.BIND, params.node, ()


def _parts(rule_of: Callable[[Scenario, Any], Rule]) -> tuple[PolicySide, PolicySide]:
    """The guest's and the host's PolicySide, with tables placed by rule_of(scenario, params)."""

    def guest(scenario: Scenario, params: Any) -> State:
        """The root existed before the first walk: it has the first turn."""
        kind, node, of_round = rule_of(scenario, params)
        home = static_replicas.nowhere(scenario)
        home[0] = of_round[0] if of_round else node
        after_root = 1 if of_round else node
        return static_replicas.one_copy(scenario, home, rule=(kind, after_root), turns=of_round)

    def host(scenario: Scenario, params: Any) -> State:
        kind, node, of_round = rule_of(scenario, params)
        kind = static_replicas.SKIPPING if of_round else kind
        home = static_replicas.nowhere(scenario)
        return static_replicas.one_copy(scenario, home, rule=(kind, node), turns=of_round)

    return static_replicas.guest_part(guest), static_replicas.host_part(host)


def _guest_by_first_touch(scenario: Scenario, params: Strict) -> State:
    """What was mapped before the region of interest is where it was first touched; the rest is to come."""
    home = scenario.first_homes
    again = static_replicas.nowhere(scenario)
    again[0] = home[0]
    return static_replicas.one_copy(scenario, home.copy())._replace(again=again)


# Nested tables that the host's administrator has rebuilt while the VM runs.

VCPUS = (
    "memory policy of the vCPU threads, which KVM's tables follow: local, each on the node of the vCPU that "
    "first needs it; interleave; bind, all on `node`"
)
RESET = (
    "sudo sh -c 'cd /sys/module/kvm/parameters; was=$(cat nx_huge_pages); "
    'trap "echo $was >nx_huge_pages; exit" HUP INT TERM; '
    "for i in N Y $was N Y $was; do echo $i >nx_huge_pages; sleep 1; done'"
)


class ResetParams(Strict):
    vcpus: Annotated[Literal["local", "interleave", "bind"], Meta(description=VCPUS)] = "local"
    node: Annotated[int, Meta(ge=0, description="of vcpus=bind")] = 0


def _reset(scenario: Scenario, params: ResetParams) -> State:
    rule: Rule = static_replicas.FIRST_TOUCH, 0, ()
    if params.vcpus == "bind":
        rule = bind(scenario, BindParams(params.node))
    elif params.vcpus == "interleave":
        rule = static_replicas.INTERLEAVE, 0, range(scenario.nodes)
    return static_replicas.one_copy(scenario, static_replicas.nowhere(scenario), rule=rule[:2], turns=rule[2])


def _remake(state: State, scenario: Scenario, events: np.ndarray) -> None:
    """All tables are freed, and made in violations, one for each page that they map."""
    space, node = scenario.space, scenario.history.home
    _, host = space.sides
    events[TABLE_FREE, node, node] += space.host_tables
    events[TABLE_NEW, node, node] += space.host_tables
    pages = int(scenario.entries[host].sum()) - np.count_nonzero(space.tables.parent[host] >= 0)
    events[PTE_WRITE, node, node] += pages


def reset_line(params: ResetParams) -> Availability:
    policy = {"bind": f"--membind={params.node}", "interleave": "--interleave=all"}.get(params.vcpus)
    if policy is None:
        return Availability(RESET, "on the host, while the VM runs")
    return Availability(f"numactl {policy} qemu-system-x86_64 ...", "on the host, when the VM starts")


EPT_RESET = Policy(
    "ept-reset",
    "the host's tables rebuilt, where the vCPUs' memory policy puts them; the guest's as captured",
    host=static_replicas.host_part(_reset)._replace(setup_events=_remake),
    params=ResetParams,
    source="KVM: kvm_mmu_zap_all_fast, mmu_topup_memory_caches (arch/x86/kvm/mmu/mmu.c, Linux 6.1)",
    needs=("nested tables",),
    available=reset_line,
)
BY_FIRST_TOUCH = (
    static_replicas.guest_part(_guest_by_first_touch),
    static_replicas.host_part(
        lambda scenario, params: static_replicas.one_copy(scenario, scenario.host_first_homes.copy())
    ),
)
FIRST_TOUCH = Policy(
    "first-touch",
    "one copy, on the node of the CPU that first needs the table page",
    *BY_FIRST_TOUCH,
    source=SOURCE,
    needs=("trace",),
    finding=STARTED,
    availability=Availability("nothing to do, this is Linux's default"),
)
INTERLEAVE = Policy(
    "interleave",
    "one copy, round-robin over all nodes in the order of first use, the host's independent of the guest's",
    *_parts(interleave),
    InterleaveParams,
    source=SOURCE,
    finding=STARTED,
    availability=Availability("numactl --interleave=all ./app (its data, too)"),
)
BIND = Policy(
    "bind",
    "one copy, all on one node",
    *_parts(bind),
    BindParams,
    source=SOURCE,
    finding=STARTED,
    available=lambda params: Availability(f"numactl --membind={params.node} ./app (its data, too)"),
)
