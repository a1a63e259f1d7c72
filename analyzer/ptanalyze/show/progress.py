"""A progress bar with rate and time to go, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..core.process import Progress as ProgressProgress
from .terminal import console, number

if TYPE_CHECKING:
    from rich.progress import TaskID

    from ..capture.live.supervise import Grown


@contextmanager
def progress_bar() -> Iterator[ProgressProgress]:
    """Yields progress(done, total, what), or None where stderr is not a terminal."""
    out = console(stderr=True)
    if not sys.stderr.isatty():  # not FORCE_COLOR, which is about colour: a log has no use for bars
        yield None
        return
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=out, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def progress(done: int, total: int, what: str) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total, rate="")
            task = bars.tasks[tasks[what]]
            rate = f"{task.speed / 1e6:.1f} M/s" if task.speed else ""
            bars.update(tasks[what], completed=done, rate=rate)

        yield progress


# What a person sees while a program is recorded: how far its trace is, and whether the disk will do.

LOW = 2 << 30  # bytes free below which one line warns
EVERY = 60.0  # seconds between lines, after the first ones
FIRST = 2.0


class Progress:
    """Call it with each Grown. On a terminal: one line that is rewritten; where the program writes to the
    terminal too, lines of their own, at growing intervals, so that neither spoils the other. Elsewhere only
    the warning about the disk."""

    def __init__(self, write: Callable[[str], object] = sys.stderr.write, waiting_for: str = "") -> None:
        """waiting_for: what the region begins with, "work()"; "" where it begins with the program."""
        self.write, self.waiting_for = write, waiting_for
        self.terminal = sys.stderr.isatty()
        self.shared = sys.stdout.isatty()
        self.next, self.warned, self.shown = FIRST, False, False

    def __call__(self, grown: Grown) -> None:
        if grown.free < LOW and not self.warned:
            self.warned = True
            self.clear()
            self.write(
                f"ptanalyze: only {size(grown.free)} are left on the disk; Ctrl-C ends the program and keeps "
                "what is recorded\n"
            )
        if not self.terminal:
            return
        if not self.shared:
            self.write(f"\r\x1b[K{line(grown, self.waiting_for)}")
            self.shown = True
        elif grown.seconds >= self.next:
            self.write(f"ptanalyze: {line(grown, self.waiting_for)}\n")
            self.next = min(2 * self.next, self.next + EVERY)
        flush()

    def clear(self) -> None:
        """Remove the line that is rewritten."""
        if self.shown:
            self.write("\r\x1b[K")
            self.shown = False

    def sealing(self, grown: Grown) -> None:
        """The program has ended; what follows takes long for a large trace."""
        self.clear()
        if self.terminal:
            self.write(f"ptanalyze: checking and sealing {size(grown.bytes)} of trace\n")
            flush()


def flush() -> None:
    sys.stderr.flush()


def line(grown: Grown, waiting_for: str = "") -> str:
    """ "recording: 1:05, 474 M accesses, 366 MB, 41 MB/s"; "waiting for work(): 0:12" before any access."""
    minutes, seconds = divmod(int(grown.seconds), 60)
    if waiting_for and not grown.accesses:
        return f"waiting for {waiting_for}: {minutes}:{seconds:02}"
    rate = grown.bytes / max(grown.seconds, 1e-9)
    return (
        f"recording: {minutes}:{seconds:02}, {accesses(grown.accesses)}, {size(grown.bytes)}, {size(rate)}/s"
    )


def accesses(count: int) -> str:
    return f"{number(count / 1e6)} M accesses" if count >= 1e6 else f"{count:,} accesses"


def size(count: float) -> str:
    """Bytes for people, in powers of ten as disks are sold: 366 MB."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} bytes"
