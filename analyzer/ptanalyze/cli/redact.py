"""`ptanalyze redact`: a capture to share outside."""

from __future__ import annotations

import click

from . import complete
from .echo import echo
from .options import free_name, new_capture_option


@click.command("redact")
@click.argument("capture", type=click.Path(), shell_complete=complete.captures)
@new_capture_option("CAPTURE.redacted.capture")
def command(capture: str, output: str | None) -> None:
    """Copy CAPTURE without identifying data; the copy gives the same results.

    Page frames become ordinals of their node; paths, command lines, PIDs and times are left out. Virtual
    addresses and, of a VM, guest-physical ones stay: results depend on them. Of several processes the first
    is copied; redact those inside (CAPTURE/pid-PID) one by one.

    \b
    Examples:
      ptanalyze redact app -o app.redacted
    """
    from ..capture.vm.redact import redact
    from ..formats.capture import open_capture

    opened = open_capture(capture)
    output = output or free_name(f"{opened.directory.name.removesuffix('.capture')}.redacted")
    redact(opened, output)
    echo(f"{output}: redacted; next: ptanalyze info {output}")
