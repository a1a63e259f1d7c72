"""`ptanalyze doctor`: what of this host can be used, and what each missing part would give."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from ..core.errors import UsageError, meant, program, this_program
from ..core.version import __version__
from . import echo

if TYPE_CHECKING:
    from ..capture.live.host import Capability
    from ..core.columns import Section


@click.command("doctor")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON, for a fleet: host, kernel, version, and for each part id, what, there, found, gives, "
    "missing, hint.",
)
@click.option(
    "--require",
    "required",
    metavar="ID,...",
    help="Exit with 1 unless all of these can be used: trace, dump, survey, heat, relocate, btf, rights, "
    "counters, kvm, vms, numactl, nodes, thp, disk. Default: none.",
)
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False),
    help="Directory with a copy of another host's /sys and /proc: BTF, counters, nodes, huge pages are its. "
    "Default: this host.",
)
def command(as_json: bool, required: str | None, root: str | None) -> int:
    """Check what this host supports: tracer, dumper, rights, counters, KVM, nodes, disk.

    For anything missing, it prints what that would enable and how to get it. What needs root is missing
    without root. It changes nothing; as root it reads its own page tables as a test. Analysis alone needs
    none of this. The manual's page on permissions lists the rights that each command needs.

    \b
    Examples:
      ptanalyze doctor
      sudo ptanalyze doctor --json
      sudo ptanalyze doctor --require trace,dump,rights
    """
    from pathlib import Path

    from ..capture.live.host import examine
    from ..show.terminal import print_json, print_view

    parts = {one.id: one for one in examine(root=Path(root or "/"))}
    asked = [name.strip() for name in required.split(",")] if required is not None else []
    for name in asked:
        if name not in parts:
            known = [*parts]
            raise UsageError(f"--require {name}: no such part; {meant(name, known)}known: {', '.join(known)}")
    if as_json:
        host = os.uname()
        about = {"host": host.nodename, "kernel": host.release, "version": __version__}
        print_json("doctor", [one._asdict() for one in parts.values()], {}, **about)
    else:
        print_view(view([*parts.values()]))
    lacking = [parts[name] for name in dict.fromkeys(asked) if not parts[name].there]
    for one in lacking:
        echo(f"ptanalyze: --require {one.id}: missing ({one.found}); {one.missing}", err=True)
    return 1 if lacking else 0


def view(found: Sequence[Capability]) -> Iterator[Section]:
    from textwrap import wrap

    from rich.text import Text

    from ..core.columns import Section
    from ..show.terminal import SCREEN

    for one in found:
        mark = ("  ok", "green") if one.there else ("  --", "yellow")
        first, *rest = wrap(one.found, SCREEN - 27, break_long_words=False, break_on_hyphens=False)
        lines: list[str | Text] = [Text.assemble(mark, f"  {one.what:<20} {first}")]
        lines += [Text(f"{'':<27}{line}") for line in rest]
        lines.append(Text(f"{'':<8}gives {one.gives}"))
        if one.missing or one.hint:
            lines.append(Text(f"{'':<8}{'needs' if one.missing else 'more'}: {one.missing or one.hint}"))
        yield Section(lines=lines)
    yield Section(lines=["", *can({one.id: one for one in found})])


def can(parts: dict[str, Capability]) -> list[str]:
    """What to do with what is there, in a sentence, and the line to type."""
    if all(parts[name].there for name in ("trace", "dump", "rights")):
        return [
            "You can record programs with page tables:",
            f"  sudo {this_program()} record -o app -- ./app",
        ]
    if parts["trace"].there and parts["dump"].missing == "sudo":
        return [
            "As root you can record programs with page tables:",
            f"  sudo {this_program()} record -o app -- ./app",
        ]
    if parts["trace"].there:
        return [
            "You can record traces without page tables:",
            f"  {program()} record --no-dump -o app -- ./app",
        ]
    return ["You can analyse captures and the bundled samples:", f"  {program()} whatif -p hydra"]
