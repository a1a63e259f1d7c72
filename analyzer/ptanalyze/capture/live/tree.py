"""A process and all its descendants in one capture: theirs are captures inside its own."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from ...core.errors import PartialDataError, UsageError
from .dump import Dumped, dump_unsealed, seal_dump
from .pause import paused
from .process import opened

PROC = Path("/proc")


def descendants(pid: int) -> list[int]:
    """PIDs of the living descendants of a process, parents before their children; without ourselves."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdecimal, os.listdir(PROC)):
        with suppress(OSError):  # it has ended
            state, parent = stat_of(int(name))[:2]
            if state not in "ZX" and int(name) != os.getpid():
                children.setdefault(int(parent), []).append(int(name))
    found = [pid]
    for one in found:
        found += sorted(children.get(one, ()))
    return found[1:]


@contextmanager
def held(pid: int) -> Iterator[list[int]]:
    """Stop a process and its descendants for the block; yields all their PIDs.

    They are looked for until there is no new one: a process may fork before its own stop arrives.
    """
    with ExitStack() as stack:
        stopped: list[int] = []
        while new := [one for one in (pid, *descendants(pid)) if one not in stopped]:
            for one in new:
                stopped.append(one)
                try:
                    stack.enter_context(paused(stack.enter_context(opened(one))))
                except (UsageError, PartialDataError):
                    if one == pid:
                        raise
        yield stopped


def dump_tree(
    pid: int, directory: Path, *, stop: bool = False, max_stop: int | None = None, **options: Any
) -> tuple[Dumped, list[str]]:
    """Dump process `pid` into the existing `directory`, its descendants into pid-PID/ there; all sealed.

    stop  hold all of them still until the last is read; options of dump_process otherwise
    Returns what was dumped, and what any snapshot does not know. A descendant that ends before it is read is
    left out, and a line says so. UsageError, PartialDataError for `pid` itself, as of dump_process.
    """
    if max_stop is not None:
        raise UsageError("--max-stop: bounds the stop of one process, not of a tree: leave out --tree")
    began = time.monotonic()
    with held(pid) if stop else nullcontext([pid, *descendants(pid)]) as found:
        each = {one: dump_descendant(one, directory, stop=stop, **options) for one in found[1:]}
        first = dump_unsealed(pid, directory, stop=stop, **options)
    seconds = time.monotonic() - began
    there = {one: of for one, of in each.items() if of is not None}
    unknown = [what for one in there for what in seal_dump(directory / f"pid-{one}")]
    unknown += seal_dump(directory, {"processes": [*there]})
    lines = [line for of in (first, *there.values()) for line in of.lines]
    lines += [f"PID {one}: ended before it was read; left out" for one in each if one not in there]
    if stop:
        lines.append(f"{len(there) + 1} processes were held for {1e3 * seconds:.0f} ms")
    failed = next((of.failed for of in (first, *there.values()) if of.failed), None)
    return Dumped(lines, failed), list(dict.fromkeys(unknown))


def dump_descendant(pid: int, directory: Path, **options: Any) -> Dumped | None:
    """Dump one descendant into directory/pid-PID; None if it has ended."""
    place = directory / f"pid-{pid}"
    place.mkdir(mode=0o700)
    try:
        return dump_unsealed(pid, place, **options)
    except (PartialDataError, UsageError):
        shutil.rmtree(place)
        if alive(pid):
            raise
        return None


def alive(pid: int) -> bool:
    with suppress(OSError):
        return stat_of(pid)[0] not in "ZX"
    return False


def stat_of(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name: state, parent, ... (proc(5)); OSError if it has ended."""
    return (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(") ")[2].split()
