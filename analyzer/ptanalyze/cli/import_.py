"""`ptanalyze import`: what other tools recorded."""

from __future__ import annotations

import click

from .echo import echo

FORMATS = ("lackey", "perf-script", "vmitosis", "ptdump")


@click.command("import")
@click.argument("form", metavar="FORMAT", type=click.Choice(FORMATS))
@click.argument("source", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="Capture directory to make.")
@click.option(
    "--ept",
    type=click.Path(),
    help="File with the VM's nested table, dumped on the host (vmitosis). Default: none.",
)
def command(form: str, source: str, output: str, ept: str | None) -> None:
    """Make a capture from SOURCE.

    \b
    lackey       valgrind --tool=lackey --trace-mem=yes (no page tables)
    perf-script  perf script -F tid,cpu,time,event,addr (samples of accesses)
    vmitosis     text dump of page tables by Mitosis and vMitosis kernels
    ptdump       directory that the ptdump tool alone wrote, e.g. in a guest
    """
    from ..capture.import_ import import_capture

    import_capture(form, source, output, ept)
    echo(f"{output}: imported; next: ptanalyze info {output}")
