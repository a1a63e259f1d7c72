"""A live process, meant by more than its number, and what /proc says of it and of the machine."""

import fcntl
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

from ...core.errors import PartialDataError, UsageError, as_root, meant
from ...core.process import heeded

LONGEST = 4096  # bytes of a command line that are kept
NOTED = 1000  # characters of it that a trace keeps
STEPPED = 2.0  # seconds by which the clock may have been set meanwhile
PF_KTHREAD = 0x00200000  # include/linux/sched.h
START = 19  # of stat_fields: when a process began, in ticks
RECORDS = Path("/run/ptanalyze")  # PID-START.json of each process that is changed, as found; PID-START.lock
LATEST = 32  # records of processes that ended: children have their pages, perhaps
THP = Path("/sys/kernel/mm/transparent_hugepage")


@dataclass(frozen=True)
class Process:
    """A process, safe against PID reuse; proc: its directory in /proc, open."""

    pid: int
    proc: Path

    @contextmanager
    def there(self) -> Iterator[None]:
        """PartialDataError for what fails as the process has ended (ESRCH)."""
        try:
            yield
        except ProcessLookupError:
            raise PartialDataError(f"PID {self.pid}: ended while it was read; nothing was kept") from None


@contextmanager
def open_process(pid: int) -> Iterator[Process]:
    """The Process `pid`; UsageError if there is none.

    The pidfd comes first: if its process has not been reaped when /proc/PID is open, both are the same.
    """
    with ExitStack() as stack:
        try:
            pidfd = os.pidfd_open(pid)
            stack.callback(os.close, pidfd)
            directory = os.open(shown(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, directory)
            with suppress(PermissionError):
                signal.pidfd_send_signal(pidfd, 0)
        except (OSError, OverflowError):  # EINVAL: a number that no process has, or a thread's
            raise UsageError(f"PID {pid}: no such process") from None
        yield Process(pid, Path(f"/proc/self/fd/{directory}"))


def shown(pid: int) -> Path:
    """The directory below /proc that shows a process's memory: another thread's if the main one has ended."""
    whole = Path("/proc") / str(pid)
    if state(whole) in "ZX":
        for task in whole.glob("task/*"):
            if state(task) not in "ZX":
                return whole.with_name(task.name)
    return whole


def state(proc: str | os.PathLike[str]) -> str:
    """State letter of a process or thread directory below /proc; "X" when it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return stat_fields(proc)[0]
    return "X"


def stat_fields(proc: str | os.PathLike[str]) -> list[str]:
    """Fields of `stat` in a process or thread directory below /proc, from the state on (proc(5), field 3).

    The name before them holds any bytes, parentheses and spaces too. OSError when it is gone.
    """
    return (Path(proc) / "stat").read_bytes().rpartition(b") ")[2].decode().split()


def cpu_ticks(fields: Sequence[str]) -> int:
    """CPU time in `stat_fields`, user and system, in clock ticks."""
    return int(fields[11]) + int(fields[12])


def check_process(proc: Path, pid: int) -> None:
    """UsageError where `pid` (its /proc/PID: `proc`) has no page tables: a zombie, a kernel thread."""
    try:
        fields = stat_fields(proc)
    except (FileNotFoundError, ProcessLookupError):
        raise UsageError(f"PID {pid}: no such process") from None
    if fields[0] in "ZX" and shown(pid).name == str(pid):
        raise UsageError(f"PID {pid}: has exited (a zombie has no page tables)")
    if int(fields[6]) & PF_KTHREAD:
        raise UsageError(f"PID {pid}: a kernel thread, it has no page tables of its own")


def huge_pages() -> str | None:
    """Transparent huge pages of 2 MiB as the machine is set: "always", "madvise", "never"; None: unknown."""
    for file in (THP / "hugepages-2048kB" / "enabled", THP / "enabled"):
        with suppress(OSError):
            chosen = re.search(r"\[(\w+)\]", file.read_text())
            if chosen and chosen[1] != "inherit":
                return chosen[1]
    return None


def keeps_page_size(pid: int, own: float = 0.0) -> str:
    """Why no page size of a process can be changed from outside, by process_madvise; "" if root can do it,
    to `own` of its resident memory at least: what is shared or of a file is not changed."""
    release = os.uname().release
    if tuple(map(int, re.findall(r"\d+", release)[:2])) < (6, 1):
        return f"Linux {release} makes no huge pages of another process; it needs 6.1"
    with suppress(OSError):
        text = (shown(pid) / "status").read_text(errors="replace")
        facts = dict(re.findall(r"^(\w+):\s+(\d+)", text, re.M))
        if facts.get("THP_enabled") == "0":
            off = "its huge pages are off (PR_SET_THP_DISABLE); a redis keeps them with --disable-thp no"
            return f"{called(pid)}: {off}"
        if int(facts.get("RssAnon", 0)) < own * int(facts.get("VmRSS", 0)):
            return f"{called(pid)}: most of its memory is shared or of files"
    return ""


FEW_CALLS = 500  # per CPU second: fewer system calls say nothing about the work done
EVENTS = Path("/sys/bus/event_source/devices")  # "cpu", or one for each kind of CPU, where instructions count
LOOK = 0.1  # seconds


def page_trial(pid: int | None, name: str = "PID", command: str | None = None) -> str:
    """Line that measures what huge pages give a process: by itself where its work has a figure, else by one
    that the user knows. pid: None: it has ended; name: what -p takes for the next one, PID if not known;
    command: what was recorded, which can be started again."""
    by_itself = counts_work(pid)
    if pid is None and command is not None and not by_itself:
        return f"{as_root()} trial --pages -- {command if 0 < len(command) < NOTED else './app'}"
    return f"{as_root()} trial --pages -p {pid or name}{'' if by_itself else ' --figure-of CMD'}"


def counts_work(pid: int | None) -> bool:
    """Whether this machine counts instructions, or a process makes system calls, of its reads and writes
    alone, by which a trial can tell how much it does."""
    if any(EVENTS.glob("cpu*")) or pid is None:
        return any(EVENTS.glob("cpu*"))
    with suppress(OSError, ValueError, PartialDataError):
        calls, cpu = _work(pid)
        time.sleep(LOOK)
        later, used = _work(pid)
        return later - calls >= FEW_CALLS * (used - cpu) > 0
    return False


def _work(pid: int) -> tuple[int, float]:
    """(system calls that read and wrote, CPU seconds) of a process, so far."""
    counts = re.findall(r"^sysc[rw]: (\d+)", (Path("/proc") / str(pid) / "io").read_text(), re.M)
    return sum(map(int, counts)), cpu_seconds(pid)


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process, ended ones too (its CPU-time clock)."""
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        raise PartialDataError(f"PID {pid}: ended before all was measured") from None


def still_runs(facts: Mapping[str, Any]) -> int | None:
    """PID of a dumped process, None unless it runs here still: one with this number, of the same age.

    facts   of its dump: "pid", "time", and "process_s", the seconds for which it had run then
    """
    with suppress(OSError, KeyError, TypeError, ValueError):
        born = datetime.fromisoformat(facts["time"]).timestamp() - facts["process_s"]
        up, fields = float(Path("/proc/uptime").read_text().split()[0]), stat_fields(shown(facts["pid"]))
        starts = time.time() - up + int(fields[19]) / os.sysconf("SC_CLK_TCK")
        if abs(starts - born) < STEPPED and fields[0] not in "ZX":
            return int(facts["pid"])
    return None


def command_line(pid: int, name: str | None = None) -> list[str]:
    """Words of the command line, or the title that a server gave itself, bytes of no UTF-8 as \\xff; none if
    `pid` is not called `name` any more, where that is given."""
    proc = shown(pid)
    with suppress(OSError):
        text = (proc / "cmdline").read_bytes()[:LONGEST].rstrip(b"\0 ")
        if text and name in (None, (proc / "comm").read_text(errors="replace").rstrip("\n")):
            return [word.decode("utf-8", "backslashreplace") for word in text.split(b"\0")]
    return []


def names() -> dict[int, set[str]]:
    """{PID: names} of other processes: the kernel's, the command line's first word, the executable's path."""
    found = {}
    for proc in Path("/proc").glob("[0-9]*"):
        pid = int(proc.name)
        if pid != os.getpid() and state(proc) not in "ZX":
            words = [Path(word).name for word in command_line(pid)[:1]]
            with suppress(OSError):
                words.append(os.readlink(proc / "exe"))
            found[pid] = {comm(pid) or "", *words}
    return found


def named(name: str) -> list[int]:
    """PIDs of other processes with this name, or whose executable is at this path."""
    wanted = {name, os.path.realpath(name) if "/" in name else name}
    return sorted(pid for pid, each in names().items() if wanted & each)


def heads(pids: Sequence[int]) -> list[int]:
    """PIDs without that of a server's only child, which saves its memory; workers have their own."""
    if len(pids) != 2:
        return list(pids)
    found = []
    for above in pids:
        found.append(above)
        with suppress(OSError):  # it has ended
            while above := int(stat_fields(f"/proc/{above}")[1]):
                if above in pids:
                    found.pop()
                    break
    return found


def not_running(name: str) -> str:
    """Sentence that no process has this name, with the nearest."""
    near = meant(name, [one for one in set().union(*names().values()) if "/" not in one])
    return f"no process here is called {name}: {near}`pgrep -af WORD` finds its PID"


def used(pid: int) -> str:
    """ "redis-server, 1.2 CPU s", by which people tell processes apart."""
    with suppress(OSError):
        ticks = cpu_ticks(stat_fields(Path("/proc") / str(pid)))
        return f"{comm(pid)}, {ticks / os.sysconf('SC_CLK_TCK'):.1f} CPU s"
    return "ended"


def comm(pid: int | str) -> str | None:
    """Name of a process as the kernel keeps it, bytes that are no UTF-8 as \\xff; None if it has ended."""
    with suppress(OSError):
        name = (Path("/proc") / str(pid) / "comm").read_bytes().rstrip(b"\n")
        return name.decode("utf-8", "backslashreplace")
    return None


def called(pid: int) -> str:
    """ "PID 1234 (name)"; without the name if the process has ended."""
    name = comm(pid)
    return f"PID {pid}" if name is None else f"PID {pid} ({name})"


def hold(stack: ExitStack, pid: int, changer: str) -> None:
    """Lock a process, so that `changer` alone changes its pages or tables until the stack ends or we do.

    UsageError where another command does. What it takes for pages as found would be what we made of them.
    """
    RECORDS.mkdir(mode=0o700, exist_ok=True)
    forget_ended()
    path = RECORDS / f"{pid}-{stat_fields(f'/proc/{pid}')[START]}.lock"
    while True:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        file = stack.enter_context(os.fdopen(number, "r+"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            runs = file.read() or f"another command on PID {pid} runs"
            raise UsageError(f"{runs}; wait for it or end it") from None
        with suppress(FileNotFoundError):  # whoever held it before removed it
            if os.path.samestat(os.stat(path), os.fstat(number)):
                break
    file.truncate()
    runs = f"{changer} of PID {pid} runs since {time.strftime('%H:%M:%S')}, as PID {os.getpid()}"
    with suppress(OSError):  # a full file system: then it is not said who holds it
        os.write(number, runs.encode())
    stack.callback(path.unlink, missing_ok=True)


def forget_ended() -> None:
    """Remove locks of processes that ended, and their records but for those of the LATEST processes."""
    records = sorted(RECORDS.glob("*.json"), key=lambda path: path.stem.partition("-")[2].zfill(20))
    for path in {*RECORDS.iterdir()} - {*records[-LATEST:]}:
        pid, _, started = path.stem.partition("-")
        with suppress(OSError, ValueError):
            with suppress(FileNotFoundError, ProcessLookupError):
                if started == stat_fields(f"/proc/{int(pid)}")[START]:
                    continue
            path.unlink()


@contextmanager
def ends_once() -> Iterator[Callable[[], None]]:
    """A block of code in which the first of these signals is a KeyboardInterrupt, and others are nothing.

    The handler before is called for it: it knows the exit code. One that is ignored, as by nohup, stays so.
    Yields what makes all of them nothing, to programs that are started then, too: what there is is kept.
    """
    before = heeded()

    def ignore() -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)

    def end(number: int, frame: FrameType | None) -> None:
        ignore()
        if callable(handler := before[number]):
            handler(number, frame)
        raise KeyboardInterrupt

    for number in before:
        signal.signal(number, end)
    try:
        yield ignore
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
