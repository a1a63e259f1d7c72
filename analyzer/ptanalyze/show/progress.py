"""A progress bar with rate and time to go, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..core.progress import Progress
from .terminal import console

if TYPE_CHECKING:
    from rich.progress import TaskID


@contextmanager
def progress_bar() -> Iterator[Progress]:
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
