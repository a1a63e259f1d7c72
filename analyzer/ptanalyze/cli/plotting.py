"""`--plot FILE`: the table of a command as a figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..analysis.replayed import Replayed
    from ..formats.capture import Capture

C = TypeVar("C", bound=Callable[..., Any])

DRAWN = {  # what --plot-kind calls it -> what it shows
    "locality": "Local-Local ... Remote-Remote by socket",
    "tables": "page tables by level and node",
    "map": "page tables by address, level and node",
    "speedup": "estimated speed-ups with intervals",
    "reads": "reads by reader's and serving node",
    "pareto": "speed-up over extra memory",
    "footprint": "bytes of page tables",
    "roofline": "walks a second over DRAM reads a walk",
}


def plot_option(*kinds: str) -> Callable[[C], C]:
    """--plot FILE, as `plot`; with several kinds also --plot-kind, as `plot_kind`, by default the first."""

    def add(command: C) -> C:
        command = click.option(
            "--plot", type=click.Path(), callback=checked, metavar="FILE.{png,svg,pdf}", help="Also draw it."
        )(command)
        if len(kinds) < 2:
            return command
        said = "; ".join(f"{kind}: {DRAWN[kind]}" for kind in kinds)
        return click.option(
            "--plot-kind", type=click.Choice(kinds), default=kinds[0], show_default=True, help=f"{said}."
        )(command)

    return add


def checked(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """Before anything is computed: a name that a plot can have."""
    if path is not None:
        from ..show.plots.files import must_be_writable

        must_be_writable(path)
    return path


def write_plot(path: str, figure: Figure) -> None:
    from ..show.plots import save

    save(figure, path)
    click.echo(f"ptanalyze: wrote {path}", err=True)


def draw_tables(path: str, kind: str, opened: Capture) -> None:
    """Write a plot of the table pages of a process, a VM, or a VM's host side alone."""
    from ..analysis import answers as frames
    from ..capture.vm.diff import trees
    from ..show import plots

    side = opened.vm if opened.has_vm and not opened.has_snapshot else opened.snapshot
    table = frames.tables_frame(trees(opened), len(side.topology))
    table.attrs["provenance"] = {"capture": str(opened.directory)}
    write_plot(path, plots.page_table_map(table) if kind == "map" else plots.table_pages(table))


def draw_results(path: str, kind: str, replayed: Replayed) -> None:
    """Write a plot of an api.answers.Replayed."""
    from ..show import plots

    tables = {"reads": "reads", "locality": "leaves"}
    write_plot(path, getattr(plots, kind)(getattr(replayed, tables.get(kind, "frame"))))
