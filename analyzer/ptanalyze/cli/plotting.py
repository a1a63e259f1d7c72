"""`--plot FILE`: the table of a command as a figure."""

import click

DRAWN = {  # what --plot-kind calls it -> what it shows
    "locality": "Local-Local ... Remote-Remote by socket",
    "map": "page tables by address, level and node",
    "speedup": "estimated speed-ups with intervals",
    "reads": "reads by reader's and serving node",
    "pareto": "speed-up over extra memory",
    "footprint": "bytes of page tables",
    "roofline": "walks a second over DRAM reads a walk",
}


def plot_option(*kinds):
    """--plot FILE, as `plot`; with several kinds also --plot-kind, as `plot_kind`, by default the first."""

    def add(command):
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


def checked(context, parameter, path):
    """Before anything is computed: a name that a plot can have."""
    if path is not None:
        from ..plots.files import must_be_writable

        must_be_writable(path)
    return path


def write_plot(path, figure):
    from ..plots import save

    save(figure, path)
    click.echo(f"ptanalyze: wrote {path}", err=True)


def draw_results(path, kind, replayed):
    """Write a plot of an api.answers.Replayed."""
    from .. import plots

    tables = {"reads": "reads", "locality": "leaves"}
    write_plot(path, getattr(plots, kind)(getattr(replayed, tables.get(kind, "frame"))))
