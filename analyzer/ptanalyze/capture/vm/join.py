"""A VM capture joined from the host's capture and the guest's."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ...core import snapshot as bits
from ...core.errors import CaptureError, UsageError
from ...core.safe_files import open_inside
from ...core.snapshot import NO_PARENT, Node, Snapshot, Topology, Tree
from ...formats.heat import FILE as HEAT
from ...formats.record import MANIFEST, TRACE, copy_private, damaged_files, new_capture, read_manifest, seal
from ...formats.snapshot import (
    VM_FILE,
    HostDump,
    Root,
    Slot,
    node_records,
    read_snapshot,
    read_vm,
    write_json,
    write_records,
    write_tree,
    write_vm,
)
from ...world.address_space import Nested

# Whether a guest's tables and a host's nested tables belong to the same VM: counted, with stated limits.

TABLES_LIMIT = 0.05  # share of guest tables that the host may not map: the guest walks them all the time
PAGES_LIMIT = 0.50  # of mapped guest pages: the host may have swapped or reclaimed idle pages
REGIONS = 4096  # 2 MiB regions counted page by page at a time


@dataclass(frozen=True)
class Share:
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

    doubts  lines about what speaks against the two being of one VM (function doubts)
    """

    tables: Share
    pages: Share
    guest_cpus: int
    vcpus: int
    doubts: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        return asdict(self)


class Slots:
    """Memory slots of KVM's ordinary address space, in frames. Without any, all frames count as inside."""

    def __init__(self, slots: Iterable[Slot]) -> None:
        ordered = sorted((slot.gpa >> 12, slot.gpa + slot.bytes >> 12) for slot in slots if slot.space == 0)
        self.start, self.end = (np.array([pair[side] for pair in ordered], np.int64) for side in (0, 1))

    def hold(self, frames: np.ndarray) -> np.ndarray:
        """bool, the shape of `frames`."""
        if not len(self.start):
            return np.ones(np.shape(frames), bool)
        at = np.searchsorted(self.start, frames, side="right") - 1
        return (at >= 0) & (frames < self.end[at])


def fit(guest: Tree, nested: Nested, slots: Slots, guest_topology: Topology, vcpus: Sized) -> Fit:
    """Fit of a guest Tree on Nested tables and Slots."""
    tables = share(guest.frame[guest.frame >= 0], nested, slots)
    cpus = sum(len(node.cpus) for node in guest_topology.nodes)
    return Fit(tables, count_pages(guest, nested, slots), cpus, len(vcpus))


def share(frames: np.ndarray, nested: Nested, slots: Slots) -> Share:
    mapped = nested.host_frames(frames) >= 0
    inside = slots.hold(frames[~mapped])
    return Share(len(frames), int(mapped.sum()), int(inside.sum()), int((~inside).sum()))


def count_pages(guest: Tree, nested: Nested, slots: Slots) -> Share:
    """Share of the guest's mapped pages, each leaf entry counted as all its 4 KiB pages."""
    total = small_pages(guest, nested, slots)
    for level, _, raw in bits.blocks(guest, (2, 3)):
        frames = bits.frame(raw[bits.leaf(raw, level)], level)
        total += huge_pages(frames, level, nested, slots)
    return Share(*total.tolist())


def small_pages(guest: Tree, nested: Nested, slots: Slots) -> np.ndarray:
    """int64[4] as in Share; single entries are examined only in tables that the host does not cover."""
    from ...kernels.walker import count_covered

    tables = np.flatnonzero(guest.level == 1)
    leaves, covered = np.zeros(len(tables), np.int64), np.zeros(len(tables), np.int64)
    count_covered(np.asarray(guest.entries), tables, nested.mapped, leaves, covered)
    whole = leaves == covered
    total = np.array([leaves[whole].sum(), covered[whole].sum(), 0, 0])
    rest = tables[~whole]
    for first in range(0, len(rest), REGIONS):
        raw = guest.entries[rest[first : first + REGIONS]]
        part = share(bits.frame(raw[bits.leaf(raw, 1)], 1), nested, slots)
        total += [part.frames, part.mapped, part.not_faulted, part.outside]
    return total


def huge_pages(frames: np.ndarray, level: int, nested: Nested, slots: Slots) -> np.ndarray:
    spans = 512 ** (level - 2)
    regions = ((frames >> 9)[:, None] + np.arange(spans)).ravel()
    full = nested.region_pages(regions) == 512
    total = np.array([len(regions), full.sum(), 0, 0]) * 512
    rest = regions[~full]
    for first in range(0, len(rest), REGIONS):
        pages = ((rest[first : first + REGIONS] << 9)[:, None] + np.arange(512)).ravel()
        part = share(pages, nested, slots)
        total += [0, part.mapped, part.not_faulted, part.outside]
    return total


def refuse_strangers(file: Path, fit: Fit) -> None:
    """CaptureError when the guest cannot be that VM's: too many CPUs, or frames the host does not map."""
    way_out = "this is another VM's guest, or its memory changed in between; dump host and guest again"
    if fit.vcpus and fit.guest_cpus > fit.vcpus:
        raise CaptureError(file, "guest CPUs", fit.guest_cpus, f"the VM has {fit.vcpus} vCPUs: {way_out}")
    for what, share, limit in (("tables", fit.tables, TABLES_LIMIT), ("pages", fit.pages, PAGES_LIMIT)):
        if share.missing > limit * share.frames:
            raise CaptureError(
                file,
                f"guest {what} that the host does not map",
                f"{share.missing} of {share.frames}",
                f"{share.outside} lie outside every memory slot; more than {limit:.0%}: {way_out}",
            )


# Whether the clocks of host and guest speak against their dumps being of one VM, and of one boot of it.

SLACK = 120.0  # seconds by which clocks of host and guest may differ
WAY_OUT = "another VM's guest, or another boot, unless the two clocks differ: dump host and guest again"


def doubts(host: Mapping[str, Any], guest: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each contradiction between the facts of a HostDump and of its guest's Snapshot.

    A guest boots after its VMM was started, and before the host's dump was made. Where a dumper did not note
    times (older captures, guests read from outside) nothing is said. Two VMs that both ran all the time are
    not told apart.
    """
    dumped, vmm = _when(host), host.get("process_s")
    looked, up = _when(guest), guest.get("uptime_s")
    if dumped is None or looked is None or up is None:
        return
    booted = looked - up
    if booted > dumped + SLACK:
        yield f"the guest booted {span(booted - dumped)} after the host's dump was made: {WAY_OUT}"
    elif vmm is not None and booted < dumped - vmm - SLACK:
        ago = span(dumped - vmm - booted)
        yield f"the guest booted {ago} before the VMM was started, as after a migration; else {WAY_OUT}"


def _when(facts: Mapping[str, Any]) -> float | None:
    """Seconds since 1970 at which a dump was made, by the clock of its machine; None unknown."""
    try:
        return datetime.fromisoformat(facts["time"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return None


def span(seconds: float) -> str:
    """A time in its largest unit: "3 hours"."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            number = round(seconds / length)
            return f"{number:,} {unit}{'s' if number != 1 else ''}"
    return f"{seconds:.0f} seconds"


@dataclass(frozen=True)
class Joined:
    """The Snapshot of a VM, its HostDump (a single root left), how well both fit, and other facts."""

    snapshot: Snapshot
    host: HostDump
    fit: Fit


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
    whole, guest = read_vm(host_dir), read_snapshot(guest_dir)
    if not guest.native:
        raise UsageError(f"{guest_dir}: is a VM capture already; name the capture made inside the guest")
    joined = put_together(whole, guest, host_dir / VM_FILE)
    with new_capture(out) as inside:
        link(guest_dir / "gpt.entries", inside)
        link(guest_dir / "maps", inside)
        for name in (TRACE, HEAT):
            if (guest_dir / name).exists():
                link(guest_dir / name, inside)
        write_records(inside, "gpt", joined.snapshot.guest)
        if len(joined.host.tree) == len(whole.tree):
            link(host_dir / "ept.entries", inside)
            link(host_dir / "ept.tables", inside)
        else:
            write_tree(inside, "ept", joined.host.tree)
        write_vm(inside, joined.host)
        write_json(inside, joined.snapshot)
        seal(inside, "vm", {"host": provenance(host_dir), "guest": provenance(guest_dir)})
    return joined.fit


def put_together(whole: HostDump, guest: Snapshot, file: Path) -> Joined:
    """Joined of a HostDump and a guest's Snapshot; CaptureError naming `file` when they do not belong."""
    host = one_root(whole, file)
    both = replace(guest, host=host.tree)
    nested = Nested(both)
    fits = fit(guest.guest, nested, Slots(host.slots), guest.topology, host.vcpus)
    fits = replace(fits, doubts=tuple(doubts(host.facts, guest.facts)))
    refuse_strangers(file, fits)
    behind = nested.host_frames(guest.guest.frame)
    node = host.topology.node_of_frame(behind)
    facts = {**guest.facts, "vm": vm_facts(host, guest, fits)}
    tree = replace(guest.guest, node=node)
    topology = topology_for_guest_cpus(host)
    return Joined(replace(both, guest=tree, topology=topology, facts=facts), host, fits)


def one_root(host: HostDump, file: Path) -> HostDump:
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
        replace_root(root, 0, root.why)
        if root is taken
        else replace_root(root, None, root.why or "not joined")
        for root in host.roots
    )
    return replace(host, tree=cut(host.tree, first, ends[first]), roots=roots)


def replace_root(root: Root, table: int | None, why: str) -> Root:
    return msgspec.structs.replace(root, table=table, why=why)


def cut(tree: Tree, first: int, last: int) -> Tree:
    """Tables first..last-1, a whole root: the same Tree if that is all of it."""
    if (first, last) == (0, len(tree)):
        return tree
    part = slice(first, last)
    parent = tree.parent[part]
    return replace(
        tree,
        entries=tree.entries[part],
        base=tree.base[part],
        frame=tree.frame[part],
        parent=np.where(parent == NO_PARENT, NO_PARENT, parent - first).astype(np.int32),
        node=tree.node[part],
        level=tree.level[part],
        flags=tree.flags[part],
    )


def topology_for_guest_cpus(host: HostDump) -> Topology:
    """The host's nodes and frames; the CPUs are the guest's, on the nodes of their vCPU threads."""
    on: dict[int, list[int]] = {node.id: [] for node in host.topology.nodes}
    for number, vcpu in enumerate(host.vcpus):
        if vcpu.node in on:
            on[vcpu.node].append(number)
    nodes = host.topology.nodes
    return Topology(tuple(Node(n.id, tuple(on[n.id]), n.frames, n.distance) for n in nodes))


def vm_facts(host: HostDump, guest: Snapshot, fits: Fit) -> dict[str, Any]:
    """Facts of either side that the joined capture keeps."""
    opinion = guest.guest.node
    return {
        "fit": fits.facts(),
        "seconds_apart": seconds_apart(host.facts, guest.facts),
        "guest_nodes": msgspec.to_builtins(node_records(guest.topology)),
        "guest_tables_by_guest_node": {
            str(node): int(np.count_nonzero(opinion == node)) for node in np.unique(opinion)
        },
        "numa_oblivious": len(guest.topology) == 1 < len(host.topology) if len(guest.topology) else None,
        "host": host.facts,
    }


def seconds_apart(host: dict[str, Any], guest: dict[str, Any]) -> float | None:
    """Guest's time minus host's, None when either is unknown; their clocks need not agree."""
    try:
        times = [datetime.fromisoformat(side["time"]) for side in (guest, host)]
        return round((times[0] - times[1]).total_seconds(), 3)
    except (KeyError, TypeError, ValueError):
        return None


def must_be_whole(directory: Path) -> None:
    """CaptureError if a sealed capture is no longer as it was sealed; tools' own directories have no seal."""
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such directory")
    if (directory / MANIFEST).exists():
        for name, why in damaged_files(directory, read_manifest(directory)):
            raise CaptureError(directory / name, "contents", "damaged", why)
    elif (directory / TRACE).exists():
        from ...formats.trace import read_trace

        read_trace(directory / TRACE)


def provenance(directory: Path) -> dict[str, Any]:
    """The manifest's provenance of a sealed capture, with its directory's name."""
    sealed = (directory / MANIFEST).exists()
    return {"directory": directory.name, **(read_manifest(directory).provenance if sealed else {})}


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
        copy_private(file, target)
