"""Record a command: its trace, and its page tables at the end of the region of interest, in one capture."""

import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...core.errors import CaptureError, PartialDataError, PtanalyzeError, UsageError, plural
from ...core.safe_files import temporary_directory
from ...core.trace import MOST_THREADS, REGION_SHIFT, Event, Trace
from ...cost.law import UnfitError
from ...formats.atomic import atomic_write, caller
from ...formats.record import PAGES, TRACE, new_capture, seal
from ...formats.snapshot import SNAPSHOT_FILE, parse_maps, read_snapshot
from ...formats.trace import read_trace
from ...world.mm_events import merged
from ..check import Covered, program_maps
from . import supervise
from .locate import native
from .process import NOTED, ends_once, huge_pages
from .tracers import TRACERS, Options, find_program, tools

# What must be there before a program is run and traced for hours: privileges, tools, disk space.

PATIENCE = 600  # seconds that a tracer waits while its page tables are read
LEAST_FREE = 64 << 20  # bytes below which nothing is begun
GROWTH = 2e8  # bytes of trace per native second and thread: random reads of 256 MiB took 1.2e8


def rehearse(dumper: Path, way_out: str = "run as root") -> None:
    """Dump our own page tables and throw them away: UsageError if that fails, as it would after the run."""
    with temporary_directory() as place:
        how = ["--quiet", "--retries", "0", "-o", f"{place}/tables"]
        argv = [str(dumper), "process", str(os.getpid()), *how]
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode in (0, 3):
        return
    lines = done.stderr.strip().splitlines() or [f"ptdump ended with {done.returncode}"]
    why = lines[-1].removeprefix("ptdump: ").removesuffix("; run as root")
    raise UsageError(f"page tables cannot be read: {why}; {way_out}")


# Which memory of a recorded process is the tracer's, and not the program's.


def facts_of_trace(directory: Path, trace: Trace, seconds: float | None = None) -> None:
    """Add the tracer's own VMAs, the region's native `seconds`, and "another_user" where it did not run as
    who recorded it, to snapshot.json of `directory`."""
    path = directory / SNAPSHOT_FILE
    record = json.loads(path.read_bytes())
    vmas, _ = parse_maps((directory / "maps").read_bytes(), directory / "maps")
    record["facts"]["emulator"] = emulator_ranges(trace, vmas)
    if seconds and trace.chunks["instructions"].any():
        record["facts"]["native"] = supervise.native_time(seconds, trace)
    if record["facts"].get("uid") != (caller() or (os.geteuid(),))[0]:
        record["facts"]["another_user"] = True
    with atomic_write(path, "w") as file:
        json.dump(record, file, indent=1)


def emulator_ranges(trace: Trace, vmas: np.ndarray) -> list[list[int]]:
    """[[start, end]], merged, of the VMAs (VMA_DTYPE) in which the program mapped nothing, and which the
    tracer had when it began, or whose 2 MiB regions the program never touched.

    A VMA right behind one of the program falls under the latter alone: zeroed data may be in no event.
    """
    mapped = overlaps(vmas, *program_maps(trace))
    behind = np.isin(vmas["start"], vmas["end"][mapped])
    noted = trace.events[trace.events["kind"] == Event.TRACER_MAP]
    installed = overlaps(vmas, *merged(noted["a"], noted["a"] + noted["b"])) & ~behind
    touched = np.sort(trace.regions) << np.uint64(REGION_SHIFT)
    theirs = vmas[~mapped & (installed | ~overlaps(vmas, touched, touched + np.uint64(1 << REGION_SHIFT)))]
    return np.stack(merged(theirs["start"], theirs["end"]), axis=1).tolist()


def overlaps(vmas: np.ndarray, starts: NDArray[np.uint64], ends: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """bool per VMA: it shares a byte with one of the ranges, which are in order and apart."""
    over = np.searchsorted(ends, vmas["start"], side="right")  # ranges that end before it
    return np.asarray(over < np.searchsorted(starts, vmas["end"]))


MUCH = 0.05  # of the regions touched: less that is freed is not worth a word
SHORTER = {
    "exec": "the program replaced itself and its page tables by another (exec), which was not traced: name "
    "that one in the command, and put wrappers such as env, taskset or numactl before ptanalyze"
}
LIKELY: dict[tuple[str, int], str] = {
    ("qemu", signal.SIGILL): (
        "QEMU lacks some instructions, AVX-512 among them: build the program for x86-64-v3, or forbid it "
        "those (as OPENBLAS_CORETYPE=Haswell, ONEDNN_MAX_CPU_ISA=AVX2 do)"
    ),
    ("qemu", signal.SIGSEGV): (
        "if it runs without record, QEMU is to blame: a newer one, with plugins, may do"
    ),
    ("qemu", signal.SIGKILL): (
        "as the kernel does when memory runs out (dmesg says so): QEMU 7.2 needs 6 GB for each TiB of "
        "addresses that the program reserves"
    ),
}
UNREACHED = (
    "no page tables: the tracer could not ask for them, as in a program that changed its user or root; "
    "record without that, or without page tables: --no-dump"
)
DIED = {
    "end": "no page tables: it died before they were read; --dump-at peak reads them while it runs",
    "peak": "no page tables: it died before it had memory worth a reading",
}


def record(
    command: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    tracer: str = "qemu",
    options: Options | None = None,
    dump: bool = True,
    user: str | None = None,
    dump_at: str | None = None,
    end_after: bool = False,
    seconds: float | None = None,
    watch: supervise.Watch | None = None,
    sealing: supervise.Watch | None = None,
    measure: Callable[[Path], None] | None = None,
) -> supervise.Recording:
    """Run `command` under `tracer` ("qemu", "pin") and make the capture directory `out`: a Recording.

    dump     False: only the trace, no page tables and no root
    user     name or number of the user whom the program runs as, None: ourselves; root only
    dump_at  "end": page tables of the end of the region; "peak": of the moment of most resident memory, to a
             fifth, as most programs free memory before they end; None: end of a marked region, else peak
    end_after  end the program when its region is over, as Ctrl-C does; else it runs on under the tracer
    seconds  what the region takes outside the tracer, elapsed; None: not known
    watch    called twice a second with how far the trace has come; sealing: once, when the program has ended
    measure  called before the program is traced, with the file for a trial of page sizes, without which the
             recording goes on where it raises a PtanalyzeError
    Under sudo the capture belongs to the user who typed it.
    UsageError: nothing was recorded, `out` does not exist. PartialDataError: `out` is there and sealed, but
    without page tables or trial, or the trace ended early; the message says which.
    """
    words = [str(word) for word in command]
    program, runs_as = find_program(words), supervise.account(user) if user else None
    how = options or Options()
    dump_at = dump_at or ("end" if how.marked else "peak")
    if end_after and not how.ends_once:
        raise UsageError(
            "--then end: the region lasts until the program ends, or may begin again; give --for, "
            "--roi-accesses or --roi-end-symbol"
        )
    pairs = list(how.items())
    dumper = native("ptdump") if dump else None
    if dumper:
        rehearse(dumper, "nothing was run; run as root, or trace alone: --no-dump")
    supervise.must_read(runs_as, [program, *tools(tracer)])
    with ends_once() as keep, new_capture(out) as directory:
        if (free := shutil.disk_usage(directory).free) < LEAST_FREE:
            raise UsageError(
                f"{directory}: only {free >> 20} MB are free, too few for a trace; free space, or name "
                "another directory with -o"
            )
        recording = supervise.Recording(Path(out), 0, user=runs_as.pw_uid if runs_as else os.geteuid())
        if measure:
            try:
                measure(directory / PAGES)
            except PtanalyzeError as error:
                said = f"no trial: {error}"
                if isinstance(error, UnfitError):
                    said = f"a trial that cannot be used: {error.why}"
                recording.problems.append(f"recorded, with {said}")
            with suppress(OSError):  # a file that it reads its input from; a terminal, or a pipe
                os.lseek(0, 0, os.SEEK_SET)
        trace = supervise.room(directory, runs_as) / TRACE
        with supervise.listening(runs_as) as listener:
            command = shlex.join(map(supervise.readable, words)).encode()[:NOTED].decode(errors="ignore")
            place: list[tuple[str, object]] = [("out", trace.resolve()), ("command", command)]
            if dump or end_after:
                place += [("control", listener.getsockname()), ("control_timeout", PATIENCE)]
            started = time.time()
            process = supervise.start(TRACERS[tracer](program, words, place + pairs), runs_as)
            peak = supervise.RssPeak(process.pid) if dump and dump_at == "peak" else None
            children = supervise.Children(trace.parent) if how.follow_fork else None
            seen = recording, trace.parent, peak, watch, children, end_after
            run = supervise.Tracee(process, listener, dumper, directory, *seen)
            try:
                supervise.supervise(run, keep)
            finally:
                supervise.end(process)
        recording.exit_status = process.returncode
        if sealing:
            sealing(run.trace_size())
        if not (trace.parent / TRACE).exists():
            raise UsageError("the program could not be started under the tracer; its message is above")
        for path in trace.parent.glob("*.ptt"):  # locked by who writes: the tracer, after a crash its watcher
            with open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
        supervise.leave_room(directory, runs_as)
        supervise.keep_tables(directory, recording)
        shown = [supervise.readable(word) for word in words]
        followed = seal_children(directory, shown, recording.interrupted or recording.ended)
        finish(directory, recording, shown, tracer, started, followed, seconds)
    if dump and not recording.snapshot and not any("page tables" in why for why in recording.problems):
        recording.problems.append(DIED[dump_at] if recording.exit_status < 0 else UNREACHED)
    if recording.problems:
        raise PartialDataError(f"{out}: {'; '.join(recording.problems)}")
    return recording


def finish(
    directory: Path,
    recording: supervise.Recording,
    command: list[str],
    tracer: str,
    started: float,
    followed: Sequence[int] = (),
    native_seconds: float | None = None,
) -> None:
    """Check that the trace can be read, mark the tracer's memory and seal the capture."""
    try:
        trace = read_trace(directory / TRACE)
    except CaptureError as error:
        how = f"{ending(recording)}{likely(recording, tracer)}"
        raise UsageError(f"{command[0]}: {how}; nothing was recorded: {error}") from None
    recording.accesses, ended = trace.accesses, trace.facts["ended"]
    if recording.exit_status < 0 and not (recording.interrupted or recording.ended):
        recording.problems.append(f"{ending(recording)}{likely(recording, tracer)}")
    if ended not in ("exit", "signal") or trace.facts["dropped_touches"]:
        recording.problems.append(SHORTER.get(ended, f"the trace is shorter than the run: {ended}"))
    if lost := trace.facts.get("lost_threads", 0):
        recording.problems.append(f"{plural(lost, 'thread was', 'threads were')} not traced: {MOST_THREADS}")
    if recording.snapshot:
        facts_of_trace(directory, trace, native_seconds)
        recording.freed = Covered(trace, read_snapshot(directory)).freed
    elif trace.facts["guest_base"]:
        recording.problems.append("the program's addresses were moved by the tracer")
    facts = {
        "command": command,
        "tracer": tracer,
        "exit_status": recording.exit_status,
        "interrupted": recording.interrupted,
        "ended_after_region": recording.ended,
        "page_tables": recording.held or "not read",
        "freed_share": round(recording.freed, 4),
        "started": started,
        "seconds": round(time.time() - started, 3),
        "huge_pages": huge_pages() or "unknown",
        "trace": trace.facts,
    }
    if untraced := {pid: name for pid, name in sorted(recording.children.items()) if pid not in followed}:
        facts["untraced_children"] = {"seen": len(untraced), "names": sorted({*untraced.values()} - {""})}
    if followed:
        facts |= {"pid": trace.facts["pid"], "processes": [*followed]}
    seal(directory, "process" if recording.snapshot else "trace", facts)


def seal_children(directory: Path, command: list[str], interrupted: bool) -> list[int]:
    """Make a capture pid-PID/ of each followed child, of its trace and of its page tables if they were read.

    A trace that cannot be read, of a child that was killed at its start, stays where it is.
    """
    sealed = []
    for pid, path in supervise.Children(directory).files().items():
        place = directory / f"pid-{pid}"
        try:
            trace = read_trace(path)
        except CaptureError:
            shutil.rmtree(place, ignore_errors=True)
            continue
        place.mkdir(mode=0o700, exist_ok=True)
        path.rename(place / TRACE)
        if snapshot := (place / SNAPSHOT_FILE).exists():
            facts_of_trace(place, trace)
        facts = {"pid": pid, "command": command, "interrupted": interrupted, "trace": trace.facts}
        seal(place, "process" if snapshot else "trace", facts)
        sealed.append(pid)
    return sealed


def ending(recording: supervise.Recording) -> str:
    status = recording.exit_status
    if status >= 0:
        return f"it ended with exit status {status}"
    names = {int(number): number.name for number in signal.Signals}
    return f"it was killed by {names.get(-status, f'signal {-status}')}"


def likely(recording: supervise.Recording, tracer: str) -> str:
    """In brackets, what a death by signal most likely comes from under that tracer; "" unknown."""
    why = LIKELY.get((tracer, -recording.exit_status))
    return f" ({why})" if why else ""
