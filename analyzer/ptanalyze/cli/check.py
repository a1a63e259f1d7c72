"""`ptanalyze check`: is a capture usable?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from .options import PID, capture_argument, open_or_default
from .output import Output, emit, output_options

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..analysis.answer import Section
    from ..capture.check.tables import Check

MARKS = {"ok": "green", "note": "cyan", "partial": "yellow", "failed": "red"}


@click.command("check")
@capture_argument
@click.option(
    "--live",
    type=PID,
    metavar="PID",
    help="Also compare with the running VMM of this process ID. Default: the capture alone.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Compare file lengths instead of contents, and skip the trace's touches.",
)
@output_options()
def command(capture: str | None, live: int | None, quick: bool, output: Output) -> int:
    """Verify that CAPTURE is usable: files as sealed, tree closed, frames inside nodes, trace covered.

    With --live, every page that a VM's nested tables map is compared with /proc/PID/pagemap of its VMM
    (root).

    Exit code 0 all well, 1 a check failed, 3 usable but partial.

    \b
    Examples:
      ptanalyze check app
      ptanalyze check app && ptanalyze whatif app
    """
    from dataclasses import asdict
    from itertools import chain

    from ..analysis.answer import Answer
    from ..capture.check import check_capture, exit_code
    from ..capture.check.vm import check_live

    opened = open_or_default(capture)
    findings = Findings(
        chain(
            check_capture(opened, quick=quick),
            check_live(opened.vm, live) if live else (),
        )
    )

    def table() -> DataFrame:
        from ..analysis.frames import findings_frame

        found = findings_frame(list(findings))
        found.attrs["provenance"] = {"capture": str(opened.directory)}
        return found

    def view() -> Iterator[Section]:
        yield from map(line, findings)
        yield summary(list(findings))

    emit(
        Answer("check", table, lambda: [asdict(finding) for finding in findings], view, {"checks": table}),
        output,
    )
    return exit_code(list(findings))


class Findings:
    """Findings as they come, and again as often as asked for."""

    def __init__(self, coming: Iterator[Check]) -> None:
        self.coming = coming
        self.known: list[Check] = []

    def __iter__(self) -> Iterator[Check]:
        yield from self.known
        for finding in self.coming:
            self.known.append(finding)
            yield finding


def summary(findings: list[Check]) -> Section:
    """Whether the capture can be used, and how many checks say so."""
    from ..analysis.answer import Section
    from ..core.columns import FAILED, NOTE, PARTIAL
    from ..core.errors import plural

    several = Counter(finding.verdict for finding in findings)
    checks = plural(len(findings), "check")
    if several[FAILED]:
        said = f"not usable: {several[FAILED]} of {checks} failed"
    elif several[PARTIAL]:
        said = f"usable, but data are missing: {several[PARTIAL]} of {checks} partial"
    else:
        said = f"usable: {checks} passed"
    if several[FAILED] and several[PARTIAL]:
        said += f", {several[PARTIAL]} partial"
    if several[NOTE]:
        said += f", {plural(several[NOTE], 'note')}"
    return Section(lines=["", said])


def line(finding: Check) -> Section:
    from rich.text import Text

    from ..analysis.answer import Section
    from ..show.terminal import number

    word = finding.verdict.upper() if finding.verdict == "failed" else finding.verdict
    count = f"{number(finding.wrong)} of {number(finding.examined)} " if finding.wrong else ""
    text = f" {finding.name:<26} {count}{finding.reason}"
    return Section(lines=[Text.assemble((f"{word:>8}", MARKS[finding.verdict]), text)])
