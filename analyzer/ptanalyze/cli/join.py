"""`ptanalyze join`: a VM's host dump and its guest's capture become one."""

from __future__ import annotations

import click

from .plotting import plot_option, write_plot


@click.command("join")
@click.argument("host", type=click.Path())
@click.argument("guest", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="Capture directory to make.")
@plot_option()
def command(host: str, guest: str, output: str, plot: str | None) -> None:
    """Join HOST (ptanalyze dump vm, on the host) and GUEST (dump process or record, in the guest).

    Says how many of the guest's tables and pages the host does not map, and why. Refuses another VM's guest:
    one with more CPUs than the VM, or of which the host does not map 5% of the tables or half of the pages.
    """
    from ..capture.vm.join import join
    from ..show.terminal import print_rows

    fit = join(host, guest, output)
    rows: list[dict[str, str | float | None]] = [
        {
            "guest frames of": name,
            "frames": share.frames,
            "mapped by the host": share.mapped,
            "not faulted in": share.not_faulted,
            "outside every slot": share.outside,
        }
        for name, share in (("tables", fit.tables), ("pages", fit.pages))
    ]
    print_rows("host and guest", rows)
    if plot:
        from ..analysis import answers as frames
        from ..show import plots

        write_plot(plot, plots.fit(frames.fit_frame(fit)))
    click.echo(f"{output}: joined; next: ptanalyze classify {output}")
