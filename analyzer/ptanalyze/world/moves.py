"""Settings for moves of data pages between nodes while the trace runs; see data_moves."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, replace

from ..core.errors import UsageError
from ..core.machine import LINE_BYTES, Array, Cache, Machine, Strict, Tlb


class Moves(Strict):
    """Moves of data pages, by default only by the trace's events; the rest are Linux's defaults."""

    autonuma: bool = False
    by: Annotated[
        Literal["auto", "guest", "host"],
        Meta(description="whose kernel moves data: auto is the hypervisor's for NUMA-oblivious guests"),
    ] = "auto"
    delay_ms: Annotated[float, Meta(ge=0, le=1e9, description="before the first scan")] = 1000.0
    scan_period_ms: Annotated[float, Meta(gt=0, le=1e9, description="from one scan to the next")] = 1000.0
    scan_size_mb: Annotated[float, Meta(gt=0, le=1e9, description="marked per scan")] = 256.0
    rate_limit_mb_s: Annotated[
        float, Meta(ge=0, le=1e9, description="data moved per second, 0: no limit")
    ] = 0.0


OF_AUTONUMA = ("by", "delay_ms", "scan_period_ms", "scan_size_mb", "rate_limit_mb_s")
NOTHING_MOVES = Moves()  # except by the trace's events


def moves_from(settings: Mapping[str, Any]) -> Moves:
    """Moves with autonuma from {key: text}; UsageError names an unknown key and the known keys."""
    for key in settings:
        if key not in OF_AUTONUMA:
            raise UsageError(
                f"autonuma: {key} = {settings[key]}: no such setting; it has: {', '.join(OF_AUTONUMA)}"
            )
    try:
        return msgspec.convert({"autonuma": True, **settings}, Moves, strict=False)
    except msgspec.ValidationError as error:
        key = str(error).rpartition("`$.")[2].partition("`")[0]
        why = str(error).partition(" - at ")[0]
        raise UsageError(f"autonuma: {key} = {settings.get(key)}: {why}") from None


# Replays of a capture that stands for a larger program: what belongs to memory shrinks with it.
#
# A use of a page or line after uses of D others hits an LRU array of C entries if D < C. Where the data grow
# N times under the same law of accesses, D does: N D < C, or D < C / N. So every array that reaches across
# the data is divided by N. The first-level TLB of 4 KiB pages is not: what it holds is used again within a
# few accesses, whatever the size of the data.


def scaled_machine(machine: Machine, scale: int) -> Machine:
    """The Machine with 1/scale of its data caches (at least one set), paging-structure caches and last TLB
    level of each page size (at least an entry): they hold the same share of the program."""
    return replace(
        machine,
        l2=_less(machine.l2, scale),
        llc=_less(machine.llc, scale),
        tlb=_scaled_tlb(machine.tlb, scale),
        walk_caches=replace(
            machine.walk_caches,
            **{
                name: _fewer(array, array.entries // scale)
                for name, array in asdict(machine.walk_caches).items()
                if isinstance(array, Array)
            },
        ),
    )


def _scaled_tlb(tlb: Tlb, scale: int) -> Tlb:
    """The Tlb with 1/scale of what a walk misses last: its second level, or the first where that is all."""
    second = _fewer(tlb.l2, tlb.l2.entries // scale)
    big = None if tlb.l2_1g is None else _fewer(tlb.l2_1g, tlb.l2_1g.entries // scale)
    behind = {size: second for size in tlb.l2_holds} | ({} if big is None else {"1g": big})
    first = {
        f"l1_{size}": _fewer(array, behind[size].entries if size in behind else array.entries // scale)
        for size, array in (("2m", tlb.l1_2m), ("1g", tlb.l1_1g))
    }
    return replace(tlb, l2=second, l2_1g=big, **first)


def _fewer(array: Array, most: int) -> Array:
    """The Array with at most so many entries, at least one."""
    entries = max(min(array.entries, most), 1)
    ways = min(array.ways, entries)
    return Array(entries=entries - entries % ways, ways=ways)


def _less(cache: Cache, scale: int) -> Cache:
    line = LINE_BYTES * cache.ways
    return replace(cache, bytes=max(cache.bytes // scale // line, 1) * line) if scale > 1 else cache


def scaled_moves(moves: Moves, scale: int) -> Moves:
    """Moves at 1/scale of the pace: a pass over all pages takes as long as over those of the program."""
    limit, size = moves.rate_limit_mb_s / scale, moves.scan_size_mb / scale
    return replace(moves, scan_size_mb=size, rate_limit_mb_s=limit)


def scale_notes(scale: int) -> tuple[str, ...]:
    """Notes for a reader, none for a capture of a program itself."""
    if scale == 1:
        return ()
    return (
        f"stands for a program of {scale} times its memory: data caches, last-level TLBs, paging-structure "
        f"caches and the pace of NUMA balancing are 1/{scale} of the machine's",
    )
