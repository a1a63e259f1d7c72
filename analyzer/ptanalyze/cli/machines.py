"""`ptanalyze machines`: what walks can be replayed on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from .options import complete_machines, json_option
from .plotting import plot_option, write_plot
from .topology import show_matrices

if TYPE_CHECKING:
    from ..core.machine import Array, Cache, Machine

NOT_THERE = "none"
PAGES = {"4k": "4 KiB", "2m": "2 MiB", "1g": "1 GiB"}


@click.command("machines")
@click.argument("name", required=False, shell_complete=complete_machines)
@plot_option()
@json_option
def command(name: str | None, plot: str | None, as_json: bool) -> None:
    """List the machine files, or show one with the source of every number.

    The plot is of latencies: local and remote ones of each machine, or from node to node of one.
    """
    from ..core.machine import load_machine

    if name is None:
        show_all(as_json, plot)
    else:
        show_one(load_machine(name), as_json, plot)


def show_all(as_json: bool, plot: str | None) -> None:
    import msgspec

    from ..core.machine import load_machine, machine_names
    from ..show.terminal import print_json, print_rows

    machines = [load_machine(known) for known in machine_names()]
    if as_json:
        print_json("machines", [msgspec.to_builtins(machine) for machine in machines])
    else:
        columns = ("machine", "nodes", "CPUs a node", "what it is")
        rows = [(m.name, m.nodes, m.cpus_per_node, m.description) for m in machines]
        print_rows("Machines", [dict(zip(columns, row, strict=True)) for row in rows])
    if plot:
        from ..analysis.catalogue import list_machines
        from ..show import plots

        write_plot(plot, plots.machines(list_machines()))


def show_one(machine: Machine, as_json: bool, plot: str | None) -> None:
    import msgspec

    from ..show.terminal import print_json, print_sections

    matrices = {"idle": machine.latency.idle, "contended": machine.latency.contended}
    if as_json:
        print_json("machine", msgspec.to_builtins(machine))
    else:
        print_sections(sections(machine))
        show_matrices("ns a read from DRAM", range(machine.nodes), matrices)
        print_sections({"sources": machine.sources})
    if plot:
        from ..analysis import answers as frames
        from ..show import plots

        table = frames.latency_frame(matrices, range(machine.nodes))
        table.attrs["provenance"] = {"machine": machine.name}
        write_plot(plot, plots.latency(table))


def sections(machine: Machine) -> dict[str, Mapping[str, str | float | None]]:
    """What a machine file says, but latencies and sources."""
    tlb, walk = machine.tlb, machine.walk_caches
    return {
        machine.name: {
            "what it is": machine.description,
            "NUMA nodes": machine.nodes,
            "CPUs a node": machine.cpus_per_node,
            "GHz": machine.ghz,
            "costs": machine.costs,
        },
        "TLB of a CPU": {
            "L1, 4 KiB pages": array(tlb.l1_4k),
            "L1, 2 MiB pages": array(tlb.l1_2m),
            "L1, 1 GiB pages": array(tlb.l1_1g),
            f"L2, {' and '.join(PAGES.get(size, size) for size in tlb.l2_holds)} pages": array(tlb.l2),
            "L2, 1 GiB pages": array(tlb.l2_1g),
        },
        "page-walk caches of a CPU": {
            "PDE": array(walk.pde),
            "PDPTE": array(walk.pdpte),
            "PML4E": array(walk.pml4e),
            "PML5E": array(walk.pml5e),
            "nested TLB": array(walk.nested),
        },
        "caches": {"L2 of a CPU": cache(machine.l2), "LLC of a node": cache(machine.llc)},
    }


def array(of: Array | None) -> str:
    return NOT_THERE if of is None else f"{of.entries:,} entries, {of.ways} ways"


def cache(of: Cache) -> str:
    size = f"{of.bytes / (1 << 20):g} MiB" if of.bytes >= 1 << 20 else f"{of.bytes / 1024:g} KiB"
    return f"{size}, {of.ways} ways, {of.cycles:g} cycles, {100 * of.share:g} % of it left to page tables"
