"""`ptanalyze import`: what other tools recorded."""

from __future__ import annotations

from pathlib import Path

import click

import ptanalyze as pt

from . import FORMATS

LISTED = "\n".join(f"    {row.name:<13}{row.what}" for row in FORMATS.values())


@click.command(
    "import",
    help=f"""Make a capture from SOURCE. Without FORMAT it is recognised.

    \b
{LISTED}

    \b
    Examples:
      ptanalyze import lackey.txt -o app
      ptanalyze import samples.txt -o sampled
    """,
)
@click.argument("source", metavar="[FORMAT] SOURCE", nargs=-1, required=True, type=click.Path())
@pt.options.new_capture_option("SOURCE.capture")
@click.option(
    "--ept",
    type=click.Path(),
    help="File with the VM's nested table, dumped on the host (vmitosis). Default: none.",
)
@click.option(
    "--pages",
    type=click.Path(),
    help="Page tables beside a trace: a capture of the same process. Default: none, 4 KiB pages.",
)
def command(source: tuple[str, ...], output: str | None, ept: str | None, pages: str | None) -> None:
    from .importing import import_capture

    *named, file = source
    if len(named) > 1 or not set(named) <= set(FORMATS):
        raise click.UsageError(
            f"{' '.join(source)}: write [FORMAT] SOURCE, FORMAT one of {', '.join(FORMATS)}"
        )
    output = output or pt.options.free_name(Path(file).name)
    form = import_capture(named[0] if named else None, file, output, ept, pages=pages)
    pt.options.echo(f"{output}: imported ({form}); {pt.options.next_step('info', output)}")
    for line in of_samples(output):
        pt.options.echo(line)


def of_samples(output: str) -> list[str]:
    """Lines on the periods and data sources of perf's samples."""
    provenance = pt.formats.read_manifest(output).provenance
    lines = {
        "period_unit": "each sample stands for {:,} events",
        "periods": "periods {}: each sample counts once",
        "missed_tlb": "{:,} samples missed the TLB; alone they are walks: grep -E 'TLB [^|]* miss' has them",
        "gone": "samples of threads that were gone (PID -1), left out: {:,}",
        "data_from": "data from: {}",
    }
    return [line.format(provenance[key]) for key, line in lines.items() if key in provenance]
