"""A program that runs under a tracer: started, watched, its page tables read when asked for, ended."""

import contextlib
import math
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from ...core.regular import temporary_directory
from .account import Account
from .children import Children
from .die_with_us import die_with_us
from .growth import Grown, Growth
from .peak import Peak

FIRST_TO_GO = "1000"  # of oom_score_adj, proc(5)
GRACE = 5.0  # seconds a program has to end after SIGINT, before SIGKILL
TICK = 0.5  # seconds between two looks at a program that runs
SOON = 0.02  # the least, at first, where its memory at the peak is wanted

Process: TypeAlias = "subprocess.Popen[bytes]"
Watch: TypeAlias = Callable[[Grown], None]


@dataclass
class Recording:
    """Outcome of record(). `exit_status` as of Popen: negative is the signal that killed the program."""

    directory: Path
    exit_status: int
    snapshot: bool = False
    held: str = ""  # when the page tables were read: "roi_end", "exit", "interrupt" or "peak"
    interrupted: bool = False
    children: set[int] = field(default_factory=set)  # PIDs seen while it ran
    problems: list[str] = field(default_factory=list)
    user: int = 0  # whom the program ran as
    grown: Grown | None = None  # the trace at the end


@dataclass(frozen=True)
class Run:
    """A program under its tracer, and what belongs to it.

    peak  None, or page tables are read as it grows; children  None, or those traced into trace.PID.ptt
    """

    process: Process
    listener: socket.socket
    dumper: Path | None
    directory: Path
    recording: Recording
    growth: Growth
    peak: Peak | None = None
    watch: Watch | None = None
    children: Children | None = None
    started: float = field(default_factory=time.monotonic)

    def look(self) -> None:
        """Say how far the trace has come; read page tables again if the program has grown."""
        self.recording.children |= children_of(self.process.pid)
        self.recording.grown = self.growth.look(time.monotonic() - self.started)
        if self.watch:
            self.watch(self.recording.grown)
        if self.peak and self.process.returncode is None and self.peak.due():
            self.read_tables("peak")

    def pause(self) -> float:
        """Seconds until the next look; where the peak is wanted, a tenth of the run so far."""
        ran = time.monotonic() - self.started
        return min(max(ran / 10, SOON), TICK) if self.peak else TICK

    def read_tables(self, why: str) -> None:
        """Run ptdump into the directory. The process is stopped meanwhile, every thread of it."""
        if not self.dumper or (why != "peak" and self.peak and not self.peak.larger_now()):
            return
        place, resident = self.directory / ".snapshot", self.peak.resident() if self.peak else 0
        if failed := dump(self.dumper, self.process.pid, place):
            if not self.recording.snapshot and why != "peak":
                self.recording.problems.append(f"no page tables: {failed}")
            return
        for file in place.iterdir():
            file.rename(self.directory / file.name)
        place.rmdir()
        self.recording.snapshot, self.recording.held = True, why
        if self.peak:
            self.peak.kept = resident

    def hand_over(self, pid: int, why: str) -> None:
        """A tracer of ours waits for the page tables of its process to be read."""
        if pid != self.process.pid:
            place = self.directory / f"pid-{pid}"
            if self.dumper and self.children and pid in self.children.pids() and not place.exists():
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


def dump(dumper: Path, pid: int, place: Path) -> str:
    """Run ptdump into the new directory `place`: "", or why it failed, and nothing is left then."""
    argv = [str(dumper), "process", str(pid), "--stop", "--quiet", "-o", str(place)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, process_group=0)
    if not done.returncode:
        return ""
    shutil.rmtree(place, ignore_errors=True)
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


def children_of(pid: int) -> set[int]:
    """PIDs of a process's children now; none where the kernel does not tell (CONFIG_PROC_CHILDREN)."""
    try:
        listed = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return set()
    return {int(word) for line in listed for word in line.split()}


@contextlib.contextmanager
def listening(user: Account | None = None) -> Iterator[socket.socket]:
    """A listening Unix socket in a directory of our own, for us and `user`; its path is short enough whatever
    the capture's is."""
    with temporary_directory() as place, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{place}/control")
        listener.listen()
        if user:
            os.chmod(place, 0o711)
            os.chown(f"{place}/control", user.uid, user.gid)
        yield listener


def start(argv: list[str], user: Account | None = None) -> Process:
    """Start it in a process group of its own: Ctrl-C is ours, so that the page tables can be read first.

    It is killed when we are: nobody else would end it. It is the first to
    be killed when memory runs out: a tracer can need far more than the program itself.
    """
    stdin = subprocess.DEVNULL if os.isatty(0) else None
    die = die_with_us()

    def prepare() -> None:
        die()
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write(FIRST_TO_GO)

    return subprocess.Popen(
        argv,
        stdin=stdin,
        process_group=0,
        preexec_fn=prepare,
        **(user.popen() if user else {}),
    )


def end(process: Process) -> None:
    """Leave no target behind: it is alive only after a failure."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def attend(run: Run) -> None:
    """Wait for the process, and children that are followed, to end; read their page tables when their tracers
    ask for it, those of the process also on Ctrl-C."""
    try:
        wait_or_serve(run)
    except KeyboardInterrupt:
        run.recording.interrupted = True
        if (not run.recording.snapshot or run.peak) and run.process.poll() is None:
            run.read_tables("interrupt")
        run.read_children()
        interrupt(run)
    run.recording.grown = run.growth.look(time.monotonic() - run.started)


def interrupt(run: Run) -> None:
    """SIGINT, and SIGKILL to what has not ended after GRACE; tracers that hand over are answered."""
    for number in (signal.SIGINT, signal.SIGKILL):
        run.process.send_signal(number)
        if run.children:
            run.children.send(number, run.recording.user)
        with contextlib.suppress(KeyboardInterrupt):
            wait_or_serve(run, GRACE)
        if run.over():
            return


def wait_or_serve(run: Run, most: float = math.inf) -> None:
    """Until the process and its followed children have ended, or `most` seconds are over."""
    until, next_look = time.monotonic() + most, time.monotonic() + run.pause()
    with contextlib.ExitStack() as stack:
        watched: list[int | socket.socket] = [run.listener]
        if run.process.poll() is None:
            watched.append(ended := os.pidfd_open(run.process.pid))
            stack.callback(os.close, ended)
        while not run.over() and time.monotonic() < until:
            ready, _, _ = select.select(watched, [], [], max(next_look - time.monotonic(), 0))
            if run.listener in ready:
                serve(run)
            elif ready:
                run.process.wait()
                del watched[1]
            elif time.monotonic() >= next_look:
                run.look()
                next_look = time.monotonic() + run.pause()


def serve(run: Run) -> None:
    """A tracer stands still at its hand-over until the connection gets an answer, or is closed."""
    connection, _ = run.listener.accept()
    with connection:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", credentials)
        connection.settimeout(GRACE)
        with contextlib.suppress(OSError):
            why = connection.recv(64).decode("ascii", "replace").split(" ")[0]
            if uid == run.recording.user:
                run.hand_over(pid, why)
            connection.sendall(b"go on\n")
