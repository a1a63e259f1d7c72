"""How long work says how far it is: a function of (done, total, what), or None for nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = "Callable[[int, int, str], None] | None"  # of (done, total, what)


def adding_up(progress: Progress, total: int, what: str) -> Callable[[int], None] | None:
    """A function of how much one more batch did, for a progress(done, total, what); None stays None."""
    if progress is None:
        return None
    done = 0

    def add(batch: int) -> None:
        nonlocal done
        done += batch
        progress(done, total, what)

    return add
