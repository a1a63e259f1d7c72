"""What a running process does in a time: a figure of its own, system calls, or instructions."""

import ctypes
import errno
import os
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import ptanalyze as pt

from .blocks import kernel
from .far_tables import count_of, refused

PERF_EVENT_OPEN, FSOPEN, FSCONFIG, FSMOUNT = 298, 430, 431, 432  # of x86-64
# poll to futex_waitv: a server whose clients come one by one waits for each, for the same work
WAITS = (7, 23, 24, 34, 35, 128, 202, 219, 230, 232, 270, 271, 281, 441, 449)
NO_WAIT = " && ".join(f"id != {call}" for call in WAITS).encode()
IDLE = 0.01  # of a CPU: timers of an idle redis take 0.3 %, and 10 ms per second is what filling caches takes
LOOKS, LOOK, MOST = 20, 0.005, 200  # times that a figure is read, seconds apart; if it is coarse
FELL = 0.25  # of the median effort: huge pages halve that of a steady load; one that ended leaves less
COARSE = 5  # growths in MOST looks: one that grows less often, as by a line each second, may be a clock


@dataclass
class Meter:
    """name: of the figure; read(): (work, effort) so far; unit: of its rate; seen: efforts in a second."""

    name: str
    read: Callable[[], tuple[float, float]]
    unit: str = "per CPU second"
    seen: list[float] = field(default_factory=list)

    def rate(self, seconds: float) -> float | None:
        """Work per effort in a time; None where either stood still, or the load has ended: FELL."""
        before, began = self.read(), time.monotonic()
        time.sleep(seconds)
        work, effort = (now - then for now, then in zip(self.read(), before, strict=True))
        self.seen.append(effort / (time.monotonic() - began))
        return work / effort if work > 0 and self.seen[-1] > FELL * median(self.seen) else None


def window_of(meter: Meter) -> float:
    """Seconds of a window: half a second for a figure that grows in half of LOOKS, about 50 times in that
    half second; else one. UsageError for one that grows fewer than COARSE times in it."""
    grew, seen = 0, meter.read()[0]
    for look in range(MOST):
        if look == LOOKS and grew >= LOOKS / 2:
            return 0.5
        time.sleep(LOOK)
        before, seen = seen, meter.read()[0]
        grew += seen > before
    if grew < COARSE:
        way = "count smaller pieces of work, or give --for 10s (10 minutes) if it counts work and not seconds"
        raise pt.UsageError(f"{meter.name} grows fewer than {COARSE} times a second: {way}")
    return 1.0


def must_work(pid: int, seconds: float) -> None:
    """UsageError for an idle process: what it does has little to do with its pages."""
    before = pt.live.cpu_seconds(pid)
    time.sleep(seconds)
    used = (pt.live.cpu_seconds(pid) - before) / seconds
    if used < IDLE:
        raise refused("idle", process=pt.live.called(pid), used=used, seconds=seconds)


def system_call_event() -> int:
    """Number of the tracepoint raw_syscalls:sys_enter, from a tracefs of our own; OSError without one."""
    files = kernel.syscall(FSOPEN, b"tracefs", 1)
    try:
        kernel.syscall(FSCONFIG, files, 6, None, None, 0)  # FSCONFIG_CMD_CREATE
        mount = kernel.syscall(FSMOUNT, files, 1, 0)
    finally:
        os.close(files)
    try:
        return int(Path(f"/proc/self/fd/{mount}/events/raw_syscalls/sys_enter/id").read_text())
    finally:
        os.close(mount)


def counter(stack: ExitStack, pid: int, kind: int, event: int, only: bytes = b"") -> Callable[[], float]:
    """Count of a perf event (type, config, filter) in all threads of a process and new ones; OSError."""
    inherited = 1 << 1 | 1 << 35  # inherit, inherit_thread
    attribute = struct.pack("IIQQQQQ", kind, 112, event, 0, 0, 0, inherited).ljust(112, b"\0")
    files = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        file = kernel.syscall(PERF_EVENT_OPEN, attribute, int(thread), -1, -1, 8)  # PERF_FLAG_FD_CLOEXEC
        if file >= 0:
            stack.callback(os.close, file)
            files.append(file)
            if only and kernel.ioctl(file, 0x40082406, only):
                raise OSError(ctypes.get_errno(), "PERF_EVENT_IOC_SET_FILTER")
        elif ctypes.get_errno() != errno.ESRCH:
            raise OSError(ctypes.get_errno(), "perf_event_open")
    return lambda: float(sum(int.from_bytes(os.read(file, 8), "little") for file in files))


def meter_of(stack: ExitStack, pid: int, figure: str | None) -> Meter:
    """The figure of a process: a command's, system calls per CPU second, or instructions per cycle."""
    if figure:
        return Meter(f"--figure-of {figure!r}", lambda: (count_of(figure), pt.live.cpu_seconds(pid)))
    with suppress(OSError, pt.UsageError):
        calls = counter(stack, pid, 2, system_call_event(), NO_WAIT)
        unit = "system calls per CPU second"
        meter = Meter(unit, lambda: (calls(), pt.live.cpu_seconds(pid)), unit)
        if (meter.rate(0.5) or 0) >= pt.live.FEW_CALLS:
            return meter
    with suppress(OSError):
        instructions, cycles = counter(stack, pid, 0, 1), counter(stack, pid, 0, 0)
        unit = "instructions per cycle"
        return Meter(unit, lambda: (instructions(), cycles()), unit)
    raise refused("no-figure", pid=pid)
