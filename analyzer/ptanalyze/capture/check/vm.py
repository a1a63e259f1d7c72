"""Checks that nested tables stay within the VM's memory slots and that both sides of a joined capture fit."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ...core import snapshot as entries
from ...core.columns import FAILED, NOTE, OK, PARTIAL
from ...core.errors import UNKNOWN_NODE, PartialDataError, UsageError
from ...core.safe_files import descriptor
from ...core.snapshot import FRAME, NO_PARENT, Snapshot
from ...core.snapshot import PAGEMAP_PRESENT as PRESENT
from ...formats.snapshot import VM_FILE, HostDump, Root
from ...world.address_space import Nested, leaf_entries
from ..live.process import check_process, shown, state
from ..vm.join import FRAMES, Slots, fit, one_root
from .tables import Check, check_tree, finding


def check_host(host: HostDump) -> Iterator[Check]:
    """Findings about a host's dump of a VM: every tree, its roots, slots and vCPUs."""
    yield from check_tree(host.tree, "ept", host.topology)
    yield from check_memory(host)
    quiescence = host.facts.get("quiescence") or {"quiet": True}
    reason = "the VM's nested tables changed while they were read"
    yield finding("dump: quiet", 1, not quiescence["quiet"], reason, PARTIAL)
    if quiescence["quiet"] and set(KVM_COUNTS) <= set(quiescence.get("after", ())):
        yield counted_by_kvm(host, [quiescence["after"][name] for name in KVM_COUNTS])


KVM_COUNTS = ("pages_4k", "pages_2m", "pages_1g")  # of kvm_vm_stat: leaf entries by size


def counted_by_kvm(host: HostDump, counted: Sequence[int]) -> Check:
    """Compare KVM's counts of leaf entries, of 4 KiB, 2 MiB and 1 GiB, with a quiet dump's.

    Tables that several roots share count once.
    """
    once = np.unique(host.tree.frame, return_index=True)[1]
    leaves = np.bincount(host.tree.level[once], leaf_entries(host.tree)[once], 4)[1:4].astype(int)
    missing = np.abs(leaves - counted).sum()
    left_out = any(root.table is None or root.kind == "shadow" for root in host.roots)
    reason = f"KVM counts {list(counted)} leaves of 4 KiB, 2 MiB, 1 GiB"
    return finding("ept: KVM's count", leaves.sum(), missing, reason, NOTE if left_out else PARTIAL)


def check_memory(host: HostDump) -> Iterator[Check]:
    """Findings about roots, slots and vCPUs of a HostDump."""
    left_out = [root.why or "no reason given" for root in host.roots if root.table is None]
    why = f"are not here: {'; '.join(sorted(set(left_out)))}"
    yield finding("ept: roots", len(host.roots), len(left_out), why, NOTE)
    usable = [root for root in host.roots if root.table is not None and root.kind != "shadow"]
    shadow = "only shadow tables: they map guest-virtual addresses, not guest-physical ones"
    yield finding("ept: guest-physical", 1, not usable, shadow, PARTIAL)
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


def check_joined(snapshot: Snapshot, host: HostDump) -> Iterator[Check]:
    """Findings about a joined capture: are the guest's tables and pages in the host's nested tables?"""
    yield from check_memory(host)
    doubts = ((snapshot.facts.get("vm") or {}).get("fit") or {}).get("doubts") or []
    yield finding("vm: one boot", 1, bool(doubts), "; ".join(map(str, doubts)), PARTIAL)
    nested, guest = Nested(snapshot.nested), snapshot.guest
    covered = fit(guest, nested, Slots(host.slots), snapshot.topology, host.vcpus)
    for what, share, verdict in (("tables", covered.tables, PARTIAL), ("pages", covered.pages, NOTE)):
        reason = f"are not mapped by the host: {share.not_faulted} not faulted in, {share.outside} in no slot"
        yield finding(f"vm: {what} in ept", share.frames, share.missing, f"guest {what} {reason}", verdict)
    node = snapshot.topology.node_of_frame(nested.host_frames(guest.frame))
    why = "guest tables' nodes are not those of the host frames behind them"
    yield finding("gpt: nodes agree", len(guest), np.count_nonzero(guest.node != node), why)


# Compare a dump of a VM's nested tables with the /proc/PID/pagemap of the running VMM.
#
# A nested leaf maps a guest-physical page to a host frame; a memory slot maps the same page to the VMM's
# virtual memory, for which pagemap gives the frame. They must agree: so a user can verify a dump on hardware
# that its authors did not have (Intel EPT).

PAGE = 4096
STALE = 0.01  # share of pages that may have changed since the dump before the dump itself is doubted
GUEST_MEMFD = 4  # KVM_MEM_GUEST_MEMFD: private memory is not in the VMM's address space

Words: TypeAlias = Callable[[int, int], np.ndarray]  # of (virtual address, pages): pagemap's uint64[pages]

PRIVATE = "may be private memory (guest_memfd), which the VMM does not map"
DEVICE = "are a device's, which no pagemap shows"
GONE = "are not in the VMM's tables now (swapped or unmapped)"
MOVED = "have moved since, or were the shared page of zeros"


def check_live(host: HostDump, pid: int) -> Iterator[Check]:
    """Checks of a HostDump against the running VMM `pid`, counted in 4 KiB pages of its slots, by reason.

    UsageError if `pid` cannot be read, CaptureError if no root maps guest-physical addresses.
    """
    nested, total = Nested(one_root(host, Path(VM_FILE)).tree), 0
    wrong = dict.fromkeys((PRIVATE, DEVICE, GONE, MOVED), 0)
    with pagemap(pid) as words:
        for slot in host.slots:
            pages = slot.bytes // PAGE if slot.space == 0 else 0
            for first in range(0, pages, FRAMES):
                guest = slot.gpa // PAGE + np.arange(first, min(first + FRAMES, pages))
                ours, seen = nested.host_frames(guest), words(slot.hva + first * PAGE, len(guest))
                seen, ours = seen[ours >= 0], ours[ours >= 0]
                there = seen & PRESENT != 0
                total += len(seen)
                moved = (seen & FRAME).astype(np.int64) != ours
                wrong[MOVED] += int(np.count_nonzero(there & moved))
                outside = host.topology.node_of_frame(ours[~there]) == UNKNOWN_NODE
                device = int(np.count_nonzero(outside)) if len(host.topology) else 0
                wrong[DEVICE] += device
                wrong[PRIVATE if slot.flags & GUEST_MEMFD else GONE] += len(outside) - device
    if not total:
        yield Check("live: pages as in pagemap", 0, 0, PARTIAL, "the nested tables map nothing in a slot")
        return
    doubtful = wrong[GONE] + wrong[MOVED]
    verdict = OK if not doubtful else PARTIAL if doubtful <= STALE * total else FAILED
    why = f"differ; {100 * STALE:.0f} % at most may have changed since: dump again with --stop"
    yield Check("live: pages as in pagemap", total, sum(wrong.values()), verdict, why if doubtful else "")
    for reason, count in wrong.items():
        if count:
            yield Check("live: why not", total, count, NOTE, reason)


@contextmanager
def pagemap(pid: int) -> Iterator[Words]:
    """words(virtual address, pages) of /proc/PID/pagemap, 0 beyond the end of user space.

    UsageError where frames are hidden from us; PartialDataError once the process is gone.
    """
    check_process(shown(pid), pid)
    try:
        file = os.open(shown(pid) / "pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"PID {pid}: cannot read its pagemap: {error.strerror}; run as root") from None

    def words(address: int, pages: int) -> np.ndarray:
        raw = os.pread(file, pages * 8, address // PAGE * 8)
        if len(raw) < pages * 8 and state(shown(pid)) in "ZX":
            raise PartialDataError(f"PID {pid}: ended while its pages were compared")
        seen = np.frombuffer(raw.ljust(pages * 8, b"\0"), np.uint64)
        if np.any((seen & PRESENT != 0) & (seen & FRAME == 0)):
            raise UsageError(f"PID {pid}: page frames are hidden from us (CAP_SYS_ADMIN): run as root")
        return seen

    with descriptor(file):
        yield words
