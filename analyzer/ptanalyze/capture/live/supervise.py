"""A program that runs under a tracer: started, watched, its page tables read when asked for, ended."""

import ctypes
import fcntl
import math
import os
import pwd
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ...core.errors import UsageError, is_whole
from ...core.safe_files import descriptor, temporary_directory
from ...core.trace import Trace
from ...formats.atomic import caller, take_over
from .process import comm, shown

# Whom a recorded program runs as (`--user`), and the room in which its tracer may write.

ROOM = ".traced"
CAN_READ = 'for f do test -r "$f" || { printf %s "$f"; exit 1; }; done'


def account(name: str) -> pwd.struct_passwd | None:
    """A user by name or number, None for ourselves; UsageError without such a user, or if we are not root."""
    try:
        user = pwd.getpwuid(int(name)) if is_whole(name) else pwd.getpwnam(name)
    except (KeyError, OverflowError):
        raise UsageError(f"--user {name}: no such user") from None
    if user.pw_uid == os.geteuid():
        return None
    if os.geteuid():
        raise UsageError(f"--user {name}: only root can run a program as somebody else; run as root")
    return user


def typed_by(name: str | None = None) -> str | None:
    """`name`, else the user behind sudo by number, whose programs are looked up in this program's virtual
    environment first: sudo has put a PATH of its own in place of the user's. None: ourselves."""
    if (behind := caller()) is None:
        return name
    path, own = os.environ.get("PATH", os.defpath), f"{sys.prefix}/bin"
    if sys.prefix != sys.base_prefix and not path.startswith(own):
        os.environ["PATH"] = os.pathsep.join([own, path])
    return name or str(behind[0])


def as_typed(name: str | None = None) -> dict[str, Any]:
    """Arguments of Popen that start a program as this user, None: as whoever typed this command."""
    user = typed_by(name)
    return as_user(account(user) if user else None)


def as_user(user: pwd.struct_passwd | None) -> dict[str, Any]:
    """Arguments of Popen that start a program as this user, with all groups and in its own HOME."""
    if user is None:
        return {}
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    mine = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": groups, "env": os.environ | mine}


def must_read(user: pwd.struct_passwd | None, paths: Iterable[Path | str]) -> None:
    """UsageError that names the first path which this user cannot reach or read."""
    if user is None:
        return
    names = [os.path.abspath(path) for path in paths]
    how = {**as_user(user), "env": None, "cwd": "/", "capture_output": True, "check": False}
    done = subprocess.run(["/bin/sh", "-c", CAN_READ, "sh", *names], **how)
    if done.returncode:
        name = os.fsdecode(done.stdout) or names[0]
        raise UsageError(
            f"--user {user.pw_name}: {name} is out of this user's reach; give it and its directories "
            "read permission, work in a directory where the user may, or run it as root: --user root"
        )


def room(directory: Path, user: pwd.struct_passwd | None) -> Path:
    """Where the tracer writes: `directory`, or a room in it that is `user`'s, who may write nowhere else."""
    if user is None:
        return directory
    inside = directory / ROOM
    inside.mkdir(mode=0o700)
    os.chown(inside, user.pw_uid, user.pw_gid)
    directory.chmod(0o711)
    must_read(user, [inside])
    return inside


def leave_room(directory: Path, user: pwd.struct_passwd | None) -> None:
    """Move the traces that `user`'s tracer wrote to `directory`, ours again."""
    if user is None:
        return
    inside = directory / ROOM
    directory.chmod(0o700)
    os.chown(inside, os.geteuid(), os.getegid())
    for path in inside.glob("*.ptt"):
        take_over(path, user.pw_uid)
        path.rename(directory / path.name)
    for path in inside.iterdir():
        path.unlink()
    inside.rmdir()


# Children of a recorded program that are traced too (--follow-fork): found by the files of their traces.

TRACE = re.compile(r"trace\.([1-9]\d{0,9})\.ptt", re.ASCII)


@dataclass(frozen=True)
class Children:
    """traces: the directory in which their tracers write trace.PID.ptt."""

    traces: Path

    def files(self) -> dict[int, Path]:
        """{PID: its trace}."""
        named = ((TRACE.fullmatch(path.name), path) for path in sorted(self.traces.iterdir()))
        return {int(name[1]): path for name, path in named if name}

    def writing(self) -> list[int]:
        """Those whose tracers have not finished their files: they hold a lock as long as they write."""
        return [pid for pid, path in self.files().items() if is_locked(path)]

    def running(self, user: int) -> Iterator[tuple[int, int]]:
        """Yield (PID, pidfd) of those that still write, if they are this user's: files can have any name."""
        for pid in self.writing():
            with suppress(OSError), descriptor(os.pidfd_open(pid)) as pidfd:
                if os.stat(f"/proc/{pid}").st_uid == user:
                    yield pid, pidfd

    def send(self, number: int, user: int) -> None:
        for _, pidfd in self.running(user):
            with suppress(OSError):
                signal.pidfd_send_signal(pidfd, number)


def is_locked(path: Path) -> bool:
    with suppress(OSError), descriptor(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@dataclass(frozen=True)
class TraceSize:
    """Seconds since the start, bytes of all traces, and bytes that are free beside them."""

    seconds: float
    bytes: int
    free: int


# When to read page tables again while a program runs, so that those of its largest moment are kept.
#
# Which moment is the largest is known afterwards only. So they are read whenever the resident memory has
# grown by a quarter since: those kept are of a moment with at least 0.8 of the peak, and a program that grows
# from 1 MiB to 1 TiB is stopped 62 times. What was resident at the first look is the tracer's, for the most
# part, and a small program is small beside it: growth is counted from there.

GROWN = 1.25
LEAST = 1 << 20  # bytes


class RssPeak:
    """kept: bytes resident when the page tables that are kept were read, 0: none; first: at the first."""

    def __init__(self, pid: int) -> None:
        self.pid, self.kept, self.first = pid, 0, 0

    def resident(self) -> int:
        """Bytes now, 0 when the program has ended."""
        try:
            return int((shown(self.pid) / "statm").read_text().split()[1]) * 4096
        except (OSError, IndexError):
            return 0

    def due(self) -> bool:
        now = self.resident()
        if not self.kept:
            self.first = now
            return now >= LEAST
        return now - self.first >= max(GROWN * (self.kept - self.first), LEAST)


# Children that must not outlive us, even if we are killed.

PR_SET_PDEATHSIG = 1


def die_with_us() -> Callable[[], None]:
    """For subprocess's preexec_fn: the kernel kills the child when we end, however that happens. prctl(2)."""
    prctl, parent = ctypes.CDLL(None, use_errno=True).prctl, os.getpid()

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # we ended before the call: the kernel sends nothing any more
            os._exit(1)

    return prepare


FIRST_TO_GO = "1000"  # of oom_score_adj, proc(5)
GRACE = 5.0  # seconds a program has to end after SIGINT, before SIGKILL
TICK = 0.5  # seconds between two looks at a program that runs
SOON = 0.02  # the least, at first, where its memory at the peak is wanted

Process: TypeAlias = "subprocess.Popen[bytes]"
Watch: TypeAlias = Callable[[TraceSize], None]


@dataclass
class Recording:
    """Outcome of record(). `exit_status` as of Popen: negative is the signal that killed the program.

    freed  share of the 2 MiB regions it touched that had no page tables left when these were read
    """

    directory: Path
    exit_status: int
    tables: tuple[Path, str] | None = None  # directory of those that are kept, when they were read
    interrupted: bool = False
    ended: bool = False  # by us, as its region was over
    freed: float = 0.0
    children: dict[int, str] = field(default_factory=dict)  # PIDs seen while it ran
    problems: list[str] = field(default_factory=list)
    user: int = 0  # whom the program ran as
    accesses: int = 0  # of the main trace

    @property
    def snapshot(self) -> bool:
        return self.tables is not None

    @property
    def held(self) -> str:
        """When the page tables were read: "roi_end", "exit", "interrupt", "peak"; "" where none were."""
        return self.tables[1] if self.tables else ""


@dataclass(frozen=True)
class Tracee:
    """A program under its tracer, and what belongs to it.

    traces  the directory in which its tracer writes
    peak  None, or page tables are read as it grows; children  None, or those traced into trace.PID.ptt
    end_after  the program is ended when its region is over
    """

    process: Process
    listener: socket.socket
    dumper: Path | None
    directory: Path
    recording: Recording
    traces: Path
    peak: RssPeak | None = None
    watch: Watch | None = None
    children: Children | None = None
    end_after: bool = False
    started: float = field(default_factory=time.monotonic)
    readings: Iterator[int] = field(default_factory=count)

    def look(self) -> None:
        """Say how far the trace has come; read page tables again if the program has grown."""
        self.recording.children |= children_of(self.process.pid)
        if self.watch:
            self.watch(self.trace_size())
        if self.peak and self.process.returncode is None and self.peak.due():
            self.read_tables("peak")

    def trace_size(self) -> TraceSize:
        written = sum(path.stat().st_size for path in self.traces.glob("*.ptt"))
        place = os.statvfs(self.traces)
        return TraceSize(time.monotonic() - self.started, written, place.f_bavail * place.f_frsize)

    def pause(self) -> float:
        """Seconds until the next look; where the peak is wanted, a tenth of the run so far."""
        return min(max((time.monotonic() - self.started) / 10, SOON), TICK) if self.peak else TICK

    def read_tables(self, why: str) -> None:
        """Run ptdump; the process is stopped meanwhile, every thread of it.

        Each reading has its own directory, one assignment says which is kept: Ctrl-C leaves a whole reading.
        """
        if not self.dumper or (why != "peak" and self.peak and self.peak.resident() < self.peak.kept):
            return
        place = self.directory / f"{READING}{next(self.readings)}"
        resident = self.peak.resident() if self.peak else 0
        if failed := dump(self.dumper, self.process.pid, place):
            if not self.recording.tables and why != "peak":
                self.recording.problems.append(f"no page tables: {failed}")
            return
        older = self.recording.tables
        self.recording.tables = place, why
        if self.peak:
            self.peak.kept = resident
        if older:
            shutil.rmtree(older[0], ignore_errors=True)

    def answer_dump_request(self, pid: int, why: str) -> None:
        """A tracer of ours waits for the page tables of its process to be read."""
        if pid != self.process.pid:
            place = self.directory / f"pid-{pid}"
            if self.dumper and self.children and pid in self.children.files() and not place.exists():
                dump(self.dumper, pid, place)
            return
        # a program that goes to the background ends between two looks
        self.recording.children |= children_of(pid)
        if not (self.recording.interrupted and self.recording.snapshot):
            self.read_tables(why)

    def read_children(self) -> None:
        """Page tables of the children that run now."""
        if self.dumper and self.children:
            for pid, _ in self.children.running(self.recording.user):
                if not (self.directory / f"pid-{pid}").exists():
                    dump(self.dumper, pid, self.directory / f"pid-{pid}")

    def over(self) -> bool:
        return self.process.poll() is not None and not (self.children and self.children.writing())


READING = ".tables-"  # and a number: directories in the capture, until the program has ended


def keep_tables(directory: Path, recording: Recording) -> None:
    """Move the page tables that are kept into the capture, and remove all other readings."""
    if recording.tables:
        for file in recording.tables[0].iterdir():
            file.rename(directory / file.name)
    for place in directory.glob(f"{READING}*"):
        shutil.rmtree(place, ignore_errors=True)


def dump(dumper: Path, pid: int, place: Path) -> str:
    """Run ptdump into the new directory `place`: "", or why it failed, and nothing is left then."""
    argv = [str(dumper), "process", str(pid), "--stop", "--quiet", "-o", str(place)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, process_group=0)
    except BaseException:  # Ctrl-C, after which it is dumped again
        shutil.rmtree(place, ignore_errors=True)
        raise
    if not done.returncode:
        return ""
    shutil.rmtree(place, ignore_errors=True)
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


def children_of(pid: int) -> dict[int, str]:
    """{PID: name} of a process's children now without its tracer's watcher (watcher.cpp); none where the
    kernel does not tell (CONFIG_PROC_CHILDREN). One that ends before its name is read may be the watcher."""
    try:
        listed = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return {}
    named = ((int(word), comm(word)) for line in listed for word in line.split())
    return {child: name for child, name in named if name not in (None, "pt-watcher")}


def readable(word: str | bytes) -> str:
    """An argument or name as text; bytes that are no UTF-8 as \\xff."""
    return os.fsencode(word).decode("utf-8", "backslashreplace")


@contextmanager
def listening(user: pwd.struct_passwd | None = None) -> Iterator[socket.socket]:
    """A listening Unix socket for us and `user` in a directory of our own, whose path is short enough."""
    with temporary_directory() as place, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{place}/control")
        listener.listen()
        if user:
            os.chmod(place, 0o711)
            os.chown(f"{place}/control", user.pw_uid, user.pw_gid)
        yield listener


def start(argv: list[str], user: pwd.struct_passwd | None = None) -> Process:
    """Start it in a process group of its own: Ctrl-C is ours, so that the page tables can be read first.

    It is killed when we are: nothing else would end it. It is the first to
    be killed when memory runs out: a tracer can need far more than the program itself.
    """
    stdin = subprocess.DEVNULL if os.isatty(0) else None
    die = die_with_us()

    def prepare() -> None:
        die()
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ours to send, though our shell had it ignored

    ran = subprocess.Popen(argv, stdin=stdin, process_group=0, preexec_fn=prepare, **as_user(user))
    with suppress(OSError), open(f"/proc/{ran.pid}/oom_score_adj", "w") as score:
        score.write(FIRST_TO_GO)  # from here: as another user it may not
    return ran


def native_time(seconds: float, trace: Trace) -> dict[str, Any]:
    """The fact for snapshot.json of a region that takes `seconds` outside the tracer.

    Threads are taken to be busy: as many as equal ones have the same sum of squared shares of the accesses.
    """
    shares = np.bincount(trace.chunks["thread"], weights=trace.chunks["accesses"])
    busy = max(float(shares.sum() ** 2 / max((shares**2).sum(), 1.0)), 1.0)
    times = {"seconds": seconds, "user_seconds": seconds * busy, "system_seconds": 0.0}
    executed = int(trace.chunks["instructions"].sum())
    mhz = re.findall(r"^cpu MHz\s*:\s*(\d{1,6}(?:\.\d+)?)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    ghz = max(map(float, mhz), default=0.0) / 1000 or 2.0  # the fastest CPU's now
    return {"how": "given", **times, "ghz": ghz, "instructions": executed}


def end(process: Process) -> None:
    """Leave no target behind: it is alive only after a failure."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def supervise(run: Tracee, keep: Callable[[], None]) -> None:
    """Wait for the process, and children that are followed, to end; read their page tables when their tracers
    ask for it, those of the process also on Ctrl-C. keep: of process.ends_once."""
    try:
        wait_or_serve(run)
        keep()
    except KeyboardInterrupt:
        run.recording.interrupted = True
        if (not run.recording.snapshot or run.peak) and run.process.poll() is None:
            run.read_tables("interrupt")
        run.read_children()
        interrupt(run)


def interrupt(run: Tracee) -> None:
    """SIGINT, and SIGKILL to what has not ended after GRACE; tracers that hand over are answered."""
    for number in (signal.SIGINT, signal.SIGKILL):
        run.process.send_signal(number)
        if run.children:
            run.children.send(number, run.recording.user)
        wait_or_serve(run, GRACE)
        if run.over():
            return


def wait_or_serve(run: Tracee, most: float = math.inf) -> None:
    """Until the process and its followed children have ended, or `most` seconds are over."""
    until, next_look = time.monotonic() + most, time.monotonic() + run.pause()
    with ExitStack() as stack:
        watched: list[int | socket.socket] = [run.listener]
        if run.process.poll() is None:
            watched.append(ended := os.pidfd_open(run.process.pid))
            stack.callback(os.close, ended)
        while not run.over() and time.monotonic() < until:
            ready, _, _ = select.select(watched, [], [], max(next_look - time.monotonic(), 0))
            if run.listener in ready:
                serve(run)
                if run.recording.ended and not math.isfinite(most):
                    interrupt(run)
            elif ready:
                run.process.wait()
                del watched[1]
            elif time.monotonic() >= next_look:
                run.look()
                next_look = time.monotonic() + run.pause()


def serve(run: Tracee) -> None:
    """A tracer stands still at its hand-over until the connection gets an answer, or is closed."""
    connection, _ = run.listener.accept()
    with connection:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", credentials)
        connection.settimeout(GRACE)
        with suppress(OSError):
            why = connection.recv(64).decode("ascii", "replace").split(" ")[0]
            if uid == run.recording.user:
                run.answer_dump_request(pid, why)
                run.recording.ended |= run.end_after and why == "roi_end" and pid == run.process.pid
            connection.sendall(b"go on\n")
