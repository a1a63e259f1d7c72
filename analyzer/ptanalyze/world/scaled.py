"""Replays of a capture that stands for a larger program: what belongs to memory shrinks with it.

A use of a page or line after uses of D others hits an LRU array of C entries if D < C. Where the data grow N
times under the same law of accesses, D does: N D < C, or D < C / N. So every array that reaches across the
data is divided by N. The first-level TLB of 4 KiB pages is not: what it holds is used again within a few
accesses, whatever the size of the data.
"""

from typing import TypeVar

from msgspec.structs import asdict, replace

from ..core.machine import LINE_BYTES, Array, Cache, Machine, Tlb, WalkCaches
from .moves import Moves

Arrays = TypeVar("Arrays", Tlb, WalkCaches)


def scaled_machine(machine: Machine, scale: int) -> Machine:
    """The Machine with 1/scale of its data caches (at least one set), paging-structure caches and TLBs (at
    least an entry), but the first level of 4 KiB pages: they hold the same share of the program."""
    return replace(
        machine,
        l2=_less(machine.l2, scale),
        llc=_less(machine.llc, scale),
        tlb=_with_fewer(machine.tlb, scale, but=("l1_4k",)),
        walk_caches=_with_fewer(machine.walk_caches, scale),
    )


def _with_fewer(arrays: Arrays, scale: int, but: tuple[str, ...] = ()) -> Arrays:
    """The same with 1/scale of the entries of each Array, `but` for those left as they are."""
    return replace(
        arrays,
        **{
            name: _fewer(array, scale)
            for name, array in asdict(arrays).items()
            if isinstance(array, Array) and name not in but
        },
    )


def _fewer(array: Array, scale: int) -> Array:
    entries = max(array.entries // scale, 1)
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
        f"stands for a program of {scale} times its memory: data caches, TLBs (but the first level of 4 KiB "
        f"pages), paging-structure caches and the pace of NUMA balancing are 1/{scale} of the machine's",
    )
