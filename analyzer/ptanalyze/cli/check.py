"""`ptanalyze check`: is a capture usable?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .options import capture_argument, json_option, open_or_default
from .plotting import plot_option, write_plot

if TYPE_CHECKING:
    from rich.text import Text

MARKS = {"ok": "green", "note": "cyan", "partial": "yellow", "failed": "red"}


@click.command("check")
@capture_argument
@click.option("--live", type=click.IntRange(1), metavar="PID", help="Compare with the running VMM PID too.")
@plot_option()
@json_option
def command(capture: str | None, live: int | None, plot: str | None, as_json: bool) -> int:
    """Prove CAPTURE usable: files as sealed, tree closed, frames inside nodes, trace covered.

    With --live, every page that a VM's nested tables map is held against /proc/PID/pagemap of its VMM (root).

    Exit code 0 all well, 1 a check failed, 3 usable but partial.
    """
    from dataclasses import asdict
    from itertools import chain

    from ..capture.check import check_capture, exit_code
    from ..capture.live.check_live import check_live
    from ..show.terminal import console, number, print_json

    findings = []
    out = console()
    opened = open_or_default(capture)
    for finding in chain(check_capture(opened), check_live(opened.vm, live) if live else ()):
        findings.append(finding)
        if not as_json:
            count = f"{number(finding.wrong)} of {number(finding.examined)} " if finding.wrong else ""
            out.print(mark(finding.verdict), f"{finding.name:<26} {count}{finding.reason}")
    if as_json:
        print_json("check", [asdict(finding) for finding in findings])
    if plot:
        from ..analysis import answers as frames
        from ..show import plots

        table = frames.findings_frame(findings)
        table.attrs["provenance"] = {"capture": str(opened.directory)}
        write_plot(plot, plots.checks(table))
    return exit_code(findings)


def mark(verdict: str) -> Text:
    from rich.text import Text

    word = verdict.upper() if verdict == "failed" else verdict
    return Text(f"{word:>8}", MARKS[verdict])
