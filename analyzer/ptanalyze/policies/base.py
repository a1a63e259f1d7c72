"""What a placement policy is: a name, typed parameters, the state it starts from, and three hooks.

The walks, their demand faults, and the steps of the memory manager are the same under every policy
(docs/data-path.md). A policy answers three questions about them. Hooks are Numba functions that
never allocate:

locate(state, table, dimension, node) -> node
    Which node serves a read of `table` (flat id; dimension 0 guest, 1 host) by a CPU of `node`? Inlined.
on_walk(state, tables, leaf, row, slot, node, fault, counters) -> node
    A CPU of `node` walks through entry `slot` of `leaf`, row `row`. `fault` is 0, or 1 + the number of table
    pages that a demand fault made, `leaf` upwards. Keeps up the state, counts what the policy writes and
    copies, and says which node serves the read of the leaf entry. Inlined: keep the common way short and
    call the rest.
on_step(state, tables, rows, steps, shootdowns, mapped, counters, step)
    The memory manager takes one of kernels.steps' steps; mapped.changed[step] says what changed. Not inlined.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np
from numba import njit

from ..errors import UsageError
from ..machine import Machine, Strict
from ..snapshot import UNKNOWN_NODE
from ..world.address_space import AddressSpace
from ..world.history import History

hook = njit(inline="always")


class Hooks(NamedTuple):
    locate: Callable
    on_walk: Callable
    on_step: Callable


class World(NamedTuple):
    """What a policy may look at when it starts. `readers` are the nodes on which threads run."""

    space: AddressSpace
    history: History
    machine: Machine
    readers: tuple[int, ...]

    @property
    def nodes(self):
        return self.machine.nodes


class Policy(NamedTuple):
    """start(world, params) -> (state of the hooks, guest table pages and host table pages it starts with).

    settle(state, world, tables) -> table pages: how many pages it takes to make `tables` (flat ids), which
    the snapshot has though the trace's events had freed them: the kernel filled them on the program's behalf.
    """

    name: str
    doc: str
    hooks: Hooks
    start: Callable
    settle: Callable
    params: type[msgspec.Struct] = Strict

    def configure(self, settings):
        """Parameters from {key: text or value}; UsageError names the key and what is allowed."""
        return configure(self, settings)


def configure(policy, settings):
    fields = {field.name: field for field in msgspec.structs.fields(policy.params)}
    for key in settings:
        if key not in fields:
            allowed = ", ".join(fields) or "none"
            raise UsageError(
                f"policy {policy.name}: {key} = {settings[key]}: no such parameter; it has: {allowed}"
            )
    try:
        return msgspec.convert(settings, policy.params, strict=False)
    except msgspec.ValidationError as error:
        key = (
            str(error).rpartition("`$.")[2].partition("`")[0] if "`$." in str(error) else next(iter(settings))
        )
        key = key.partition("[")[0]
        why = str(error).partition(" - at ")[0]
        raise UsageError(
            f"policy {policy.name}: {key} = {settings[key]}: {why} ({describe(fields[key])})"
        ) from None


def parameters(policy):
    """[(name, default, allowed values, meaning)] of a policy's parameters, for help texts."""
    return [(f.name, f.default, *_meta(f)) for f in msgspec.structs.fields(policy.params)]


def describe(field):
    allowed, doc = _meta(field)
    return f"{doc}; allowed: {allowed}" if allowed else doc


def _meta(field):
    info = msgspec.inspect.type_info(field.type)
    doc = ""
    if isinstance(info, msgspec.inspect.Metadata):
        info, doc = info.type, (info.extra_json_schema or {}).get("description", "")
    low, high, values = (getattr(info, name, None) for name in ("ge", "le", "values"))
    if values:
        return ", ".join(map(str, values)), doc
    return (f"{low}..{high}" if high is not None else f"{low} or more") if low is not None else "", doc


def captured_nodes(world, dimension):
    """int16: nodes of the guest's (0) or host's (1) tables as captured. UsageError where one is not known."""
    space, nodes = world.space, world.nodes
    split = space.guest_tables
    part = slice(0, split) if dimension == 0 else slice(split, split + space.host_tables)
    found = space.tables.node[part]
    file = "ept.tables" if dimension else "gpt.tables"
    unknown = int(np.count_nonzero(found == UNKNOWN_NODE))
    if unknown:
        raise UsageError(
            f"{file}: node unknown for {unknown} of {len(found)} table pages: dump with `ptanalyze "
            "dump process` as root (BPF) to learn them, or use a policy that re-places tables: first-touch, "
            "interleave, mitosis"
        )
    if len(found) and found.max() >= nodes:
        raise UsageError(
            f"{file}: node = {found.max()}: machine {world.machine.name} has nodes 0..{nodes - 1}; "
            "use a machine with more nodes, or first-touch"
        )
    return found


def owner_masks(world, ids):
    """uint64[len(ids)]: nodes that own a VMA within the span of each guest table at the trace's end.

    Tables without any VMA are given to the unknown VMA's owner, the main thread's node.
    """
    starts, ends, owners = world.history.last
    tables = world.space.tables
    low = tables.base[ids]
    high = low + (np.uint64(1) << (np.uint64(12) + np.uint64(9) * tables.level[ids].astype(np.uint64)))
    first, last = np.searchsorted(ends, low, side="right"), np.searchsorted(starts, high, side="left")
    masks = np.zeros(len(ids), np.uint64)
    for k in range(int((last - first).max(initial=0))):
        inside = first + k < last
        masks[inside] |= np.uint64(1) << owners[(first + k)[inside]].astype(np.uint64)
    masks[masks == 0] = np.uint64(1) << np.uint64(world.history.vma_owner[0])
    return masks
