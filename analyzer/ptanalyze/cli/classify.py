"""`ptanalyze classify`: how local page-table leaves are, seen from each socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..core.bundled import DEFAULT_MACHINE
from ..core.errors import UsageError
from .options import capture_argument, complete_machines, json_option, open_or_default
from .plotting import draw_tables, plot_option, write_plot

if TYPE_CHECKING:
    from ..analysis.leaf_classes import Classification

WEIGHTS = ("leaf", "4k", "walks")


@click.command("classify")
@capture_argument
@click.option(
    "--weight",
    "weights",
    multiple=True,
    type=click.Choice(WEIGHTS),
    help="Each leaf entry once, each 4 KiB once, or each walk of the trace. Default: leaf and walks.",
)
@click.option("--by", type=click.Choice(["all", "vma", "thread"]), default="all", show_default=True)
@click.option(
    "-m",
    "--machine",
    default=DEFAULT_MACHINE,
    show_default=True,
    help="Name or TOML file; for walks.",
    shell_complete=complete_machines,
)
@click.option(
    "--threads-to-nodes", "threads_on", default="auto", show_default=True, help="As in whatif; for walks."
)
@click.option(
    "--threads", "jobs", type=click.IntRange(1), default=1, show_default=True, help="Threads to compute with."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV in tidy form.")
@plot_option("locality", "map")
@json_option
def command(
    capture: str | None,
    weights: tuple[str, ...],
    by: str,
    machine: str,
    threads_on: str,
    jobs: int,
    as_csv: bool,
    plot: str | None,
    plot_kind: str,
    as_json: bool,
) -> None:
    """Share of local and remote leaf entries of CAPTURE's page table, for an observer on each socket.

    By mapped pages as in the vMitosis paper (section 2.2, Figure 2), and weighted by the trace's TLB misses.
    """
    from ..analysis.classify import classified
    from ..analysis.setup import Setup
    from ..show.progress import progress_bar

    opened = open_or_default(capture)
    weights = weights or (("leaf", "walks") if opened.has_trace and by != "thread" else ("leaf",))
    if by == "thread":
        if set(weights) - {"leaf"} - {"walks"}:
            raise UsageError("--by thread: pages have no thread; use --weight walks")
        weights = ("walks",)
    found = []
    with progress_bar() as progress:
        setup = Setup.of(machine=machine, threads_on=threads_on, jobs=jobs, progress=progress)
        for weight in weights:
            seen, how = classified(opened, weight, by, setup)
            found.append((seen, title(weight, how)))
    show(found, as_json, as_csv)
    if plot and plot_kind == "map":
        draw_tables(plot, plot_kind, opened)
    elif plot:
        from ..analysis import answers as frames
        from ..show import plots

        said = {"capture": str(opened.directory)}
        write_plot(plot, plots.locality(frames.classes_frame([seen for seen, _ in found], said)))


def title(weight: str, how: dict[str, str]) -> str:
    if weight == "walks":
        return f"Walks of the trace on {how['machine']}, threads {how['placement']}"
    return f"Mapped {'leaf entries, each once' if weight == 'leaf' else '4 KiB pages'}, as captured"


def show(found: list[tuple[Classification, str]], as_json: bool, as_csv: bool) -> None:
    from ..show.terminal import console, print_json, print_rows

    if as_json:
        print_json("classify", [as_record(seen, title) for seen, title in found])
        return
    for seen, title in found:
        if as_csv:
            click.echo(seen.frame().assign(weight=seen.weight).to_csv(index=False), nl=False)
            continue
        rows = rows_of(seen)
        if rows:
            print_rows(title, rows)
            if not seen.native:
                print_rows("gPT and ePT locality together", together_rows(seen))
        else:
            console().print(f"{title}: nothing to classify")
        for reason, count in seen.unresolved.items():
            if count:
                console().print(f"- without a class: {count:,} {reason}")


def as_record(seen: Classification, title: str) -> dict[str, Any]:
    return {
        "title": title,
        "weight": seen.weight,
        "rows": seen.frame().to_dict("records"),
        "together": [] if seen.native else together_rows(seen),
        "unresolved": seen.unresolved,
    }


def together_rows(seen: Classification) -> list[dict[str, Any]]:
    """One row a group and socket: Local-Local beside what independent and uniform placement would give."""
    uniform = 1 / max(len(seen.nodes), 1) ** 2
    return [
        {
            "of": group,
            "seen from socket": str(socket),
            "Local-Local": ll,
            "if independent": independent,
            "if uniform, 1/N^2": uniform,
            "correlation": None if phi != phi else phi,
        }
        for (group, socket), (ll, independent, phi) in seen.together().items()
    ]


def rows_of(seen: Classification) -> list[dict[str, Any]]:
    """One row a group and socket with the share and number of each class."""
    table = seen.frame()
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for group, socket, kind, count, share in table.itertuples(index=False):
        row = rows.setdefault((group, socket), {"of": group, "seen from socket": str(socket), "count": 0})
        row["count"] += int(count)
        row[kind] = f"{100 * share:.2f} %"
    return list(rows.values())
