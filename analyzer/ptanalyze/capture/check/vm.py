"""Checks that nested tables stay within the VM's memory slots and that both sides of a joined capture fit."""

from collections.abc import Iterable, Iterator

import numpy as np

from ...core import snapshot as entries
from ...core.snapshot import NO_PARENT, Snapshot
from ...formats.vm_file import HostDump, Root
from ...world.address_space import Nested
from ..vm.fit import Slots, fit
from .finding import FAILED, NOTE, OK, PARTIAL, Finding, finding
from .tables import check_tree


def check_host(host: HostDump) -> Iterator[Finding]:
    """Findings about a host's dump of a VM: every tree, its roots, slots and vCPUs."""
    yield from check_tree(host.tree, "ept", host.topology)
    yield from check_memory(host)
    moved = host.facts.get("quiescence") or {"quiet": True}
    reason = "the VM's nested tables changed while they were read"
    yield finding("dump: quiet", 1, not moved["quiet"], reason, PARTIAL)


def check_memory(host: HostDump) -> Iterator[Finding]:
    """Findings about roots, slots and vCPUs of a HostDump."""
    left_out = [root.why or "no reason given" for root in host.roots if root.table is None]
    yield finding(
        "ept: roots",
        len(host.roots),
        len(left_out),
        f"are not here: {'; '.join(sorted(set(left_out)))}",
        NOTE,
    )
    usable = [root for root in host.roots if root.table is not None and root.kind != "shadow"]
    shadow = "only shadow tables: they map guest-virtual addresses, not guest-physical ones"
    yield Finding(
        "ept: guest-physical", 1, int(not usable), OK if usable else PARTIAL, "" if usable else shadow
    )
    slots = [slot for slot in host.slots if slot.space == 0]
    yield finding("vm: slots known", 1, not slots, "the capture does not know the VM's memory slots", PARTIAL)
    if slots:
        examined, outside = outside_slots(host, usable)
        yield finding("ept: inside slots", examined, outside, "nested leaves map what is in no slot", PARTIAL)
    lost = sum(vcpu.node is None for vcpu in host.vcpus)
    yield finding("vm: vCPUs placed", len(host.vcpus), lost, "vCPUs ran on an unknown node", NOTE)


def outside_slots(host: HostDump, roots: Iterable[Root]) -> tuple[int, int]:
    """(leaf entries below ordinary roots, number of those that begin outside every slot)."""
    tree, inside = host.tree, Slots(host.slots)
    ordinary = [root.table for root in roots if root.table is not None and not root.smm]
    root_of = np.flatnonzero(tree.parent == NO_PARENT)[np.cumsum(tree.parent == NO_PARENT) - 1]
    wanted = np.isin(root_of, ordinary)
    examined = outside = 0
    for level, ids, raw in entries.blocks(tree, (1, 2, 3)):
        table, slot = np.nonzero(entries.leaf(raw, level, tree.encoding) & wanted[ids][:, None])
        frames = (tree.base[ids[table]] >> np.uint64(12)).astype(np.int64) + (slot << (9 * (level - 1)))
        examined += len(frames)
        outside += int(np.count_nonzero(~inside.hold(frames)))
    return examined, outside


def check_joined(snapshot: Snapshot, host: HostDump) -> Iterator[Finding]:
    """Findings about a joined capture: are the guest's tables and pages in the host's nested tables?"""
    yield from check_memory(host)
    doubts = ((snapshot.facts.get("vm") or {}).get("fit") or {}).get("doubts") or []
    yield finding("vm: one boot", 1, bool(doubts), "; ".join(map(str, doubts)), PARTIAL)
    nested, guest = Nested(snapshot), snapshot.guest
    covered = fit(guest, nested, Slots(host.slots), snapshot.topology, host.vcpus)
    for what, share, verdict in (("tables", covered.tables, PARTIAL), ("pages", covered.pages, NOTE)):
        reason = f"are not mapped by the host: {share.not_faulted} not faulted in, {share.outside} in no slot"
        yield finding(f"vm: {what} in ept", share.frames, share.missing, f"guest {what} {reason}", verdict)
    node = snapshot.topology.node_of_frame(nested.host_frames(guest.frame))
    yield finding(
        "gpt: nodes agree",
        len(guest),
        np.count_nonzero(guest.node != node),
        "guest tables' nodes are not those of the host frames behind them",
        FAILED,
    )
