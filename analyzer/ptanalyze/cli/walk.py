"""`ptanalyze walk`: one translation, read by read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..core.errors import UsageError
from .options import json_option
from .plotting import plot_option, write_plot

if TYPE_CHECKING:
    from ..analysis.walk import Step, Translation


def parse_address(context: click.Context, parameter: click.Parameter, text: str) -> int:
    try:
        return int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no address; write it as 0x7f00deadb000") from None


@click.command("walk")
@click.argument("capture", type=click.Path())
@click.argument("address", callback=parse_address)
@plot_option()
@json_option
def command(capture: str, address: int, plot: str | None, as_json: bool) -> int:
    """Explain how ADDRESS is translated in CAPTURE: every table read, where it is, local for whom.

    Exit code 1 when the address is not mapped.
    """
    from dataclasses import asdict

    from ..analysis.walk import explain
    from ..formats.capture import load
    from ..show.terminal import print_json

    opened = load(capture)
    nodes = [node.id for node in opened.snapshot.topology.nodes]
    if not nodes:
        raise UsageError(f"{capture}: the capture names no NUMA node; dump it again with this release")
    translation = explain(opened.snapshot, address)
    if as_json:
        print_json("walk", asdict(translation))
    else:
        show(translation, nodes)
    if plot:
        from ..analysis import answers as frames
        from ..show import plots

        table = frames.walk_frame(translation, nodes)
        table.attrs["provenance"] = {"capture": str(opened.directory)}
        write_plot(plot, plots.walk(table))
    return int(translation.page_frame is None)


def show(translation: Translation, nodes: list[int]) -> None:
    from ..show.terminal import console, print_rows

    rows = [step_row(number, step, nodes) for number, step in enumerate(translation.steps, 1)]
    print_rows(f"{len(rows)} reads for {translation.address:#x}", rows)
    if translation.page_frame is None or translation.page_bytes is None:
        console().print(f"not mapped: {translation.stopped}")
        return
    console().print(
        f"page frame {translation.page_frame:#x} on node {translation.page_node}, "
        f"{translation.page_bytes >> 10} KiB page"
    )


def step_row(number: int, step: Step, nodes: list[int]) -> dict[str, str | float | None]:
    local = (
        "unknown"
        if step.node < 0
        else ", ".join(f"{n}: {'local' if n == step.node else 'remote'}" for n in nodes)
    )
    return {
        "#": number,
        "table": f"{step.dimension} level {step.level}",
        "at frame": f"{step.table:#x}" if step.table >= 0 else "unknown",
        "node": str(step.node) if step.node >= 0 else "unknown",
        "entry": str(step.slot),
        "value": f"{step.entry:#018x}",
        "means": "not present" if not step.present else f"{'page' if step.leaf else 'table'} {step.frame:#x}",
        "for a CPU on node": local,
    }
