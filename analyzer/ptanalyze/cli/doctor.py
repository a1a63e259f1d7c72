"""`ptanalyze doctor`: what of this host can be used, and what each missing part would give."""

from __future__ import annotations

import click


@click.command("doctor")
def command() -> None:
    """Check what this host supports: tracer, dumper, rights, counters, KVM, nodes, disk.

    What is missing comes with what it would give and how to get it. Nothing is changed; as root it reads its
    own page tables to see whether that works. Analysis alone needs none of it.

    \b
    Examples:
      ptanalyze doctor
      sudo .venv/bin/ptanalyze doctor
    """
    from rich.text import Text

    from ..analysis.answer import Section
    from ..capture.live.host import examine
    from ..show.terminal import print_view

    found = list(examine())
    for one in found:
        mark = ("  ok", "green") if one.there else ("  --", "yellow")
        lines: list[str | Text] = [Text.assemble(mark, f"  {one.what:<20} {one.found}")]
        lines.append(Text(f"{'':<8}gives {one.gives}"))
        if one.missing:
            lines.append(Text(f"{'':<8}{'more' if one.there else 'needs'}: {one.missing}"))
        print_view([Section(lines=lines)])
    there = {one.what for one in found if one.there}
    print_view([Section(lines=["", can(there)])])


def can(there: set[str]) -> str:
    """What to do with what is there, in a sentence."""
    if {"tracer", "dumper", "BPF and rights"} <= there:
        return "You can record programs with their page tables: ptanalyze record -o app -- ./app"
    if "tracer" in there:
        return "You can record traces without page tables: ptanalyze record --no-dump -o app -- ./app"
    return "You can analyse captures and the bundled samples: ptanalyze whatif -p hydra"
