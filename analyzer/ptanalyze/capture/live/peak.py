"""When to read page tables again while a program runs, so that those of its largest moment are kept.

Which moment is the largest is known afterwards only. So they are read whenever the resident memory has grown
by a quarter since: those kept are of a moment with at least 0.8 of the peak, and a program that grows from 1
MiB to 1 TiB is stopped 62 times. What was resident at the first look is the tracer's, for the most part,
and a small program is small beside it: growth is counted from there.
"""

from pathlib import Path

GROWN = 1.25
LEAST = 1 << 20  # bytes


class Peak:
    """kept: bytes that were resident when the page tables were read that are kept, 0: none were; first: those
    at the first reading."""

    def __init__(self, pid: int) -> None:
        self.statm, self.kept, self.first = Path(f"/proc/{pid}/statm"), 0, 0

    def resident(self) -> int:
        """Bytes now, 0 when the program has ended."""
        try:
            return int(self.statm.read_text().split()[1]) * 4096
        except (OSError, IndexError):
            return 0

    def due(self) -> bool:
        now = self.resident()
        if not self.kept:
            self.first = now
            return now >= LEAST
        return now - self.first >= max(GROWN * (self.kept - self.first), LEAST)

    def larger_now(self) -> bool:
        """Whether page tables read now, at the end, would be of more memory than those kept."""
        return self.resident() >= self.kept
