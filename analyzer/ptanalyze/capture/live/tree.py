"""A process and all its descendants in one capture: theirs are captures inside its own."""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...core.errors import PartialDataError, UsageError
from .dump import Dumped, dump_unsealed, seal_dump

PROC = Path("/proc")
PF_EXITING = 0x4  # include/linux/sched.h


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


def dump_tree(pid: int, directory: Path, **options: Any) -> tuple[Dumped, list[str]]:
    """Dump process `pid` into the existing `directory`, its descendants into pid-PID/ there; all sealed.

    options  of dump_process; one after the other is read, and with `stop` stands still while it is
    Returns what was dumped, and what any snapshot does not know. Descendants that end before they are read,
    or begin meanwhile, are left out, and lines say so. Errors for `pid` as of dump_process.
    """
    found = descendants(pid)
    first = dump_unsealed(pid, directory, **options)
    each = {one: dump_descendant(one, directory, **options) for one in found}
    new = [one for one in descendants(pid) if one not in found]
    there = {one: of for one, of in each.items() if of is not None}
    unknown = [what for one in there for what in seal_dump(directory / f"pid-{one}")]
    unknown += seal_dump(directory, {"processes": [*there]})
    lines = [line for of in (first, *there.values()) for line in of.lines]
    lines += [f"PID {one}: ended before it was read; left out" for one in found if one not in there]
    lines += [f"PID {one}: began while others were read; left out" for one in new]
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
    """Whether the process has memory still: one that is ending gives that up before it is a zombie."""
    with suppress(OSError):
        state, *_, flags = stat_of(pid)[:7]
        return state not in "ZX" and not int(flags) & PF_EXITING
    return False


def stat_of(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name: state, parent, ... (proc(5)); OSError if it has ended."""
    return (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(") ")[2].split()
