"""Huge pages for which mapping: walks saved in each VMA of a capture, accesses in each block of a process."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from pandas import DataFrame

import ptanalyze as pt
from ptanalyze_host.heat import sample_each

BATCH = 1 << 20  # walks
SHORT = (1, 2, 4)  # ms
PAGES, PAGE_BYTES, MIB = 512, 4096, 1 << 20
SHARED = ("/memfd:", "/SYSV", "/dev/zero")  # anonymous to the program, shmem to the kernel
SHMEM = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
NO_LINE = "-"
ARENA = 64 << 20  # bytes, at whose multiples glibc maps what its threads allocate from


def huge_pages(
    capture: pt.formats.CaptureLike = None,
    setup: pt.Setup | None = None,
    **options: Unpack[pt.analysis.Keywords],
) -> DataFrame:
    """Walks that 2 MiB pages save in each VMA, all of them made huge together; most saved per MiB first.

    Columns: start, end, name, walks, walks_saved, saved_share (of all walks), huge_bytes, waste_bytes (not
    touched, yet mapped), saved_per_mib, line (to type or write for this VMA alone). attrs: walks of all VMAs
    and of memory outside them, walks_left with huge pages.

    A mapping too small for huge pages saves walks, too, where its neighbours leave TLB entries to it. Walks
    are those of a further run of the region, warm, or of the run as traced (Setup.cold). Arguments as of
    `replay`. UsageError without a trace; RefusedError where `thp` is refused.
    """
    known = pt.analysis.open_replay_capture(capture)
    how = pt.analysis.setup_of(setup, options, known.capture)
    scenario = known.scenario(how)
    if not scenario.traced:
        raise pt.UsageError(
            f"{known.capture.directory}: hugepages replays a trace; record one; of a process, give -p NAME"
        )
    plan = pt.policies.plan_for("thp")
    plan.check(scenario)
    shaped = plan.reshape(scenario)
    now, then = (
        walks_by_vma(each, each.stream if how.as_traced else each.steady_stream)
        for each in (scenario, shaped)
    )
    snapshot, saved = scenario.snapshot, now - then
    regions, pages = _promoted(scenario, shaped)
    table = DataFrame(
        {
            "start": snapshot.vmas["start"],
            "end": snapshot.vmas["end"],
            "name": snapshot.vma_names,
            "walks": now[:-1],
            "walks_saved": saved[:-1],
            "saved_share": saved[:-1] / max(now.sum(), 1),
            "huge_bytes": regions * PAGES * PAGE_BYTES,
            "waste_bytes": (regions * PAGES - pages) * PAGE_BYTES,
        }
    )
    table["saved_per_mib"] = (table.walks_saved * MIB / table.huge_bytes).where(table.huge_bytes > 0, 0.0)
    asked = pt.analysis.advice(scenario.trace.events).asked
    table["line"] = [
        line_to_type(name, start, end, huge > 0, bool(((asked[:, 0] < end) & (asked[:, 1] > start)).any()))
        for start, end, name, huge in table[["start", "end", "name", "huge_bytes"]].itertuples(index=False)
    ]
    table = table[(table.walks > 0) | (table.huge_bytes > 0)]
    ranked = table.sort_values(["saved_per_mib", "walks"], ascending=False, kind="stable", ignore_index=True)
    walks, left = int(now.sum()), int(then.sum())
    return pt.columns.described(ranked, shaped.findings, known.provenance, walks=walks, walks_left=left)


def line_to_type(name: str, start: int, end: int, fits: bool, asked: bool) -> str:
    """What gives a VMA alone huge pages, NO_LINE where none fits (`fits`) or the kernel gives none; addresses
    are those of the traced run alone. asked: whether the program asks for them there (madvise)."""
    if asked:
        return "nothing: the program asks already"
    call = f"madvise(its start, {end - start:#x}, MADV_HUGEPAGE) in the program"
    malloc = pt.policies.availability("thp").line.replace("./app", "before its command")
    if not fits and not name.startswith("/"):
        return NO_LINE
    if name == "[heap]":
        return malloc
    if name.startswith("["):
        return call if name.startswith("[anon") else NO_LINE
    if name.startswith("/dev/shm/"):
        return f"sudo mount -o remount,huge=advise /dev/shm; {call}"
    if name.startswith(SHARED):
        return f"echo advise | sudo tee {SHMEM}; {call}"
    if name:
        return "its contents in hugetlbfs or in tmpfs mounted with huge=advise"
    arena = start % ARENA == 0 and end - start <= ARENA
    return f"{call}; from malloc: {'MALLOC_ARENA_MAX=1 ' * arena}{malloc}"


def walks_by_vma(scenario: pt.scenario.Scenario, stream: pt.trace.WalkStream) -> np.ndarray:
    """int64[V + 1]: walks to each VMA, then to none."""
    vmas, va = scenario.snapshot.vmas, scenario.space.regions.va
    counts = np.zeros(len(vmas) + 1, np.int64)
    for page in pt.trace.blocks(pt.trace.read_only(stream.page), BATCH):
        region = va[page >> np.uint32(9)].astype(np.uint64) << np.uint64(21)
        address = region | (page.astype(np.uint64) & np.uint64(511)) << np.uint64(12)
        counts += np.bincount(pt.address_space.vma_of(address, vmas), minlength=len(counts))
    return counts


def _promoted(scenario: pt.scenario.Scenario, shaped: pt.scenario.Scenario) -> tuple[np.ndarray, np.ndarray]:
    """(int64[V], int64[V]): regions of each VMA that become huge, and pages of 4 KiB mapped in them."""
    before, after, vmas = scenario.snapshot.guest, shaped.snapshot.guest, scenario.snapshot.vmas
    gone = (before.level == 1) & ~np.isin(before.base, after.base[after.level == 1])
    of, count = pt.address_space.vma_of(before.base[gone], vmas), len(vmas) + 1
    regions = np.bincount(of, minlength=count)[: len(vmas)]
    pages = np.bincount(of, pt.address_space.leaf_entries(before)[gone], count)[: len(vmas)].astype(np.int64)
    return regions, pages


def accessed(pid: int, address: np.ndarray, seconds: int) -> np.ndarray:
    """float64[2, B]: accesses of each block (int64[B], ascending) per time, in every second sample each.

    From accessed bits: few enough distinct pages that each stands for a TLB miss or so. Errors as of
    `record -p`.
    """
    with pt.safe_files.temporary_directory() as place:
        whole: list[bool] = []
        outcome = sample_each({pid: place / "bits"}, seconds, SHORT, lambda: whole.append(True))[pid]
        if isinstance(outcome, Exception):
            raise outcome
        if not whole:  # a signal that ends sampling ends what it is for
            raise KeyboardInterrupt
        records = pt.formats.heat.read_records(place / "bits")
    return rates(records, address)


def rates(records: np.ndarray, address: np.ndarray) -> np.ndarray:
    """The numbers of `accessed`, of the records of a sampling.

    Bits are cleared in the order of addresses, which takes longer than a sample: the first blocks have had
    30 ms where the last have 4. So each reading counts by the process's own time since its table was cleared,
    and k of 512 pages stand for -512 ln(1 - k / 512) random accesses. A table without any accessed bit has no
    record: its time is that of its neighbours.
    """
    every, begin = np.arange(len(address)), np.intp(0)
    found, took = np.zeros((2, len(address))), np.zeros((2, len(address)))
    for end in np.flatnonzero(records["level"] == pt.formats.heat.ENDS):
        half, part = int(records["word"][end][pt.formats.heat.ROUND]) % 2, records[begin:end]
        begin, base = end + 1, part["base"].astype(np.int64)
        at = np.minimum(np.searchsorted(address, base), len(address) - 1)
        mine = (part["level"] == 1) & (part["window"] > 0) & (address[at] == base)
        if mine.any():
            pages = np.unpackbits(part["word"][mine].view(np.uint8), axis=1).sum(1, dtype=np.int64)
            random = -512 * np.log1p(-np.minimum(pages, 511.5) / 512)
            found[half] += np.bincount(at[mine], random, len(address))
            used = pt.formats.heat.CPU_NS * part["cpu"][mine].astype(float)
            took[half] += np.interp(every, at[mine], used if used.all() else part["window"][mine])
    return found / np.maximum(took, 1)


def half_of(halves: np.ndarray) -> int:
    """How many blocks take half of the accesses.

    halves  as of `accessed`: those that one finds hottest count by the other, as chance alone makes some
            blocks of a uniform use hot
    """
    counts = []
    for first, other in (halves, halves[::-1]):
        sums = np.cumsum(other[np.argsort(-first, kind="stable")])
        counts.append(1 + int(np.searchsorted(sums, sums[-1] / 2)))
    return round(sum(counts) / 2)
