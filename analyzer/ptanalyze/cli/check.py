"""`ptanalyze check`: is a capture usable?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from .options import PID, capture_argument, open_or_default, steps
from .output import Output, emit, output_options

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..capture.check.tables import Check
    from ..core.columns import Section

MARKS = {"ok": "green", "note": "cyan", "partial": "yellow", "failed": "red"}
SUBJECTS = {  # of checks, before the colon of their names
    "files": "The capture's files",
    "gpt": "The program's page tables",
    "ept": "The nested tables",
    "vmas": "The memory areas (VMAs)",
    "pages": "The mapped pages",
    "dump": "The dump",
    "heat": "The samples",
    "vm": "The VM",
    "trace": "The trace",
    "live": "The live VM",
    "processes": "The processes",
}
PASSED = {  # what is true where a check passes, after its subject
    "as sealed": "are as sealed",
    "as long as sealed": "are as long as sealed",
    "levels": "lie one level below their parents",
    "ranges": "lie in their parents' ranges",
    "links": "are linked by their parents' entries",
    "closed": "lack no table that an entry refers to",
    "frames once": "have distinct page frames",
    "places once": "have distinct places",
    "frames in nodes": "lie in the memory of known nodes",
    "nodes agree": "are on the nodes that their frames say",
    "whole": "did not change meanwhile",
    "known": "were read, not inferred",
    "sorted": "are in order and do not overlap",
    "in VMAs": "lie in memory areas",
    "in nodes": "are in the memory of known nodes",
    "quiet": "was taken while no page table changed",
    "complete": "has as many tables as the kernel counts",
    "pagemap agrees": "agrees with /proc/PID/pagemap",
    "pagemap shows": "has no page that pagemap hides",
    "pages mapped": "are of mapped pages",
    "roots": "have all their roots",
    "guest-physical": "map guest-physical addresses",
    "inside slots": "map memory slots only",
    "as many leaves as KVM": "have as many leaf entries as KVM counts",
    "slots known": "has known memory slots",
    "vCPUs placed": "has its vCPUs on known nodes",
    "one boot": "is the same boot on both sides",
    "tables in ept": "has host memory behind all tables of the guest",
    "pages in ept": "has host memory behind all pages of the guest",
    "touches": "has touches",
    "in order": "is in the order of time",
    "threads known": "has only threads that started",
    "touch count": "has as many touches as its chunks say",
    "access count": "as many accesses",
    "covered by VMAs": "touches only memory that was mapped",
    "pages in the dump": "touches pages whose tables are in the dump",
    "finished": "ended with the program or its region",
    "pages as in pagemap": "maps the pages that pagemap shows",
    "there": "are all in the capture",
}


@click.command("check")
@capture_argument
@click.option(
    "--live",
    type=PID,
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
      ptanalyze check app
      ptanalyze check app && ptanalyze whatif app
    """
    from dataclasses import asdict
    from itertools import chain

    from ..capture.check import check_capture, exit_code
    from ..capture.check.vm import check_live
    from ..core.columns import Answer, Section

    opened = open_or_default(capture)
    findings = Findings(
        chain(check_capture(opened, quick=quick), check_live(opened.vm, live) if live else ())
    )

    def table() -> DataFrame:
        from ..analysis.frames import findings_frame

        found = findings_frame(list(findings))
        found.attrs["provenance"] = {"capture": str(opened.directory)}
        return found

    def view() -> Iterator[Section]:
        for same in passed_together(findings):
            yield line(*same)
        yield summary(list(findings))
        if exit_code(list(findings)) != 1:
            whole = opened.has_snapshot or opened.has_trace
            words = "advise" if whole else "info"
            yield Section(lines=[""])
            yield steps(capture, {"what another placement gains" if whole else "what it holds": words})

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
    from ..core.columns import FAILED, NOTE, PARTIAL, Section
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


def passed_together(findings: Iterable[Check]) -> Iterator[list[Check]]:
    """Checks of one subject that passed, as in "gpt: levels", in one list; each other one alone."""
    together: list[Check] = []
    for finding in findings:
        if together and (
            finding.verdict != "ok" or finding.reason or subject(finding) != subject(together[0])
        ):
            yield together
            together = []
        together.append(finding)
        if finding.verdict != "ok" or finding.reason:
            yield together
            together = []
    if together:
        yield together


def subject(finding: Check) -> str:
    return finding.name.partition(": ")[0]


def sentence(*passed: Check) -> str:
    """What checks of one subject found true: "The mapped pages lie in memory areas and ..."."""
    clauses = [PASSED.get(one.name.partition(": ")[2], f"{one.name} is ok") for one in passed]
    if (about := SUBJECTS.get(subject(passed[0]))) is None:
        return f"{passed[0].name} passed every check"
    *first, last = clauses
    return f"{about} {', '.join(first)}{' and ' if first else ''}{last}."


def line(finding: Check, *more: Check) -> Section:
    """more: those of the same subject that passed as well."""
    from textwrap import wrap

    from rich.text import Text

    from ..core.columns import Section
    from ..show.terminal import SCREEN, number

    word = finding.verdict.upper() if finding.verdict == "failed" else finding.verdict
    count = f"{number(finding.wrong)} of {number(finding.examined)} " if finding.wrong else ""
    said = f"{finding.name}: {count}{finding.reason}"
    if finding.verdict == "ok" and not finding.reason:
        said = sentence(finding, *more)
    first, *others = wrap(said, SCREEN - 9) or [""]
    lines = [Text.assemble((f"{word:>8}", MARKS[finding.verdict]), f" {first}")]
    return Section(lines=[*lines, *(" " * 9 + other for other in others)])
