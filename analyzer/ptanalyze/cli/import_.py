"""`ptanalyze import`: what other tools recorded."""

from __future__ import annotations

import click

FORMATS = ("lackey", "perf-script", "vmitosis", "ptdump")


@click.command("import")
@click.argument("form", metavar="FORMAT", type=click.Choice(FORMATS))
@click.argument("source", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="Capture directory to make.")
@click.option("--ept", type=click.Path(), help="The VM's nested table, dumped on the host (vmitosis).")
def command(form: str, source: str, output: str, ept: str | None) -> None:
    """Make a capture from SOURCE.

    \b
    lackey       valgrind --tool=lackey --trace-mem=yes (a trace without page tables)
    perf-script  perf script -F tid,cpu,time,event,addr (samples: a fraction of all accesses)
    vmitosis     text dump of page tables by the Mitosis and vMitosis kernels
    ptdump       directory written by this project's ptdump tool alone, e.g. in a guest
    """
    from ..capture.import_ import import_capture

    import_capture(form, source, output, ept)
    click.echo(f"{output}: imported; next: ptanalyze info {output}")
