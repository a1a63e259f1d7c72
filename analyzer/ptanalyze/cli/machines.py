"""`ptanalyze machines`: what walks can be replayed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .options import Output, echo, machines, must_end_with, output_options

if TYPE_CHECKING:
    from pandas import DataFrame


@click.command("machines")
@click.argument("name", required=False, shell_complete=machines)
@click.option(
    "--from-host",
    "host_file",
    type=click.Path(),
    callback=must_end_with("toml"),
    metavar="FILE.toml",
    help="Write a machine file of this host, from sysfs; latencies are HMAT's, else the firmware's "
    "distances, if not measured. Default: none.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="With --from-host: measure latencies between nodes, idle and loaded, and page walks over near and "
    "far tables, in half a minute. Default: not measured.",
)
@output_options()
def command(name: str | None, host_file: str | None, measure: bool, output: Output) -> None:
    """List the machine models, or show the file of one, NAME or a TOML file, with the source of every number.

    \b
    Examples:
      ptanalyze machines
      ptanalyze machines sapphire-rapids
      ptanalyze machines --from-host mine.toml --measure
    """
    from importlib.metadata import entry_points

    if measure and not host_file:
        raise click.UsageError("--measure goes with --from-host FILE.toml")
    if host_file:
        if name:
            raise click.UsageError("give either a NAME or --from-host FILE.toml")
        from ..analysis.setup import HOSTS

        (writer,) = entry_points(group=HOSTS, name="host")
        for line in writer.load()(host_file, measure):
            echo(line)
    elif name is None:
        every(output)
    else:
        single(name, output)


def every(output: Output) -> None:
    import msgspec

    from ..analysis.catalogue import list_machines
    from ..core.columns import Section
    from ..core.machine import load_machine, machine_names

    machines = [load_machine(known) for known in machine_names()]
    columns = ("machine", "nodes", "CPUs per node", "what it is")
    rows = [(m.name, m.nodes, m.cpus_per_node, m.description) for m in machines]
    output.emit(
        "machines",
        list_machines,
        lambda: [msgspec.to_builtins(machine) for machine in machines],
        lambda: [Section("Machines", [dict(zip(columns, row, strict=True)) for row in rows])],
    )


def single(name: str, output: Output) -> None:
    """A machine file as it is, its sources below its numbers."""
    import msgspec

    from ..core.columns import Section
    from ..core.machine import load_machine, model_file
    from ..core.safe_files import read_given

    machine = load_machine(name)

    def table() -> DataFrame:
        raise click.UsageError(f"machine {name} is not a table: --json, or the file as it is printed")

    def view() -> list[Section]:
        return [Section(lines=read_given(model_file("machines", name)).decode().splitlines())]

    output.emit("machine", table, lambda: msgspec.to_builtins(machine), view)
