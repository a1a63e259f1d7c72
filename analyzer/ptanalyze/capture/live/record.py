"""Record a command: its trace, and its page tables at the end of the region of interest, in one capture."""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ...core.errors import CaptureError, PartialDataError, UsageError
from ...core.trace import REGION_SHIFT, Event, Trace
from ...formats.atomic import atomic_write
from ...formats.capture_dir import TRACE, new_capture, seal
from ...formats.maps import parse_maps
from ...formats.trace_file import read_trace
from .native import native
from .tracers import TRACERS, Options, find_program

RECORD = "record.json"
PR_SET_PDEATHSIG = 1
NOTED = 1000  # characters of the command line that the trace itself keeps
GRACE = 5.0  # seconds a program has to end after SIGINT, before SIGKILL

Process: TypeAlias = "subprocess.Popen[bytes]"
UNREACHED = (
    "no page tables: the tracer could not ask for them, as in a program that changed its user or root; "
    "record without that, or without page tables: --no-dump"
)


@dataclass
class Recording:
    """Outcome of record(). `exit_status` as of Popen: negative is the signal that killed the program."""

    directory: Path
    exit_status: int
    snapshot: bool = False
    held: str = ""  # when the page tables were read: "roi_end", "exit" or "interrupt"
    interrupted: bool = False
    problems: list[str] = field(default_factory=list)


def record(
    command: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    tracer: str = "qemu",
    options: Options | None = None,
    dump: bool = True,
    control_timeout: int = 600,
) -> Recording:
    """Run `command` under `tracer` ("qemu", "pin") and make the capture directory `out`: a Recording.

    dump  False: only the trace, no page tables and no root
    UsageError: nothing was recorded, `out` does not exist. PartialDataError: `out` is there and sealed, but
    without page tables, or the trace ended early; the message says which.
    """
    words = [str(word) for word in command]
    program = find_program(words)
    dumper = native("ptdump") if dump else None
    pairs = list((options or Options()).items())
    with new_capture(out) as directory:
        recording = Recording(Path(out), 0)
        with listening() as listener:
            place: list[tuple[str, object]] = [
                ("out", (directory / TRACE).resolve()),
                ("command", shlex.join(map(readable, words))[:NOTED]),
            ]
            if dump:
                place += [("control", listener.getsockname()), ("control_timeout", control_timeout)]
            started = time.time()
            process = start(TRACERS[tracer](program, words, place + pairs))
            try:
                attend(process, listener, dumper, directory, recording)
            finally:
                end(process)
        recording.exit_status = process.returncode
        wait_for_writers(directory)
        finish(directory, recording, [readable(word) for word in words], tracer, started)
    if dump and not recording.snapshot and not any("page tables" in why for why in recording.problems):
        recording.problems.append(UNREACHED)
    if recording.problems:
        raise PartialDataError(f"{out}: {'; '.join(recording.problems)}")
    return recording


def readable(word: str) -> str:
    """An argument as text; bytes that are no UTF-8 as \\xff."""
    return os.fsencode(word).decode("utf-8", "backslashreplace")


@contextlib.contextmanager
def listening() -> Iterator[socket.socket]:
    """A listening Unix socket in a directory of our own; its path is short enough whatever `out` is."""
    with tempfile.TemporaryDirectory(prefix="ptanalyze-") as place, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{place}/control")
        listener.listen()
        yield listener


def start(argv: list[str]) -> Process:
    """Start it in a process group of its own: Ctrl-C is ours, so that the page tables can be read first.

    It is killed when we are (prctl(2), PR_SET_PDEATHSIG): nobody else would end it.
    """
    stdin = subprocess.DEVNULL if os.isatty(0) else None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return subprocess.Popen(
        argv, stdin=stdin, process_group=0, preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    )


def end(process: Process) -> None:
    """Leave no target behind: it is alive only after a failure."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def attend(
    process: Process, listener: socket.socket, dumper: Path | None, directory: Path, recording: Recording
) -> None:
    """Wait for the process to end; read its page tables when the tracer asks for it, or on Ctrl-C."""
    try:
        wait_or_serve(process, listener, dumper, directory, recording)
    except KeyboardInterrupt:
        recording.interrupted = True
        if dumper and not recording.snapshot and process.poll() is None:
            read_tables(dumper, process.pid, directory, recording, "interrupt")
        interrupt(process)


def interrupt(process: Process) -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(GRACE)
            return


def wait_or_serve(
    process: Process, listener: socket.socket, dumper: Path | None, directory: Path, recording: Recording
) -> None:
    ended = os.pidfd_open(process.pid)
    watched: list[int | socket.socket] = [ended, listener]
    try:
        while process.poll() is None:
            ready, _, _ = select.select(watched, [], [])
            if listener in ready:
                serve(process, listener, dumper, directory, recording)
            elif ended in ready:
                process.wait()
    finally:
        os.close(ended)


def serve(
    process: Process, listener: socket.socket, dumper: Path | None, directory: Path, recording: Recording
) -> None:
    """A tracer stands still at its hand-over until the connection gets an answer, or is closed."""
    connection, _ = listener.accept()
    with connection:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", credentials)
        connection.settimeout(GRACE)
        with contextlib.suppress(OSError):
            why = connection.recv(64).decode("ascii", "replace").split(" ")[0]
            if dumper and pid == process.pid and uid == os.geteuid():
                read_tables(dumper, pid, directory, recording, why)
            connection.sendall(b"go on\n")


def read_tables(dumper: Path, pid: int, directory: Path, recording: Recording, why: str) -> None:
    """Run ptdump into `directory`. The process is stopped meanwhile, every thread of it."""
    place = directory / ".snapshot"
    argv = [str(dumper), "process", str(pid), "--stop", "--quiet", "-o", str(place)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, process_group=0)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        recording.problems.append(f"no page tables: {said[-1]}")
        shutil.rmtree(place, ignore_errors=True)
        return
    for file in place.iterdir():
        file.rename(directory / file.name)
    place.rmdir()
    recording.snapshot, recording.held = True, why


def wait_for_writers(directory: Path) -> None:
    """A tracer, or the watcher that finishes its file after a crash, holds a lock as long as it writes."""
    if not (directory / TRACE).exists():
        raise UsageError("the program could not be started under the tracer; its message is above")
    for path in directory.glob("*.ptt"):
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)


def finish(directory: Path, recording: Recording, command: list[str], tracer: str, started: float) -> None:
    """Check that the trace can be read, mark the tracer's memory, write record.json and seal the capture."""
    try:
        trace = read_trace(directory / TRACE)
    except CaptureError as error:
        raise UsageError(f"{command[0]}: {ending(recording)}, and nothing was recorded: {error}") from None
    ended = trace.facts["ended"]
    if recording.exit_status < 0 and not recording.interrupted:
        recording.problems.append(ending(recording))
    if ended not in ("exit", "signal") or trace.facts["dropped_touches"]:
        recording.problems.append(f"the trace is shorter than the run: {ended}")
    if recording.snapshot:
        mark_emulator(directory, trace)
    elif trace.facts["guest_base"]:
        recording.problems.append("the program's addresses were moved by the tracer")
    facts = {
        "command": command,
        "tracer": tracer,
        "exit_status": recording.exit_status,
        "interrupted": recording.interrupted,
        "page_tables": recording.held or "not read",
        "started": started,
        "seconds": round(time.time() - started, 3),
        "trace": trace.facts,
    }
    with atomic_write(directory / RECORD, "w") as file:
        json.dump(facts, file, indent=1)
    seal(directory, "process" if recording.snapshot else "trace", facts)


def ending(recording: Recording) -> str:
    status = recording.exit_status
    if status >= 0:
        return f"it ended with exit status {status}"
    return f"it was killed by {signal.Signals(-status).name}"


def mark_emulator(directory: Path, trace: Trace) -> None:
    """Add to snapshot.json the VMAs that are the tracer's: not touched, and not mapped by the program."""
    path = directory / "snapshot.json"
    record = json.loads(path.read_bytes())
    vmas, _ = parse_maps((directory / "maps").read_bytes(), directory / "maps")
    record["facts"]["emulator"] = emulator_ranges(trace, vmas)
    with atomic_write(path, "w") as file:
        json.dump(record, file, indent=1)


def emulator_ranges(trace: Trace, vmas: np.ndarray) -> list[list[int]]:
    """[[start, end]], merged, of the VMAs that overlap no touched region and nothing the program mapped."""
    size = np.uint64(1 << REGION_SHIFT)
    starts = [trace.regions << np.uint64(REGION_SHIFT)]
    lengths = [np.full(len(trace.regions), size)]
    for kind, length in ((Event.MMAP, "b"), (Event.MREMAP, "c")):
        mapped = trace.events[(trace.events["kind"] == kind) & (trace.events["result"] > 0)]
        starts.append(mapped["result"].astype(np.uint64))
        lengths.append(mapped[length])
    brk = trace.events[(trace.events["kind"] == Event.BRK) & (trace.events["result"] > 0)]["result"]
    if len(brk):
        starts.append(np.array([brk.min()], np.uint64))
        lengths.append(np.array([brk.max() - brk.min()], np.uint64))
    start = np.concatenate(starts)
    order = np.argsort(start)
    start = start[order]
    end = np.maximum.accumulate((np.concatenate(starts) + np.concatenate(lengths))[order])
    before = np.searchsorted(start, vmas["end"], side="left") - 1  # the last that starts below the VMA's end
    ours = (before >= 0) & (end[np.maximum(before, 0)] > vmas["start"])
    ranges: list[list[int]] = []
    for vma in vmas[~ours]:
        if ranges and ranges[-1][1] == vma["start"]:
            ranges[-1][1] = int(vma["end"])
        else:
            ranges.append([int(vma["start"]), int(vma["end"])])
    return ranges
