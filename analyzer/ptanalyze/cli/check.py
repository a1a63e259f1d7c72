"""`ptanalyze check`: is a capture usable?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import import_module
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from ..core.errors import plural
from .options import Output, capture_argument, open_or_default, output_options, pid
from .replay_options import steps

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.text import Text

    from ..capture.check.tables import Check
    from ..core.columns import Section

MARKS = {"ok": "green", "note": "cyan", "partial": "yellow", "failed": "red"}


@click.command("check")
@capture_argument
@click.option(
    "--live",
    type=pid,
    metavar="PID",
    help="Also compare with the running VMM of this process ID. Default: the capture alone.",
)
@click.option(
    "--quick", is_flag=True, help="Compare file lengths instead of contents, and skip the trace's touches."
)
@output_options()
def command(capture: str | None, live: int | None, quick: bool, output: Output) -> int:
    """Verify that CAPTURE is usable: files as sealed, tree closed, frames inside nodes, trace covered.

    With --live, every page that a VM's nested tables map is compared with /proc/PID/pagemap of its VMM
    (root).

    Exit code 0 all well, 1 a check failed, 3 usable but partial.

    \b
    Examples:
      ptanalyze check app.capture
      ptanalyze check app.capture && ptanalyze whatif app.capture
    """
    opened = open_or_default(capture)
    if opened.has_trace and not quick:
        import_module("ptanalyze.kernels.trace_codec")  # Numba, while files are unpacked
    from ..capture.check import check_capture, exit_code
    from ..capture.check.vm import check_live
    from ..core.columns import Section, described, table_of

    checks = [*check_capture(opened, quick=quick), *(check_live(opened.vm, live) if live else ())]

    def table() -> DataFrame:
        rows = [
            (c.name, c.verdict, c.examined, c.wrong, c.wrong / max(c.examined, 1), c.reason) for c in checks
        ]
        columns = ["check", "verdict", "examined", "wrong", "share", "reason"]
        return described(table_of(rows, columns), provenance=opened.source)

    def view() -> Iterator[Section]:
        yield Section(lines=[*lines(checks), "", conclusion(checks)])
        if exit_code(checks) != 1:
            whole = opened.has_snapshot or opened.has_trace
            yield Section(lines=[""])
            further = {"what would be faster": "advise"} if whole else {"what it holds": "info"}
            yield steps(capture, further, opened)

    output.emit("check", table, lambda: [asdict(check) for check in checks], view)
    return exit_code(checks)


def conclusion(checks: Sequence[Check]) -> str:
    """Whether the capture can be used, and how many checks say so."""
    from ..core.columns import FAILED, NOTE, PARTIAL

    count = Counter(check.verdict for check in checks)
    every = plural(len(checks), "check")
    if count[FAILED]:
        text = f"not usable: {count[FAILED]} of {every} failed"
        text += f", {count[PARTIAL]} partial" if count[PARTIAL] else ""
    elif count[PARTIAL]:
        text = f"usable, but data are missing: {count[PARTIAL]} of {every} partial"
    else:
        text = f"usable: {every} passed"
    return f"{text}, {plural(count[NOTE], 'note')}" if count[NOTE] else text


def lines(checks: Sequence[Check]) -> Iterator[str | Text]:
    """A line for each check with something to say; those of a subject that passed, "gpt: levels", on one."""
    from rich.text import Text

    from ..show.terminal import SCREEN, number

    for passed, group in groupby(
        checks, lambda check: (check.verdict == "ok", check.name.partition(": ")[0])
    ):
        if passed[0]:
            names = ", ".join(check.name.partition(": ")[2] or "as it should be" for check in group)
            texts = [("ok", f"{passed[1]}: {names}")]
        else:
            texts = []
            for check in group:
                word = "FAILED" if check.verdict == "failed" else check.verdict
                count = f"{number(check.wrong)} of {number(check.examined)} " if check.wrong else ""
                texts.append((word, f"{check.name}: {count}{check.reason}"))
        for word, text in texts:
            first, *others = wrap(text, SCREEN - 9) or [""]
            yield Text.assemble((f"{word:>8}", MARKS[word.lower()]), f" {first}")
            yield from (" " * 9 + other for other in others)
