"""`ptanalyze synth`: captures of what no machine at hand can hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from .plotting import draw_tables, plot_option

if TYPE_CHECKING:
    from ..capture.synth.capture import Made
    from ..capture.synth.plan import Plan


def size(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    from ..capture.synth.parameters import whole_pages

    return None if text is None else whole_pages(text, parameter.opts[0])


@click.command("synth")
@click.option("-o", "--output", required=True, type=click.Path(), help="Capture directory to make.")
@click.option("--size", required=True, callback=size, help="The dataset: 64M, 16G, 1.5T.")
@click.option("--nodes", type=int, default=4, show_default=True, help="NUMA nodes of the host.")
@click.option("--node-memory", callback=size, help="Memory of each node.  [default: enough]")
@click.option("--levels", type=int, default=4, show_default=True, help="Of all page tables: 4 or 5.")
@click.option(
    "--guest",
    default="native",
    show_default=True,
    help="native, or a VM: visible (vnode n on node n) or oblivious (one flat guest node).",
)
@click.option(
    "--placement",
    default="first-touch",
    show_default=True,
    help="Of tables and data by the process's own kernel: first-touch, interleave, bind:NODE.",
)
@click.option(
    "--host-placement",
    help="Of ePT, and of an oblivious VM's memory, by the host.  [default: first-touch]",
)
@click.option(
    "--fragmentation",
    type=float,
    default=0.0,
    show_default=True,
    help="Share of faults after which a co-runner takes the rest of the 8 frames.",
)
@click.option("--thp", type=float, default=0.0, show_default=True, help="Share of 2 MiB regions mapped huge.")
@click.option("--host-thp", type=float, help="The same in the host.  [default: 0]")
@click.option("--threads", type=int, help="[default: one a node]")
@click.option(
    "--threads-to-nodes", default="round-robin", show_default=True, help="round-robin, block, or 0,0,1,1."
)
@click.option(
    "--mapped-by",
    default="main",
    show_default=True,
    help="Who maps the dataset: main (thread 0) or threads (each its part).",
)
@click.option(
    "--init",
    default="parallel",
    show_default=True,
    help="Who touches the dataset first: parallel (each thread its part) or single (thread 0 all of it).",
)
@click.option(
    "--init-trace/--no-init-trace", default=None, help="Trace the first touches.  [default: up to 16G]"
)
@click.option("--accesses", type=int, help="Of all threads, after the first touches.  [default: 1048576]")
@click.option(
    "--pattern",
    default="uniform",
    show_default=True,
    help="uniform, zipf:S, sequential, once, once:THREAD (every page once, by that thread alone).",
)
@click.option(
    "--sharing",
    default="shared",
    show_default=True,
    help="shared, private (each thread its part), or the share of accesses that go anywhere.",
)
@click.option("--writes", type=float, default=0.3, show_default=True, help="Share of accesses.")
@click.option("--mprotect-every", type=int, help="Accesses between two: 64 KiB read-only and back.")
@click.option("--munmap-every", type=int, help="Accesses between two: 64 KiB unmapped, mapped again.")
@click.option("--move", metavar="T:A:B", help="After share T of the accesses, A's threads are on node B.")
@click.option("--move-data", metavar="T:RATE", help="From T on, data follow: RATE pages a million accesses.")
@click.option("--instructions-per-access", type=float, default=3.0, show_default=True)
@click.option("--rate", type=float, default=1e8, show_default=True, help="Accesses a second of a thread.")
@click.option("--seed", type=int, default=0, show_default=True, help="Same options and seed: same bytes.")
@click.option("--trace/--no-trace", default=True, show_default=True, help="--no-trace: page tables alone.")
@plot_option("tables", "map")
def command(output: str, trace: bool, plot: str | None, plot_kind: str, **asked: Any) -> None:
    """Make a capture of a workload that nobody ran: page tables and trace by a model of Linux's allocation.

    Every parameter and the seed are kept in the capture. Page tables of 1.5T take 6.4 GB as a VM, 3.2 GB
    natively, and seconds.

    Example: ptanalyze synth -o big --size 1.5T --guest visible --accesses 10000000
    """
    from ..capture.synth.capture import synthesize
    from ..capture.synth.parameters import Parameters
    from ..show.progress import progress_bar
    from ..show.terminal import print_rows

    with progress_bar() as progress:
        plan, made = synthesize(Parameters(**asked), output, trace=trace, progress=progress)
    print_rows("Page tables", table_rows(made))
    for title, rows in expected(plan):
        print_rows(title, rows)
    if plot:
        from ..formats.capture import open_capture

        draw_tables(plot, plot_kind, open_capture(output))
    click.echo(f"{output}: made, {made.accesses:,} accesses traced; next: ptanalyze classify {output}")


def table_rows(made: Made) -> list[dict[str, Any]]:
    """One row a dimension: tables by level and node, bytes."""
    sides = [("page table" if made.host is None else "gPT", made.guest, made.guest_nodes)]
    if made.host is not None and made.host_nodes is not None:
        sides.append(("ePT", made.host, made.host_nodes))
    rows = []
    for name, levels, nodes in sides:
        row = {"table": name, "MiB": sum(levels.values()) / 256}
        row |= {f"level {level}": count for level, count in sorted(levels.items(), reverse=True)}
        rows.append(row | {f"node {node}": count for node, count in nodes.items()})
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return [{key: row.get(key, 0) for key in keys} for row in rows]


def expected(plan: Plan) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield (title, rows) of what closed forms say about the page tables."""
    from ..capture.synth.expected import fragmentation, leaf_classes

    classes = leaf_classes(plan)
    if classes is not None:
        rows = [
            {"seen from socket": str(node)}
            | {name: f"{100 * of[node]:.2f} %" for name, of in classes.items()}
            for node in range(plan.asked.nodes)
        ]
        yield "Leaf entries, expected", rows
    metric = fragmentation(plan)
    if metric is not None:
        yield "Lines of ePT entries a line of gPT entries, expected", [{"PTEMagnet, section 3.2": metric}]
