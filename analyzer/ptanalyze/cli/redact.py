"""`ptanalyze redact`: a capture to share outside."""

from __future__ import annotations

import click

from . import complete, echo
from .options import free_name, new_capture_option


@click.command("redact")
@click.argument("capture", type=click.Path(), shell_complete=complete.captures)
@new_capture_option("CAPTURE.redacted.capture")
def command(capture: str, output: str | None) -> None:
    """Copy CAPTURE without identifying data; the copy gives the same results.

    Page frames become ordinals of their node; paths, command lines, PIDs and times, those of the files too,
    are left out. Virtual addresses and, of a VM, guest-physical ones stay: results depend on them. Of a
    process that still runs they tell a stranger its layout (ASLR) until it is started again. The kernel's
    release, the CPU's model, and counts of page faults and of changes while it was read stay as well.
    Analysing the copy adds .cache to it, which need not be shared. Of several processes the first is copied;
    redact those inside (CAPTURE/pid-PID) one by one. Trees of other nodes, of a kernel that replicates, are
    left out.

    \b
    Examples:
      ptanalyze redact app -o app.redacted
    """
    from ..capture.vm.redact import redact
    from ..formats.capture import open_capture

    opened = open_capture(capture)
    output = output or free_name(f"{opened.directory.name.removesuffix('.capture')}.redacted")
    redact(opened, output)
    echo("kept: virtual addresses, release of the kernel, model of the CPU, counts; see --help", err=True)
    echo(f"{output}: redacted; next: ptanalyze info {output}")
