"""`ptanalyze doctor`: what of this host can be used, and what each missing part would give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from ..core.errors import this_program
from .output import Output, emit

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..capture.live.host import Symptom
    from ..core.columns import Section


@click.command("doctor")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, for a fleet: what, there, found, gives, missing."
)
def command(as_json: bool) -> None:
    """Check what this host supports: tracer, dumper, rights, counters, KVM, nodes, disk.

    For anything missing, it prints what that would enable and how to get it. It changes nothing; as root it
    reads its own page tables as a test. Analysis alone needs none of this.

    \b
    Examples:
      ptanalyze doctor
      sudo .venv/bin/ptanalyze doctor --json
    """
    from ..capture.live.host import examine
    from ..core.columns import Answer

    found = list(examine())

    def table() -> DataFrame:
        from pandas import DataFrame

        return DataFrame(found)

    form = "json" if as_json else "table"
    emit(
        Answer("doctor", table, lambda: [one._asdict() for one in found], lambda: view(found), {}),
        Output(form, None, None, None),
    )


def view(found: Sequence[Symptom]) -> Iterator[Section]:
    from rich.text import Text

    from ..core.columns import Section

    for one in found:
        mark = ("  ok", "green") if one.there else ("  --", "yellow")
        lines: list[str | Text] = [Text.assemble(mark, f"  {one.what:<20} {one.found}")]
        lines.append(Text(f"{'':<8}gives {one.gives}"))
        if one.missing:
            lines.append(Text(f"{'':<8}{'more' if one.there else 'needs'}: {one.missing}"))
        yield Section(lines=lines)
    there = {one.what for one in found if one.there}
    yield Section(lines=["", can(there)])


def can(there: set[str]) -> str:
    """What to do with what is there, in a sentence."""
    if {"tracer", "dumper", "BPF and rights"} <= there:
        return f"You can record programs with page tables: sudo {this_program()} record -o app -- ./app"
    if "tracer" in there:
        return "You can record traces without page tables: ptanalyze record --no-dump -o app -- ./app"
    return "You can analyse captures and the bundled samples: ptanalyze whatif -p hydra"
