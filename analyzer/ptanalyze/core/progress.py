"""Progress of long work: a function of (done, total, what), or None."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = "Callable[[int, int, str], None] | None"  # of (done, total, what)


def adding_up(progress: Progress, total: int, what: str) -> Callable[[int], None] | None:
    """A function of each batch's size that reports the sum to progress(done, total, what); None for None."""
    if progress is None:
        return None
    done = 0

    def add(batch: int) -> None:
        nonlocal done
        done += batch
        progress(done, total, what)

    return add
