"""`ptanalyze dump`: page tables of something that is running."""

from __future__ import annotations

import re

import click

import ptanalyze as pt

from .dump import dump_capture, dump_tree


def address(text: str) -> int:
    """A hexadecimal number below 2**64, with or without 0x."""
    if not re.fullmatch(r"(0x)?[0-9a-fA-F]{1,16}", text):
        raise click.BadParameter(f"{text!r} is not an address; write it as 0x7f00deadb000")
    return int(text, 16)


max_stop_option = click.option(
    "--max-stop",
    type=click.IntRange(1, 1 << 30),
    metavar="MS",
    default=None,
    help="Resume the process after this many milliseconds even if the dump is incomplete. Default: no limit.",
)


class OfWhat(click.Group):
    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if (word := arguments[0]) not in self.commands and not word.startswith("-"):
            context.fail(f"dump {word}: write dump process {word}, or dump vm {word}")
        return super().resolve_command(context, arguments)


@click.group("dump", cls=OfWhat)
def command() -> None:
    """Dump the page tables of a live process or VM."""


@command.command("process", short_help="Dump the page tables of a live process.")
@click.argument("pid", type=pt.options.pid)
@pt.options.new_capture_option("PID.capture")
@click.option(
    "--tree",
    is_flag=True,
    help="Dump all its descendants too, one after the other, each into OUTPUT/pid-PID.",
)
@click.option("--stop", is_flag=True, help="Stop the process while it is read; it is always continued.")
@max_stop_option
@click.option("--verify", is_flag=True, help="Compare every page with /proc/PID/pagemap.")
@click.option(
    "--bpf/--no-bpf",
    default=None,
    help="Require eBPF, or use /proc/PID/pagemap alone. Default: eBPF where possible.",
)
def dump_process(
    pid: int, output: str | None, tree: bool, stop: bool, max_stop: int | None, verify: bool, bpf: bool | None
) -> None:
    """Dump the page tables of process PID with frame and NUMA node of every table page.

    Needs CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_SYS_ADMIN (root). Without eBPF only the mapped pages
    are known, not where the table pages are; the capture says so and the exit code is 3.

    \b
    Examples:
      sudo ptanalyze dump process redis-server -o app
      sudo ptanalyze dump process --tree --stop 1234 -o postgres
    """
    output = output or pt.options.free_name(str(pid))
    options = {"stop": stop, "verify": verify, "bpf": bpf, "max_stop": max_stop}
    with pt.formats.new_capture(output) as inside:
        dumped, unknown = (dump_tree if tree else dump_capture)(pid, inside, **options)
    for line in dumped.lines:
        pt.options.echo(line, err=True)
    if dumped.failed:
        raise dumped.failed
    if unknown:
        raise pt.errors.PartialDataError(f"{output}: not known: {', '.join(unknown)}")
    pt.options.echo(f"{output}: dumped; {pt.options.next_step('check', output)}")


@command.command("vm", short_help="Dump the nested page tables of a VM.")
@click.argument("pid", type=pt.options.pid)
@pt.options.new_capture_option("PID.capture")
@click.option("--stop", is_flag=True, help="Stop the VMM while it is read; it is always continued.")
@max_stop_option
@click.option(
    "--vm",
    "descriptor",
    type=click.IntRange(0),
    default=None,
    help="File descriptor of the VM. Default: the only VM.",
)
@click.option("--guest-tables", is_flag=True, help="Also read the guest's own tables.")
@click.option(
    "--cr3",
    type=address,
    multiple=True,
    metavar="ADDRESS",
    help="With --guest-tables: the physical address of a root table; repeatable. Default: those in use.",
)
def dump_vm(
    pid: int,
    output: str | None,
    stop: bool,
    max_stop: int | None,
    descriptor: int | None,
    guest_tables: bool,
    cr3: tuple[int, ...],
) -> None:
    """Dump the nested page tables (EPT, NPT) of the VM of process PID: QEMU or any other VMM that uses KVM.

    Run on the host; the guest notices nothing. Needs CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_SYS_ADMIN
    (root). Join the result with a dump made inside the guest: ptanalyze join HOST GUEST -o VM. Without access
    to the guest, --guest-tables reads the tables its vCPUs are using into OUTPUT/cr3-FRAME; with --cr3, those
    of any process. A host without nested paging has shadow tables in their place: the exit code is 3.

    \b
    Examples:
      sudo ptanalyze dump vm 1234 -o host
      sudo ptanalyze dump vm 1234 --guest-tables -o host
    """
    from .guests import dump_vm as dump

    if not guest_tables and cr3:
        raise click.UsageError("--cr3 goes with --guest-tables")
    output = output or pt.options.free_name(str(pid))
    for line in dump(pid, output, stop=stop, max_stop=max_stop, vm=descriptor, guest=guest_tables, cr3=cr3):
        pt.options.echo(line, err=True)
    if not any(root.kind != "shadow" and root.table is not None for root in pt.formats.read_vm(output).roots):
        why = "without EPT or NPT KVM has shadow tables, which map guest-virtual addresses"
        raise pt.errors.PartialDataError(f"{output}: not known: nested page tables; {why}")
    pt.options.echo(f"{output}: dumped; {pt.options.next_step('check', output)}")
