"""`ptanalyze synth`: captures larger than any machine at hand, from a documented, seeded model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import click

import ptanalyze as pt

from .parameters import Parameters, whole_pages


def size(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    return None if text is None else whole_pages(text, parameter.opts[0])


HELP = {
    "size": "Size of the dataset: 64M, 16G, 1.5T. Default: that of the pattern's graph.",
    "nodes": "Number of the host's NUMA nodes.",
    "node_memory": "Memory of each node, such as 64G. Default: enough.",
    "levels": "Number of levels of all page tables: 4 or 5.",
    "guest": "Kind of guest: native (none), or a VM: visible (vnode n on node n) or oblivious (one flat "
    "node).",
    "placement": "Placement of tables and data by the process's own kernel: first-touch, interleave, "
    "bind:NODE.",
    "host_placement": "Placement of ePT, and of an oblivious VM's memory, by the host. Default: first-touch.",
    "fragmentation": "Share of faults (0 to 1) after which a co-runner takes the rest of the 8 frames.",
    "thp": "Share of 2 MiB regions (0 to 1) mapped as huge pages.",
    "host_thp": "Share of 2 MiB regions (0 to 1) that the host maps as huge. Default: 0.",
    "threads": "Number of the workload's threads. Default: one per node.",
    "threads_to_nodes": "NUMA nodes of the threads: round-robin, block, or one node per thread as 0,0,1,1.",
    "mapped_by": "Threads that map the dataset: main (thread 0) or threads (each its part).",
    "init": "Threads that touch the dataset first: parallel (each its part) or single (thread 0 all of it).",
    "init_trace": "Trace the first touches, or leave them out. Default: traced up to 16G.",
    "accesses": "Number of accesses of all threads after the first touches. Default: 1048576.",
    "pattern": "Access pattern: uniform, zipf:S, sequential, once, once:THREAD (every page once, by that "
    "thread alone), pr:GRAPH, cc:GRAPH, bc:GRAPH (kernels of GAP; GRAPH as kron27 or uni27: 2^27 "
    "vertices), btree, btree:FAN (lookups), anneal (swaps of elements).",
    "sharing": "Sharing of the dataset: shared, private (each thread its part), or the share of accesses "
    "that go anywhere.",
    "writes": "Share of accesses (0 to 1) that write. Default: 0.3, or the pattern's own where it has a "
    "shape.",
    "mprotect_every": "Number of accesses between two mprotect calls: 64 KiB read-only and back; of private "
    "memory the caller's own. Default: no calls.",
    "munmap_every": "Number of accesses between two munmap calls: 64 KiB unmapped, mapped again. Default: "
    "no calls.",
    "move": "Move node A's threads to node B after share T of the accesses. Default: no move.",
    "move_data": "Migrate data after the threads from share T on, RATE pages per million accesses. "
    "Default: no migration.",
    "instructions_per_access": "Number of instructions per access.",
    "rate": "Accesses per second of each thread.",
    "scale": "Let the capture stand for a program of N times its memory: when it is replayed, data caches "
    "and the pace of NUMA balancing are 1/N of the machine's.",
    "seed": "Seed of the random numbers; equal options and seed give equal bytes.",
}
METAVARS = {"move": "T:A:B", "move_data": "T:RATE"}
SIZES = ("size", "node_memory")


def parameters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options for the fields of Parameters, with their types and defaults."""
    types = get_type_hints(Parameters)
    for field in reversed(fields(Parameters)):
        name, option = field.name, f"--{field.name.replace('_', '-')}"
        kind = next(of for of in (get_args(types[name]) or (types[name],)) if of is not type(None))
        more: dict[str, Any] = {"type": kind, "metavar": METAVARS.get(name)}
        if name in SIZES:
            more = {"callback": size}
        elif kind is bool:
            option, more = f"{option}/--no-{option[2:]}", {}
        shown = field.default is not None
        command = click.option(option, default=field.default, show_default=shown, help=HELP[name], **more)(
            command
        )
    return command


@click.command("synth")
@pt.options.new_capture_option("synth.capture", "directory")
@parameters
@click.option(
    "--trace/--no-trace", default=True, show_default=True, help="Write a trace, or page tables alone."
)
def command(directory: str | None, trace: bool, **asked: Any) -> None:
    """Generate a capture of a synthetic workload: page tables and trace by a model of Linux's allocation.

    Captures may be larger than this machine. Every parameter and the seed are kept in the capture. Page
    tables of 1.5T take 6.4 GB as a VM, 3.2 GB natively, and seconds.

    \b
    Example:
      ptanalyze synth -o big --size 1.5T --guest visible --accesses 10000000
    """
    from .capture import synthesize
    from .plan import left_to_chance

    directory = directory or pt.options.free_name("synth")
    with pt.terminal.progress_bar() as progress:
        process, _ = synthesize(Parameters(**asked), directory, trace=trace, progress=progress)
    if warning := left_to_chance(process.plan):
        pt.options.echo(f"ptanalyze: {warning}", err=True)
    accesses = process.recorder.accesses if trace else 0
    needed = pt.replay_options.machine_needed(pt.open_capture(directory))
    step = pt.options.next_step("classify", directory, *needed)
    pt.options.echo(f"{directory}: made, {accesses:,} accesses traced; {step}")
