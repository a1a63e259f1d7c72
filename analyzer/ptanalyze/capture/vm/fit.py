"""Whether a guest's tables and a host's nested tables belong to the same VM: counted, with stated limits."""

from collections.abc import Iterable, Sized
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...core import snapshot as bits
from ...core.errors import CaptureError
from ...core.snapshot import Topology, Tree
from ...formats.vm_file import Slot
from ...world.address_space import Nested

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

    doubts  lines about what speaks against the two being of one VM (same_boot.py)
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
