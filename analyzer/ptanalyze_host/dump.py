"""Snapshot a live process with `ptdump`: by eBPF where that works, else from /proc/PID/pagemap; say which."""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ptanalyze as pt

RETRIES = 3  # of a descendant that calls exec
PROVENANCE = ("pid", "comm", "time")
RESTLESS = "page tables of one moment, as the process changed whenever they were read (--stop holds it still)"


@dataclass(frozen=True)
class Dumped:
    """Lines for people about one dump or several, and the first error of --verify."""

    lines: list[str]
    failed: pt.errors.CaptureError | None = None


def dump_or_failure(pid: int, directory: Path, **options: Any) -> Dumped:
    """dump_process into the existing `directory`; a failed verification is part of the result."""
    try:
        return Dumped(dump_process(pid, directory, **options))
    except pt.errors.CaptureError as error:
        return Dumped([], error)


def seal_dump(directory: Path, provenance: dict[str, Any] | None = None) -> list[str]:
    """Seal what dump_process wrote, `provenance` added; returns what its snapshot does not know.

    Of a process that changed all the time, that is how its tables were at any one moment.
    """
    facts = pt.formats.read_snapshot(directory).facts
    known = {key: facts[key] for key in PROVENANCE if key in facts}
    if "pid" in known and (words := pt.live.command_line(known["pid"], known.get("comm", ""))):
        known["command"] = words
    pt.formats.seal(directory, "process", known | (provenance or {}))
    quiet = (facts.get("quiescence") or {}).get("quiet", True)
    return [*facts.get("unknown", ()), *([] if quiet else [RESTLESS])]


def dump_capture(pid: int, directory: Path, **options: Any) -> tuple[Dumped, list[str]]:
    """(Dumped, what the snapshot does not know) of process `pid` in the existing `directory`, sealed."""
    return dump_or_failure(pid, directory, **options), seal_dump(directory)


def dump_process(
    pid: int,
    directory: str | os.PathLike[str],
    *,
    stop: bool = False,
    verify: bool = False,
    bpf: bool | None = None,
    max_stop: int | None = None,
) -> list[str]:
    """Write the page tables of process `pid` into `directory`, empty or made here; returns lines for people.

    stop     hold the process still while it is read
    verify   compare every leaf with /proc/PID/pagemap (eBPF only)
    bpf      True: eBPF or nothing; False: pagemap only; None: eBPF, else pagemap
    max_stop milliseconds after which a stopped process is continued whatever was read; None: no limit

    The caller seals the capture. UsageError, PartialDataError if the process ended (nothing is kept then),
    CaptureError if the verification failed (the files are kept).
    """
    if max_stop is not None and not (stop and bpf is not False):
        raise pt.UsageError("--max-stop: goes with --stop, not --no-bpf, which cannot say what it missed")
    command = [str(pt.live.native("ptdump")), "process", str(pid), "-o", str(directory)]
    command += stopping(stop, max_stop)
    if bpf is False:
        return run_ptdump([*command, "--pagemap"])
    try:
        return run_ptdump([*command, *["--verify"] * verify])
    except pt.UsageError as error:
        if bpf or max_stop is not None:
            raise
        return [f"without eBPF: {error}", *run_ptdump([*command, "--pagemap"])]


def stopping(stop: bool, max_stop: int | None) -> list[str]:
    """Options of ptdump: whether to stop the process, and for at most how many milliseconds."""
    return ["--stop"] * stop + ([] if max_stop is None else ["--max-stop", str(max_stop)])


def run_ptdump(command: Sequence[str]) -> list[str]:
    """Lines for people; CaptureError of a failed verification, PartialDataError of a process that ended."""
    how: dict[str, Any] = {"capture_output": True, "text": True, "preexec_fn": pt.live.die_with_us()}
    done = subprocess.run(command, **how, errors="replace", check=False)
    if done.returncode == 0:
        return [*done.stdout.splitlines(), *done.stderr.splitlines()]
    why = done.stderr.strip().removeprefix("ptdump: ") or f"ptdump ended with {done.returncode}"
    if done.returncode == 1:
        raise pt.errors.CaptureError("gpt.entries", "verify", "failed", why)
    partial = done.returncode == 3 or not 0 < done.returncode < 128  # by a signal: not another way instead
    raise (pt.errors.PartialDataError if partial else pt.UsageError)(why)


# A process and all its descendants in one capture: theirs are captures inside its own.

PROC = Path("/proc")
PF_EXITING = 0x4  # include/linux/sched.h
KILLED = 1 << signal.SIGKILL - 1  # pending: a thread that waits for a CPU, which it will not run on


def descendants(pid: int) -> list[int]:
    """PIDs of the living descendants of a process, parents before their children; without ourselves."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdecimal, os.listdir(PROC)):
        with suppress(OSError):  # it has ended
            state, parent = pt.live.stat_fields(pt.live.shown(int(name)))[:2]
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
    call exec each time they are, or begin meanwhile, are left out, and lines say so. Errors for `pid` as of
    dump_process.
    """
    found = descendants(pid)
    first = dump_or_failure(pid, directory, **options)
    each = {one: dump_descendant(one, directory, **options) for one in found}
    new = [one for one in descendants(pid) if one not in found]
    there = {one: of for one, of in each.items() if isinstance(of, Dumped)}
    unknown = [what for one in there for what in seal_dump(directory / f"pid-{one}")]
    unknown += seal_dump(directory, {"processes": [*there]})
    lines = [line for of in (first, *there.values()) for line in of.lines]
    lines += [f"PID {one}: {why}; left out" for one, why in each.items() if isinstance(why, str)]
    lines += [f"PID {one}: began while others were read; left out" for one in new]
    failed = next((of.failed for of in (first, *there.values()) if of.failed), None)
    return Dumped(lines, failed), list(dict.fromkeys(unknown))


def dump_descendant(pid: int, directory: Path, **options: Any) -> Dumped | str:
    """Dump one descendant into directory/pid-PID; why there is none if it ended, or called exec each time."""
    place = directory / f"pid-{pid}"
    for _ in range(RETRIES):
        place.mkdir(mode=0o700)
        try:
            return dump_or_failure(pid, place, **options)
        except (pt.errors.PartialDataError, pt.UsageError) as error:
            shutil.rmtree(place)
            if not alive(pid):
                return "ended before it was read"
            if isinstance(error, pt.UsageError):
                raise
    return "called exec whenever it was read"


def alive(pid: int) -> bool:
    """Whether the process has memory still: one that is ending gives that up before it is a zombie."""
    with suppress(OSError):
        state, *fields = pt.live.stat_fields(pt.live.shown(pid))
        return state not in "ZX" and not int(fields[5]) & PF_EXITING and not int(fields[27]) & KILLED
    return False
