"""`ptanalyze walk`: one translation, read by read."""

import click

from ..errors import UsageError
from .options import json_option


def parse_address(context, parameter, text):
    try:
        return int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no address; write it as 0x7f00deadb000") from None


@click.command("walk")
@click.argument("capture", type=click.Path())
@click.argument("address", callback=parse_address)
@json_option
def command(capture, address, as_json):
    """Explain how ADDRESS is translated in CAPTURE: every table read, where it is, local for whom.

    Exit code 1 when the address is not mapped.
    """
    from dataclasses import asdict

    from ..capture import open_capture
    from ..tables import console, print_json, print_rows
    from ..walk import explain

    snapshot = open_capture(capture).snapshot
    if not snapshot.topology.nodes:
        raise UsageError(f"{capture}: the capture names no NUMA node; dump it again with this release")
    path = explain(snapshot, address)
    if as_json:
        print_json("walk", asdict(path))
        return int(path.page_frame is None)
    nodes = [node.id for node in snapshot.topology.nodes]
    rows = [step_row(number, step, nodes) for number, step in enumerate(path.steps, 1)]
    print_rows(f"{len(rows)} reads for {address:#x}", rows)
    if path.page_frame is None:
        console().print(f"not mapped: {path.stopped}")
        return 1
    console().print(
        f"page frame {path.page_frame:#x} on node {path.page_node}, {path.page_bytes >> 10} KiB page"
    )
    return 0


def step_row(number, step, nodes):
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
