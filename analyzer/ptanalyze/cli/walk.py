"""`ptanalyze walk`: one translation, read by read."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import click

from ..core.errors import UsageError
from .options import Output, captures, open_or_default, output_options

if TYPE_CHECKING:
    from ..analysis.walk import Step, Translation
    from ..core.columns import Cell, Section


def parse(
    context: click.Context, parameter: click.Parameter, words: tuple[str, ...]
) -> tuple[str | None, int]:
    """(capture or None, address) of "CAPTURE ADDRESS" or "ADDRESS"; addresses are hexadecimal."""
    if not 1 <= len(words) <= 2:
        raise click.BadParameter("write CAPTURE ADDRESS, or ADDRESS alone for the newest capture here")
    *capture, text = words
    try:
        return (capture[0] if capture else None), int(text, 16)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not an address; write it as 0x7f00deadb000") from None


@click.command("walk")
@click.argument("where", nargs=-1, metavar="[CAPTURE] ADDRESS", callback=parse, shell_complete=captures)
@output_options("walk")
def command(where: tuple[str | None, int], output: Output) -> int:
    """Explain how ADDRESS is translated in CAPTURE: every table read, its node, and the nodes it is local to.

    ADDRESS is hexadecimal, with or without 0x, as perf and /proc/PID/maps print it. Without CAPTURE: the
    capture of this directory, or the newest in it. Exit code 1 when the address is not mapped.

    \b
    Examples:
      ptanalyze walk vm-numa-visible 0x4000000000
      ptanalyze walk app.capture 7f3a4d20b000
    """
    from ..analysis.walk import explain, walk

    capture, address = where
    opened = open_or_default(capture)
    nodes = [node.id for node in opened.snapshot.topology.nodes]
    if not nodes:
        why = "the capture names no NUMA node; dump it again with this release"
        raise UsageError(f"{opened.directory}: {why}")
    translation, table = explain(opened.snapshot, address), partial(walk, opened, address)
    output.emit(
        "walk", table, lambda: asdict(translation), lambda: [view(translation, nodes)], {"walk": table}
    )
    return int(translation.page_frame is None)


def view(translation: Translation, nodes: list[int]) -> Section:
    from ..core.columns import Section

    if translation.page_frame is None or translation.page_bytes is None:
        end = f"not mapped: {translation.stopped}"
    else:
        page = f"{translation.page_bytes >> 10} KiB page"
        end = f"page frame {translation.page_frame:#x} on node {translation.page_node}, {page}"
    rows = [step_row(number, step, nodes) for number, step in enumerate(translation.steps, 1)]
    return Section(f"{len(rows)} reads for {translation.address:#x}", rows, [end])


def step_row(number: int, step: Step, nodes: list[int]) -> dict[str, Cell]:
    local = ", ".join(f"{n}: {'local' if n == step.node else 'remote'}" for n in nodes)
    return {
        "#": number,
        "table": f"{step.dimension} level {step.level}",
        "at frame": f"{step.table:#x}" if step.table >= 0 else "unknown",
        "node": str(step.node) if step.node >= 0 else "unknown",
        "entry": str(step.slot),
        "value": f"{step.entry:#018x}",
        "means": "not present" if not step.present else f"{'page' if step.leaf else 'table'} {step.frame:#x}",
        "for a CPU on node": local if step.node >= 0 else "unknown",
    }
