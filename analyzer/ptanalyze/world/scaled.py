"""Replays of a capture that stands for a larger program: what belongs to memory shrinks with it."""

from msgspec.structs import replace

from ..core.machine import LINE_BYTES, Cache, Machine
from .moves import Moves


def scaled_machine(machine: Machine, scale: int) -> Machine:
    """The Machine with data caches of 1/scale, at least one set: they hold the same share of the tables."""
    return replace(machine, l2=_less(machine.l2, scale), llc=_less(machine.llc, scale))


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
        f"stands for a program of {scale} times its memory: data caches and the pace of NUMA balancing are "
        f"1/{scale} of the machine's; TLBs and paging-structure caches are not",
    )
