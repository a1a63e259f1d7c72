"""Huge pages for which mapping: walks that 2 MiB pages would save in each VMA, and the line to type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import numpy as np
from pandas import DataFrame

from ..core.columns import CAREFUL, Finding, described
from ..core.errors import UsageError
from ..core.machine import Costs
from ..core.options import Keywords
from ..core.trace import WalkStream, blocks, read_only
from ..formats.capture import CaptureLike
from ..policies import availability, plan_for
from ..world.address_space import vma_of
from ..world.mm_events import advice
from ..world.scenario import Scenario, leaf_entries
from .setup import Setup, open_replay_capture, setup_of

BATCH = 1 << 20
PAGES, PAGE_BYTES, MIB = 512, 4096, 1 << 20
GIB = 1 << 30
SPARSE = 0.5  # of the pages of its huge pages mapped: below, smaller sizes waste less
WORTH_TYPING = 0.005  # of all walks saved: shown as 1 %
LEFT = 0.1  # of a VMA's walks left with 2 MiB pages: above, 1 GiB pages are worth a thought
SHARED = ("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero")  # anonymous to the program, shmem to the kernel
NO_LINE = "-"


class Mapping(NamedTuple):
    """A VMA; walks of the counted run, now and with 2 MiB pages everywhere.

    pages    4 KiB pages mapped in regions that would become huge; regions: their number
    asked    whether the program asks for huge pages there already (madvise)
    """

    start: int
    end: int
    name: str
    walks: int
    left: int
    pages: int
    regions: int
    asked: bool

    @property
    def saved(self) -> int:
        return self.walks - self.left

    @property
    def huge_bytes(self) -> int:
        return self.regions * PAGES * PAGE_BYTES

    @property
    def waste_bytes(self) -> int:
        """Memory that is not touched, yet would be mapped."""
        return (self.regions * PAGES - self.pages) * PAGE_BYTES

    @property
    def per_mib(self) -> float:
        """Walks saved per MiB of huge pages."""
        return self.saved * MIB / self.huge_bytes if self.huge_bytes else 0.0

    def zeroing_ns(self, costs: Costs) -> float:
        """To zero all of the huge pages once, 512 pages of 4 KiB at each first touch."""
        return self.regions * PAGES * costs.zero_ns

    @property
    def line(self) -> str:
        """`typed`, NO_LINE without."""
        return self.typed or NO_LINE

    @property
    def typed(self) -> str:
        """What to type, or to write, for this mapping alone; "" where no huge page fits it."""
        call = f"madvise((void *){self.start:#x}, {self.end - self.start:#x}, MADV_HUGEPAGE)"
        if self.asked:
            return "nothing: the program asks already"
        if not self.regions and (not self.name or self.name.startswith("[")):
            return ""
        if self.name == "[heap]":
            return availability("thp").line
        if self.name.startswith("["):
            return call if self.name.startswith("[anon") else ""
        if self.name.startswith("/dev/shm/"):
            return f"sudo mount -o remount,huge=advise /dev/shm; {call}"
        if self.name.startswith(SHARED):
            return f"echo advise | sudo tee {SYSFS}/shmem_enabled; {call}"
        if self.name:
            return "its contents in hugetlbfs or in tmpfs mounted with huge=advise"
        return f"{call}; from malloc: {availability('thp').line}"


SYSFS = "/sys/kernel/mm/transparent_hugepage"


@dataclass(frozen=True)
class HugePages:
    """mappings: [Mapping], the most walks saved per MiB first; walks, left: of all; machine: its name."""

    mappings: list[Mapping]
    walks: int
    left: int
    costs: Costs
    findings: tuple[Finding, ...]

    @property
    def frame(self) -> DataFrame:
        """One row per VMA. Columns: start, end, name, walks, walks_saved, saved_share (of all walks),
        huge_bytes, waste_bytes, saved_per_mib, zeroing_ns, line."""
        rows = [
            {
                "start": one.start,
                "end": one.end,
                "name": one.name,
                "walks": one.walks,
                "walks_saved": one.saved,
                "saved_share": one.saved / max(self.walks, 1),
                "huge_bytes": one.huge_bytes,
                "waste_bytes": one.waste_bytes,
                "saved_per_mib": one.per_mib,
                "zeroing_ns": one.zeroing_ns(self.costs),
                "line": one.line,
            }
            for one in self.mappings
        ]
        return described(DataFrame(rows), self.findings)

    @property
    def sentence(self) -> str:
        best = self.best
        if not self.walks:
            return "No page walks in the counted run: huge pages save none."
        if best is None:
            return "Huge pages save no walks in any mapping."
        share = 100 * best.saved / self.walks
        where = best.name or "anonymous memory"
        return f"Huge pages for {where} at {best.start:#x} save {share:.0f} % of all page walks."

    @property
    def to_type(self) -> list[Mapping]:
        """The mappings that save a share of all walks that is worth typing, and have a line."""
        least = max(WORTH_TYPING * self.walks, 1)
        return [one for one in self.mappings if one.saved >= least and one.typed]

    @property
    def best(self) -> Mapping | None:
        """The mapping that saves most walks."""
        most = max((one for one in self.mappings if one.regions), key=lambda one: one.saved, default=None)
        return most if most and most.saved > 0 else None

    @property
    def careful(self) -> list[str]:
        """What speaks against all of it: more memory than the program, or a node, has."""
        return [f"Careful: {one.text}." for one in self.findings if one.weight == CAREFUL]

    @property
    def advice(self) -> list[str]:
        """What to know before typing a line."""
        said = [
            "Zeroing: the first touch of each 2 MiB clears 512 pages "
            f"({PAGES * self.costs.zero_ns / 1e3:.0f} us).",
            "After fork a write splits a transparent huge page and copies 4 KiB; of hugetlb it copies 2 MiB.",
        ]
        best = self.best
        if best and best.pages < SPARSE * PAGES * best.regions:
            said.append(
                "Sparse: 64 KiB pages waste less, but save walks only where the CPU joins their entries: "
                f"echo madvise | sudo tee {SYSFS}/hugepages-64kB/enabled (Linux 6.8 or newer)."
            )
        elif best and best.end - best.start >= GIB and best.left > LEFT * best.walks:
            said.append(
                f"{100 * best.left / best.walks:.0f} % of its walks remain: 1 GiB pages, reserved at boot "
                "(hugepagesz=1G hugepages=N), mmap with MAP_HUGETLB | MAP_HUGE_1GB."
            )
        return said


def huge_pages(
    capture: CaptureLike = None, setup: Setup | None = None, **options: Unpack[Keywords]
) -> HugePages:
    """Walks that 2 MiB pages save in each VMA, all of them made huge together. Arguments as of `replay`.

    A mapping too small for huge pages saves walks, too, where its neighbours leave TLB entries to it. Walks
    are those of a further run of the region, warm, or of the run as traced (Setup.cold). UsageError
    without a trace or without VMAs; RefusedError where `thp` is refused.
    """
    how, known = setup_of(setup, options), open_replay_capture(capture)
    scenario = known.scenario(how)
    if not scenario.traced:
        raise UsageError(
            f"{known.capture.directory}: no trace, and so no walks; record one, or see classify --by vma"
        )
    plan = plan_for("thp")
    plan.check(scenario)
    shaped = plan.reshape(scenario)
    runs = [(one, one.stream if how.as_traced else one.steady_stream) for one in (scenario, shaped)]
    mappings, walks, left = _mappings(scenario, shaped, runs)
    return HugePages(mappings, walks, left, how.costs, tuple(shaped.findings))


def _mappings(
    scenario: Scenario, shaped: Scenario, runs: Sequence[tuple[Scenario, WalkStream]]
) -> tuple[list[Mapping], int, int]:
    vmas = scenario.snapshot.vmas
    now, then = (walks_by_vma(*run) for run in runs)
    regions, pages = _promoted(scenario, shaped)
    asked = advice(scenario.trace.events).asked
    found = []
    for k in np.flatnonzero((now > 0) | (np.append(regions, 0) > 0)).tolist():
        if k == len(vmas):
            continue
        start, end = int(vmas["start"][k]), int(vmas["end"][k])
        inside = bool(((asked[:, 0] < end) & (asked[:, 1] > start)).any())
        counts = int(now[k]), int(then[k]), int(pages[k]), int(regions[k])
        found.append(Mapping(start, end, scenario.snapshot.vma_names[k], *counts, inside))
    found.sort(key=lambda one: (-one.per_mib, -one.walks))
    return found, int(now.sum()), int(then.sum())


def walks_by_vma(scenario: Scenario, stream: WalkStream) -> np.ndarray:
    """int64[V + 1]: walks to each VMA, then to none."""
    counts = np.zeros(len(scenario.snapshot.vmas) + 1, np.int64)
    for page in blocks(read_only(stream.page), BATCH):
        vma = vma_of(address_of_walks(scenario, page), scenario.snapshot.vmas)
        counts += np.bincount(vma, minlength=len(counts))
    return counts


def address_of_walks(scenario: Scenario, page: np.ndarray) -> np.ndarray:
    """uint64[n]: first byte of each page walked for (WalkStream.page)."""
    region = scenario.space.regions.va[page >> np.uint32(9)].astype(np.uint64) << np.uint64(21)
    address: np.ndarray = region | (page.astype(np.uint64) & np.uint64(511)) << np.uint64(12)
    return address


def _promoted(scenario: Scenario, shaped: Scenario) -> tuple[np.ndarray, np.ndarray]:
    """(int64[V], int64[V]): regions of each VMA that become huge, and pages of 4 KiB mapped in them."""
    before, after, vmas = scenario.snapshot.guest, shaped.snapshot.guest, scenario.snapshot.vmas
    leaf = before.level == 1
    gone = leaf & ~np.isin(before.base, after.base[after.level == 1])
    of = vma_of(before.base[gone], vmas)
    count = len(vmas) + 1
    regions = np.bincount(of, minlength=count)[: len(vmas)]
    pages = np.bincount(of, leaf_entries(before)[gone], count)[: len(vmas)].astype(np.int64)
    return regions, pages


def as_record(found: HugePages) -> dict[str, Any]:
    return {
        "sentence": found.sentence,
        "walks": found.walks,
        "walks_with_huge_pages": found.left,
        "mappings": found.frame.to_dict("records"),
        "careful": found.careful,
        "advice": found.advice,
    }
