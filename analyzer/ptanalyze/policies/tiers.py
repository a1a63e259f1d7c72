"""tables-in-dram, radiant: page tables on a machine some of whose memory is slower, on nodes without CPUs.

Radiant (Kumar, Prasad, Sarangi, Subramoney, ISMM 2021) binds the upper levels to DRAM and lets the leaf
tables follow the data that they map. Here both are homes that tables have from the start; a leaf table does
not move with its data while the trace runs (vmitosis-migrate does that). "DRAM" are the nodes with CPUs.
Linux allocates page tables without __GFP_MOVABLE: they get to a slow node's ZONE_NORMAL, never to its
ZONE_MOVABLE.
"""

import numpy as np

from ..core.machine import Strict
from ..world.data_nodes import count_children
from . import fixed_copies
from .base import Policy, World, captured_nodes
from .fixed_copies import State


def in_dram(world: World, dimension: int) -> np.ndarray:
    """int16: nodes of the captured tables of a dimension, of those on slow nodes the nearest with CPUs."""
    machine = world.machine
    near = np.arange(machine.nodes, dtype=np.int16)
    cpus = np.array(machine.cpu_nodes)
    slow = np.array(machine.memory_nodes)
    near[slow] = cpus[machine.latency_cycles()[slow][:, cpus].argmin(axis=1)]
    homes: np.ndarray = near[captured_nodes(world, dimension)]
    return homes


def with_data(world: World, dimension: int) -> np.ndarray:
    """int16: the same, but leaf tables on the node of most of the data that they map, where that is known."""
    homes, tree = in_dram(world, dimension), world.snapshot.host if dimension else world.snapshot.guest
    if tree is None:
        return homes
    nested = dimension == 0 and not world.snapshot.native
    counts = count_children(world, tree, tree.level != 1, nested)
    known = counts.any(axis=1)
    homes[known] = counts[known].argmax(axis=1)
    return homes


def tables_in_dram_guest(world: World, params: Strict) -> State:
    return placed(world, 0, in_dram(world, 0))


def tables_in_dram_host(world: World, params: Strict) -> State:
    return placed(world, 1, in_dram(world, 1))


def radiant_guest(world: World, params: Strict) -> State:
    return placed(world, 0, with_data(world, 0))


def radiant_host(world: World, params: Strict) -> State:
    return placed(world, 1, with_data(world, 1))


def placed(world: World, dimension: int, nodes: np.ndarray) -> State:
    """One copy of each captured table on `nodes`; others where a CPU first needs them: in DRAM."""
    home = fixed_copies.nowhere(world)
    first = world.space.guest_tables if dimension else 0
    home[first : first + len(nodes)] = nodes
    return fixed_copies.one_copy(world, home)


TABLES_IN_DRAM = Policy(
    "tables-in-dram",
    "one copy, as captured, but none on a node without CPUs: there the nearest node that has some",
    fixed_copies.guest_part(tables_in_dram_guest),
    fixed_copies.host_part(tables_in_dram_host),
    needs=("slow nodes",),
    source="Radiant (ISMM 2021) for all levels; Linux: the slow node's memory in ZONE_MOVABLE",
    takes="today: daxctl reconfigure-device --mode=system-ram dax0.0 (movable: it can hold no page tables)",
    besides="The whole machine: any program's data may then land on the device, and movable memory holds no "
    "kernel data either",
)
RADIANT = Policy(
    "radiant",
    "one copy: upper levels on nodes with CPUs, leaf tables on the node of most of their data, fast or slow",
    fixed_copies.guest_part(radiant_guest),
    fixed_copies.host_part(radiant_host),
    needs=("slow nodes",),
    source="Radiant (Kumar et al., ISMM 2021)",
    note="radiant: leaf tables have the place that fits the data as captured; they do not move with it",
)
