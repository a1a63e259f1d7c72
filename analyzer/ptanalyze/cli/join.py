"""`ptanalyze join`: a VM's host dump and its guest's capture become one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .options import Output, captures, echo, free_name, new_capture_option, next_step, output_options

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..core.columns import Cell


@click.command("join")
@click.argument("host", type=click.Path(), shell_complete=captures)
@click.argument("guest", type=click.Path(), shell_complete=captures)
@new_capture_option("vm.capture", "directory")
@output_options(file=False)
def command(host: str, guest: str, directory: str | None, output: Output) -> None:
    """Join HOST (ptanalyze dump vm, on the host) and GUEST (dump process or record, in the guest).

    Counts the guest's tables and pages that the host does not map, and says why. Refuses a guest of another
    VM: more CPUs than the VM has, or 5% of the tables or half of the pages not mapped by the host. Warns if
    the guest booted before the VMM started, or after the host's dump. It cannot tell apart two VMs of the
    same size that ran at the same time.

    \b
    Examples:
      ptanalyze join host guest -o vm
    """
    from ..capture.vm.join import join
    from ..core.columns import Section

    directory = directory or free_name("vm")
    fit = join(host, guest, directory)
    shares = {"tables": fit.tables, "pages": fit.pages}
    rows: list[dict[str, Cell]] = [
        {
            "guest frames of": name,
            "frames": share.frames,
            "mapped by the host": share.mapped,
            "not faulted in": share.not_faulted,
            "outside every slot": share.outside,
        }
        for name, share in shares.items()
    ]

    def table() -> DataFrame:
        from pandas import DataFrame

        from ..core.columns import described

        outcomes = "mapped by the host", "not faulted in", "outside every slot"
        counts = [
            (what, outcome, count)
            for what, share in shares.items()
            for outcome, count in zip(outcomes, share[1:], strict=True)
        ]
        return described(DataFrame(counts, columns=["what", "outcome", "frames"]))

    output.emit(
        "join",
        table,
        lambda: {name: share._asdict() for name, share in shares.items()},
        lambda: [Section("host and guest", rows)],
    )
    for doubt in fit.doubts:
        echo(f"ptanalyze: warning: {doubt}", err=True)
    echo(f"{directory}: joined; {next_step('classify', directory)}", err=output.form != "table")
