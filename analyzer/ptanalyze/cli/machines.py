"""`ptanalyze machines`: what walks can be replayed on."""

import click

from .options import complete_machines, json_option


@click.command("machines")
@click.argument("name", required=False, shell_complete=complete_machines)
@json_option
def command(name, as_json):
    """List the machine files, or show one with the source of every number."""
    import msgspec

    from ..machine import load_machine, machine_names
    from ..tables import print_json, print_rows, print_sections

    if name is not None:
        machine = msgspec.to_builtins(load_machine(name))
        if as_json:
            print_json("machine", machine)
        else:
            sources = machine.pop("sources")
            print_sections(
                {machine["name"]: {key: str(value) for key, value in machine.items()}, "sources": sources}
            )
        return
    machines = [load_machine(known) for known in machine_names()]
    if as_json:
        print_json("machines", [msgspec.to_builtins(machine) for machine in machines])
        return
    rows = [
        {"machine": m.name, "nodes": m.nodes, "CPUs a node": m.cpus_per_node, "what it is": m.description}
        for m in machines
    ]
    print_rows("Machines", rows)
