"""whatif of small captures, and a machine without paging-structure caches: every walk reads every level."""

import msgspec

from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.machine import load_costs, load_machine
from strategies import small_machine

COSTS = load_costs(load_machine("sapphire-rapids"))


def cold_machine():
    machine = small_machine(2)
    none = dict.fromkeys(("pde", "pdpte", "pml4e", "pml5e", "nested"))
    caches = msgspec.structs.replace(machine.walk_caches, **none)
    return msgspec.structs.replace(machine, walk_caches=caches)


def ask(snapshot, *names, params=None, trace=None, machine=None):
    """[Result]: linux's, then those of the policies, all with the same parameters."""
    policies = [(name, params or {}) for name in names]
    setup = Setup.of(
        machine=machine or cold_machine(), costs=COSTS, threads_on="round-robin", baseline="linux", cold=True
    )
    return replay_snapshot(snapshot, trace, policies, setup)
