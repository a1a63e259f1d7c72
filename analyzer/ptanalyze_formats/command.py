"""`ptanalyze import`: what other tools recorded."""

from __future__ import annotations

from pathlib import Path

import click

from ptanalyze.cli import complete, echo, next_step
from ptanalyze.cli.options import free_name, new_capture_option, strip_option

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
@click.argument(
    "source",
    metavar="[FORMAT] SOURCE",
    nargs=-1,
    required=True,
    type=click.Path(),
    shell_complete=complete.words_or_files(*FORMATS),
)
@new_capture_option("SOURCE.capture")
@click.option(
    "--ept",
    type=click.Path(),
    help="File with the VM's nested table, dumped on the host (vmitosis, gptdump). Default: none.",
)
@click.option(
    "--nodes",
    type=click.Path(),
    help="File with lines NODE FIRST LAST, in bytes of physical memory (gptdump). Default: one node.",
)
@click.option(
    "--dump",
    type=click.IntRange(1),
    metavar="N",
    help="Of a file with several dumps the Nth (vmitosis). Default: the last that is whole.",
)
@click.option(
    "--pages",
    type=click.Path(),
    help="Page tables beside a trace: a capture of the same process, DynamoRIO's v2p.textproto or DCPerf's "
    "pagemap_*.bin. Default: none, 4 KiB pages.",
)
@click.option(
    "--salvage",
    is_flag=True,
    help="Keep the part of a trace before any damage; exit code 3 if it is damaged.",
)
@strip_option
def command(
    source: tuple[str, ...],
    output: str | None,
    ept: str | None,
    nodes: str | None,
    dump: int | None,
    pages: str | None,
    salvage: bool,
    strip: str,
) -> int:
    from ptanalyze.core.errors import Strip
    from ptanalyze.formats.trace_writer import salvaging

    from .importing import import_capture

    *named, file = source
    if len(named) > 1 or not set(named) <= set(FORMATS):
        raise click.UsageError(
            f"{' '.join(source)}: write [FORMAT] SOURCE, FORMAT one of {', '.join(FORMATS)}"
        )
    output = output or free_name(Path(file).name)
    with salvaging(salvage) as damage:
        form = import_capture(
            named[0] if named else None,
            file,
            output,
            ept,
            strip=Strip[strip.upper()],
            pages=pages,
            nodes=nodes,
            dump=dump,
        )
    echo(f"{output}: imported ({form}); {next_step('info', output)}")
    for line in of_samples(output):
        echo(line)
    for line in damage:
        echo(f"ptanalyze: {line}", err=True)
    if damage:
        echo(f"ptanalyze: {output}: kept {kept(output)}", err=True)
    return 3 if damage else 0


def of_samples(output: str) -> list[str]:
    """What the periods and data sources of perf's samples said, or which dump of several was taken."""
    from ptanalyze.formats.record import read_manifest

    said = read_manifest(output).provenance
    lines = {
        "dumps": "{}; --dump N takes another",
        "period_unit": "each sample stands for {:,} events",
        "periods": "periods {}: each sample counts once",
        "missed_tlb": "{:,} samples missed the TLB; alone they are walks: grep -E 'TLB [^|]* miss' has them",
        "gone": "samples of threads that were gone (PID -1), left out: {:,}",
        "data_from": "data from: {}",
    }
    return [line.format(said[key]) for key, line in lines.items() if key in said]


def kept(output: str) -> str:
    """How much a capture's trace holds."""
    from ptanalyze.formats.capture import load

    trace = load(output).trace
    threads = len(trace.threads)
    return f"{trace.accesses:,} accesses of {threads} thread{'s' if threads != 1 else ''}"
