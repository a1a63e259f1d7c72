"""A progress bar with rate and time to go, on a terminal only."""

from collections.abc import Callable
from contextlib import contextmanager
from typing import TypeAlias

from .tables import console

Progress: TypeAlias = "Callable[[int, int, str], None] | None"  # of (done, total, what)


def adding_up(progress, total, what):
    """A function of how much one more batch did, for a progress(done, total, what); None stays None."""
    if progress is None:
        return None
    done = 0

    def add(batch):
        nonlocal done
        done += batch
        progress(done, total, what)

    return add


@contextmanager
def progress_bar():
    """Yields progress(done, total, what), or None where stderr is no terminal."""
    out = console(stderr=True)
    if not out.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=out, transient=True) as bars:
        tasks = {}

        def progress(done, total, what):
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total, rate="")
            task = bars.tasks[tasks[what]]
            rate = f"{task.speed / 1e6:.1f} M/s" if task.speed else ""
            bars.update(tasks[what], completed=done, rate=rate)

        yield progress
