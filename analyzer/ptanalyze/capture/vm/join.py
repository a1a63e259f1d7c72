"""A VM capture joined from the host's capture and the guest's."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...core import snapshot as bits
from ...core.errors import CaptureError, UsageError
from ...core.safe_files import open_inside
from ...core.snapshot import NO_PARENT, Node, Snapshot, Topology, Tree
from ...formats import record
from ...formats import snapshot as snapshots
from ...formats.heat import FILE as HEAT
from ...formats.trace import read_trace
from ...world.address_space import Nested

# Whether a guest's tables and a host's nested tables belong to the same VM: counted, with stated limits.

TABLES_LIMIT = 0.05  # share of guest tables that the host may not map: the guest walks them all the time
PAGES_LIMIT = 0.50  # of mapped guest pages: the host may have swapped or reclaimed idle pages
FRAMES = 1 << 20  # frames looked up at a time


class Share(NamedTuple):
    """Guest frames: all, those the host maps, and the others by reason.

    not_faulted  inside a memory slot: never touched since the VM started, swapped, or unmapped for a while
    outside      in no memory slot: a device's registers, or memory of another VM
    """

    frames: int
    mapped: int
    not_faulted: int
    outside: int

    @property
    def missing(self) -> int:
        return self.frames - self.mapped


@dataclass(frozen=True)
class Fit:
    """How well a guest's tables and mapped 4 KiB pages are covered by the host's nested tables and slots.

    doubts  lines about what speaks against the two being of one boot of one VM (function doubts)
    """

    tables: Share
    pages: Share
    guest_cpus: int
    vcpus: int
    doubts: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        return {**asdict(self), "tables": self.tables._asdict(), "pages": self.pages._asdict()}


class Slots:
    """Memory slots of KVM's ordinary address space, in frames. Without any, all frames count as inside."""

    def __init__(self, slots: Iterable[snapshots.Slot]) -> None:
        ordered = sorted((slot.gpa >> 12, slot.gpa + slot.bytes >> 12) for slot in slots if slot.space == 0)
        self.start, self.end = (np.array([pair[side] for pair in ordered], np.int64) for side in (0, 1))

    def hold(self, frames: np.ndarray) -> np.ndarray:
        """bool, the shape of `frames`."""
        if not len(self.start):
            return np.ones(np.shape(frames), bool)
        at = np.searchsorted(self.start, frames, side="right") - 1
        return (at >= 0) & (frames < self.end[at])


def fit(guest: Tree, nested: Nested, slots: Slots, guest_topology: Topology, vcpus: Sized) -> Fit:
    """Fit of a guest Tree on Nested tables and Slots; each leaf entry counts as all its 4 KiB pages."""
    tables = share([guest.frame[guest.frame >= 0]], nested, slots)
    cpus = sum(len(node.cpus) for node in guest_topology.nodes)
    return Fit(tables, share(mapped_frames(guest), nested, slots), cpus, len(vcpus))


def share(batches: Iterable[np.ndarray], nested: Nested, slots: Slots) -> Share:
    """Share of guest frames, int64 arrays."""
    total = np.zeros(4, np.int64)
    for frames in batches:
        mapped = nested.host_frames(frames) >= 0
        inside = slots.hold(frames[~mapped])
        total += np.array([len(frames), mapped.sum(), inside.sum(), np.count_nonzero(~inside)])
    return Share(*total.tolist())


def mapped_frames(guest: Tree) -> Iterator[np.ndarray]:
    """Yield the frames of the 4 KiB pages that a guest maps, about FRAMES at a time."""
    for level, _, raw in bits.blocks(guest, (1, 2, 3)):
        first, pages = bits.frame(raw[bits.leaf(raw, level)], level), np.arange(512 ** (level - 1))
        step = FRAMES // len(pages)
        for start in range(0, len(first), step):
            yield (first[start : start + step, None] + pages).ravel()


def refuse_strangers(file: Path, fit: Fit) -> None:
    """CaptureError when the guest cannot be that VM's: too many CPUs, or frames the host does not map."""
    way_out = "this is another VM's guest, or its memory changed in between; dump host and guest again"
    if fit.vcpus and fit.guest_cpus > fit.vcpus:
        raise CaptureError(file, "guest CPUs", fit.guest_cpus, f"the VM has {fit.vcpus} vCPUs: {way_out}")
    for what, share, limit in (("tables", fit.tables, TABLES_LIMIT), ("pages", fit.pages, PAGES_LIMIT)):
        if share.missing > limit * share.frames:
            field, value = f"guest {what} that the host does not map", f"{share.missing} of {share.frames}"
            why = f"{share.outside} lie outside every memory slot; more than {100 * limit:.0f} %: {way_out}"
            raise CaptureError(file, field, value, why)


# Whether the clocks of host and guest speak against their dumps being of one VM, and of one boot of it.

SLACK = 120.0  # seconds by which clocks of host and guest may differ
WAY_OUT = "another VM's guest, or another boot, unless the two clocks differ: dump host and guest again"


def doubts(host: Mapping[str, Any], guest: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each contradiction between the facts of a HostDump and of its guest's Snapshot.

    A guest boots after its VMM was started, and before the host's dump was made. Where a dumper did not note
    times (older captures, guests read from outside) nothing is said. VMs that ran all the time look alike.
    """
    apart, up, vmm = seconds_apart(host, guest), guest.get("uptime_s"), host.get("process_s")
    if apart is None or up is None:
        return
    if apart - up > SLACK:
        yield f"the guest booted {apart - up:,.0f} s after the host's dump was made: {WAY_OUT}"
    elif vmm is not None and up - apart - vmm > SLACK:
        when = f"{up - apart - vmm:,.0f} s before the VMM was started"
        yield f"the guest booted {when}, as after a migration; else {WAY_OUT}"


def seconds_apart(host: Mapping[str, Any], guest: Mapping[str, Any]) -> float | None:
    """Time of the guest's dump minus that of the host's, by their own clocks; None when either is unknown."""
    try:
        times = [datetime.fromisoformat(side["time"]) for side in (guest, host)]
        return round((times[0] - times[1]).total_seconds(), 3)
    except (KeyError, TypeError, ValueError):
        return None


def join(host_dir: str | PathLike[str], guest_dir: str | PathLike[str], out: str | PathLike[str]) -> Fit:
    """Make the VM capture `out` from a host's dump of a VM and its guest's capture; returns the Fit.

    The nodes of guest tables become those of the host frames behind them; the topology is the host's, with
    the guest's CPUs (vCPU i is the guest's CPU i) on the nodes their threads ran on. The guest's own
    statements are kept under facts["vm"]. Entries are linked or copied as they are.

    UsageError for directories that are no such dumps, CaptureError if they are damaged, if no root maps
    guest-physical addresses, or if the two do not belong together (TABLES_LIMIT, PAGES_LIMIT).
    """
    host_dir, guest_dir = Path(host_dir), Path(guest_dir)
    for directory in (host_dir, guest_dir):
        must_be_whole(directory)
    whole, guest = snapshots.read_vm(host_dir), snapshots.read_snapshot(guest_dir)
    if not guest.native:
        raise UsageError(f"{guest_dir}: is a VM capture already; name the capture made inside the guest")
    snapshot, host, fits = put_together(whole, guest, host_dir / snapshots.VM_FILE)
    with record.new_capture(out) as inside:
        link(guest_dir / "gpt.entries", inside)
        link(guest_dir / "maps", inside)
        for name in (record.TRACE, HEAT, record.PAGES):
            if (guest_dir / name).exists():
                link(guest_dir / name, inside)
        snapshots.write_records(inside, "gpt", snapshot.guest)
        if len(host.tree) == len(whole.tree):
            link(host_dir / "ept.entries", inside)
            link(host_dir / "ept.tables", inside)
        else:
            snapshots.write_tree(inside, "ept", host.tree)
        snapshots.write_vm(inside, host)
        snapshots.write_json(inside, snapshot)
        record.seal(inside, "vm", {"host": provenance(host_dir), "guest": provenance(guest_dir)})
    return fits


def put_together(
    whole: snapshots.HostDump, guest: Snapshot, file: Path
) -> tuple[Snapshot, snapshots.HostDump, Fit]:
    """(Snapshot of a VM, HostDump with a single root left, how well both fit) of a HostDump and a guest's
    Snapshot; CaptureError naming `file` when they do not belong."""
    host = one_root(whole, file)
    nested = Nested(host.tree)
    fits = fit(guest.guest, nested, Slots(host.slots), guest.topology, host.vcpus)
    fits = replace(fits, doubts=tuple(doubts(host.facts, guest.facts)))
    refuse_strangers(file, fits)
    node = host.topology.node_of_frame(nested.host_frames(guest.guest.frame))
    facts = {**guest.facts, "vm": vm_facts(host, guest, fits)}
    on: dict[int, list[int]] = {one.id: [] for one in host.topology.nodes}
    for number, vcpu in enumerate(host.vcpus):  # the guest's CPUs, on the nodes of their vCPU threads
        if vcpu.node in on:
            on[vcpu.node].append(number)
    nodes = [Node(one.id, tuple(on[one.id]), one.frames, one.distance) for one in host.topology.nodes]
    tree, topology = replace(guest.guest, node=node), Topology(tuple(nodes))
    return replace(guest, guest=tree, host=host.tree, topology=topology, facts=facts), host, fits


def one_root(host: snapshots.HostDump, file: Path) -> snapshots.HostDump:
    """HostDump with the tables of a single root: that which most vCPUs walk, the largest of equals."""
    starts = np.flatnonzero(host.tree.parent == NO_PARENT)
    ends = dict(zip(starts.tolist(), [*starts[1:].tolist(), len(host.tree)], strict=True))
    usable = [
        (root.table, root)
        for root in host.roots
        if root.table is not None and root.kind != "shadow" and not root.smm
    ]
    if not usable:
        kinds = ", ".join(sorted({root.kind for root in host.roots})) or "none"
        why = "no root maps guest-physical addresses; without EPT or NPT there is no second dimension"
        raise CaptureError(file, "roots", kinds, why)
    votes = [sum(vcpu.root == root.frame for vcpu in host.vcpus) for _, root in usable]
    sizes = [ends[first] - first for first, _ in usable]
    best = max(range(len(usable)), key=lambda i: (votes[i], sizes[i]))
    first, taken = usable[best]
    roots = tuple(
        msgspec.structs.replace(root, table=0)
        if root is taken
        else msgspec.structs.replace(root, table=None, why=root.why or "not joined")
        for root in host.roots
    )
    return replace(host, tree=cut(host.tree, first, ends[first]), roots=roots)


def cut(tree: Tree, first: int, last: int) -> Tree:
    """Tables first..last-1, a whole root."""
    part = slice(first, last)
    parent = np.where(tree.parent == NO_PARENT, NO_PARENT, tree.parent - first).astype(np.int32)[part]
    columns = ("entries", "base", "frame", "node", "level", "flags")
    return replace(tree, parent=parent, **{name: getattr(tree, name)[part] for name in columns})


def vm_facts(host: snapshots.HostDump, guest: Snapshot, fits: Fit) -> dict[str, Any]:
    """Facts of either side that the joined capture keeps."""
    nodes, counts = np.unique(guest.guest.node, return_counts=True)
    return {
        "fit": fits.facts(),
        "seconds_apart": seconds_apart(host.facts, guest.facts),
        "guest_nodes": msgspec.to_builtins(snapshots.node_records(guest.topology)),
        "guest_tables_by_guest_node": dict(zip(map(str, nodes), counts.tolist(), strict=True)),
        "numa_oblivious": len(guest.topology) == 1 < len(host.topology) if len(guest.topology) else None,
        "host": host.facts,
    }


def must_be_whole(directory: Path) -> None:
    """CaptureError if a sealed capture is no longer as it was sealed; tools' own directories have no seal."""
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such directory")
    if (directory / record.MANIFEST).exists():
        for name, why in record.damaged_files(directory, record.read_manifest(directory)):
            raise CaptureError(directory / name, "contents", "damaged", why)
    elif (directory / record.TRACE).exists():
        read_trace(directory / record.TRACE)


def provenance(directory: Path) -> dict[str, Any]:
    """The manifest's provenance of a sealed capture, with its directory's name."""
    sealed = (directory / record.MANIFEST).exists()
    return {"directory": directory.name, **(record.read_manifest(directory).provenance if sealed else {})}


def link(source: Path, directory: Path) -> None:
    """`source` in `directory` under its name: linked if it is private and on the same disk, else copied."""
    target = directory / source.name
    with open_inside(source) as file:
        if not os.fstat(file.fileno()).st_mode & 0o077:
            try:
                os.link(source, target, follow_symlinks=False)
                return
            except OSError:
                pass
        record.copy_private(file, target)
