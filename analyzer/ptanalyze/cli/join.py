"""`ptanalyze join`: a VM's host dump and its guest's capture become one."""

import click

from .options import echo, free_name, new_capture_option, next_step
from .replay_options import machine_needed


@click.command("join")
@click.argument("host", type=click.Path(readable=False))
@click.argument("guest", type=click.Path(readable=False))
@new_capture_option("vm.capture", "directory")
def command(host: str, guest: str, directory: str | None) -> None:
    """Join HOST (ptanalyze dump vm, on the host) and GUEST (dump process or record, in the guest).

    Counts the guest's tables and pages that the host does not map; `check` says why. Refuses a guest of
    another VM: more CPUs than the VM has, or 5% of the tables or half of the pages not mapped by the host.
    Warns if the guest booted before the VMM started, or after the host's dump. It cannot tell apart two VMs
    of the same size that ran at the same time.

    \b
    Examples:
      ptanalyze join host guest -o vm
    """
    from ..capture.vm.join import join
    from ..formats.capture import open_capture

    directory = directory or free_name("vm")
    fit = join(host, guest, directory)
    for doubt in fit.doubts:
        echo(f"ptanalyze: warning: {doubt}", err=True)
    counts = (("guest tables", fit.tables), ("pages", fit.pages))
    mapped = " and ".join(f"{share.mapped:,} of {share.frames:,} {what}" for what, share in counts)
    step = next_step("classify", directory, *machine_needed(open_capture(directory)))
    echo(f"{directory}: joined, the host maps {mapped}; {step}")
