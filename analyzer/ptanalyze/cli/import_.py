"""`ptanalyze import`: what other tools recorded."""

from __future__ import annotations

import click

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
@click.option(
    "--strip",
    type=click.Choice(["on", "off"]),
    default="on",
    show_default=True,
    help="Leave out touches that surely hit in the first-level TLB and change nothing there (lackey).",
)
def command(form: str, source: str, output: str, ept: str | None, strip: str) -> None:
    """Make a capture from SOURCE.

    \b
    lackey       valgrind --tool=lackey --trace-mem=yes (no page tables)
    perf-script  perf script -F tid,cpu,time,event,addr (samples of accesses)
    vmitosis     text dump of page tables by Mitosis and vMitosis kernels
    ptdump       directory that the ptdump tool alone wrote, e.g. in a guest
    """
    from ..capture.import_ import import_capture

    import_capture(form, source, output, ept, strip=strip == "on")
    click.echo(f"{output}: imported; next: ptanalyze info {output}")
