"""What a person sees while a program is recorded: how far its trace is, and whether the disk will do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from .terminal import number

if TYPE_CHECKING:
    from ..capture.live.attend import Grown

LOW = 2 << 30  # bytes free below which one line warns
EVERY = 60.0  # seconds between lines, after the first ones
FIRST = 2.0


class Progress:
    """Call it with each Grown. On a terminal: one line that is rewritten; where the program writes to the
    terminal too, lines of their own, at growing intervals, so that neither spoils the other. Elsewhere only
    the warning about the disk."""

    def __init__(self, write: Callable[[str], object] = sys.stderr.write) -> None:
        self.write = write
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
            self.write(f"\r\x1b[K{line(grown)}")
            self.shown = True
        elif grown.seconds >= self.next:
            self.write(f"ptanalyze: {line(grown)}\n")
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


def line(grown: Grown) -> str:
    """ "recording: 1:05, 474 M accesses, 366 MB, 41 MB/s"."""
    minutes, seconds = divmod(int(grown.seconds), 60)
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
