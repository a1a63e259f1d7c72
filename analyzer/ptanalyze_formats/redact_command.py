"""`ptanalyze redact`: a capture to share outside."""

from __future__ import annotations

import click

import ptanalyze as pt


@click.command("redact")
@click.argument("capture", type=click.Path(readable=False), shell_complete=pt.options.captures)
@pt.options.new_capture_option("CAPTURE.redacted.capture")
def command(capture: str, output: str | None) -> None:
    """Copy CAPTURE without identifying data; the copy gives the same results.

    Page frames become ordinals of their node; paths, command lines, PIDs and times, including those of the
    files, are left out. Virtual addresses and, of a VM, guest-physical ones stay: results depend on them. For
    a process that is still running, they reveal its address-space layout (ASLR) until it restarts. The kernel
    release, the CPU model, and the counts of page faults and of changes during the dump stay, too.
    In a capture of several processes only the first is copied; redact the others (CAPTURE/pid-PID) one by
    one. The other nodes' trees of a replicating kernel are left out.

    \b
    Examples:
      ptanalyze redact app.capture -o app.redacted
    """
    from .redact import redact

    opened = pt.open_capture(capture)
    output = output or pt.options.free_name(f"{opened.directory.name.removesuffix('.capture')}.redacted")
    redact(opened, output)
    pt.options.echo(
        "kept: virtual addresses, release of the kernel, model of the CPU, counts; see --help", err=True
    )
    pt.options.echo(f"{output}: redacted; {pt.options.next_step('info', output)}")
