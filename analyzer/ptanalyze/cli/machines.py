"""`ptanalyze machines`: what walks can be replayed on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from .options import Output, echo, machines, must_end_with, output_options

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..core.columns import Cell, Section
    from ..core.machine import Array, Cache, Machine

HOSTS = "ptanalyze.hosts"  # entry point: write_machine_file of ptanalyze_host
NOT_THERE = "none"
PAGES = {"4k": "4 KiB", "2m": "2 MiB", "1g": "1 GiB"}


@click.command("machines")
@click.argument("name", required=False, shell_complete=machines)
@click.option(
    "--from-host",
    "host_file",
    type=click.Path(),
    callback=must_end_with("toml"),
    metavar="FILE.toml",
    help="Write a machine file of this host, from sysfs, and show it; latencies are HMAT's, else the "
    "firmware's distances, if not measured. Default: none.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="With --from-host: measure latencies between nodes, idle and loaded, and page walks over near and "
    "far tables, in about a minute. Default: not measured.",
)
@output_options()
def command(name: str | None, host_file: str | None, measure: bool, output: Output) -> None:
    """List the machine models, or show one, NAME or a TOML file, with the source of every number.

    \b
    Examples:
      ptanalyze machines
      ptanalyze machines sapphire-rapids
      ptanalyze machines --from-host mine.toml --measure
    """
    from importlib.metadata import entry_points
    from pathlib import Path

    from ..core.machine import load_machine

    if measure and not host_file:
        raise click.UsageError("--measure goes with --from-host FILE.toml")
    if host_file:
        if name:
            raise click.UsageError("give either a NAME or --from-host FILE.toml")
        (writer,) = entry_points(group=HOSTS)
        for line in writer.load()(host_file, measure):
            echo(f"ptanalyze: {line}", err=True)
        name = str(Path(host_file).resolve())
    if name is None:
        every(output)
    else:
        single(load_machine(name), output)


def every(output: Output) -> None:
    import msgspec

    from ..core.columns import Section
    from ..core.machine import load_machine, machine_names

    def table() -> DataFrame:
        from ..analysis.catalogue import list_machines

        return list_machines()

    machines = [load_machine(known) for known in machine_names()]
    columns = ("machine", "nodes", "CPUs per node", "what it is")
    rows = [(m.name, m.nodes, m.cpus_per_node, m.description) for m in machines]
    output.emit(
        "machines",
        table,
        lambda: [msgspec.to_builtins(machine) for machine in machines],
        lambda: [Section("Machines", [dict(zip(columns, row, strict=True)) for row in rows])],
    )


def single(machine: Machine, output: Output) -> None:
    import msgspec

    def table() -> DataFrame:
        from ..analysis.frames import latency_frame

        matrices = {"idle": machine.latency.idle, "contended": machine.latency.contended}
        return latency_frame(matrices, range(machine.nodes))

    output.emit("machine", table, lambda: msgspec.to_builtins(machine), lambda: view(machine))


def view(machine: Machine) -> Iterator[Section]:
    from ..core.columns import Section
    from ..show.terminal import matrices

    for title, rows in facts(machine).items():
        yield Section(title, rows)
    latencies = {"idle": machine.latency.idle, "contended": machine.latency.contended}
    yield from matrices("ns per read from DRAM", range(machine.nodes), latencies)
    if machine.latency.walk is not None:
        yield from matrices(
            "a page walk over tables there", range(machine.nodes), {"ns": machine.latency.walk}
        )
    yield Section("sources", machine.sources)


def facts(machine: Machine) -> dict[str, Mapping[str, Cell]]:
    """What a machine file says, except latencies and sources."""
    tlb, walk = machine.tlb, machine.walk_caches
    return {
        machine.name: {
            "what it is": machine.description,
            "NUMA nodes": machine.nodes,
            **({"without CPUs": ", ".join(map(str, machine.memory_nodes))} if machine.memory_nodes else {}),
            **(
                {"the host's": "; ".join("+".join(map(str, n)) for n in machine.host_nodes)}
                if machine.host_nodes
                else {}
            ),
            "CPUs per node": machine.cpus_per_node,
            "GHz": machine.ghz,
            "costs": machine.costs,
        },
        "TLB of a CPU": {
            "L1, 4 KiB pages": array(tlb.l1_4k),
            "L1, 2 MiB pages": array(tlb.l1_2m),
            "L1, 1 GiB pages": array(tlb.l1_1g),
            f"L2, {' and '.join(PAGES.get(size, size) for size in tlb.l2_holds)} pages": array(tlb.l2),
            "L2, 1 GiB pages": array(tlb.l2_1g),
            **({"4 KiB pages that may share an entry": tlb.joins} if tlb.joins > 1 else {}),
        },
        "page-walk caches of a CPU": {
            "PDE": array(walk.pde),
            "PDPTE": array(walk.pdpte),
            "PML4E": array(walk.pml4e),
            "PML5E": array(walk.pml5e),
            "nested TLB": array(walk.nested),
            **({"cycles of a walk beside its reads": walk.cycles} if walk.cycles else {}),
        },
        "caches that walks read through": {
            **({"L1D of a CPU": cache(machine.l1d)} if machine.l1d else {}),
            "L2 of a CPU": cache(machine.l2),
            "LLC of a node": cache(machine.llc),
        },
    }


def array(of: Array | None) -> str:
    return NOT_THERE if of is None else f"{of.entries:,} entries, {of.ways} ways"


def cache(of: Cache) -> str:
    size = f"{of.bytes / (1 << 20):g} MiB" if of.bytes >= 1 << 20 else f"{of.bytes / 1024:g} KiB"
    return f"{size}, {of.ways} ways, {of.cycles:g} cycles, {100 * of.share:g} % of it left to page tables"
