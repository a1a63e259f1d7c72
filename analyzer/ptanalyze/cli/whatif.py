"""`ptanalyze whatif`: what another page-table placement would change, and at what price."""

import click

from ..errors import UsageError
from .options import capture_argument, json_option, open_or_default

DEFAULT_MACHINE = "vmitosis-cascade-lake"


@click.command("whatif")
@capture_argument
@click.option(
    "-p", "--policy", "names", multiple=True, required=True, help="Policy to replay; give several to compare."
)
@click.option("-m", "--machine", default=DEFAULT_MACHINE, show_default=True, help="Name or TOML file.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Policy parameter, or POLICY.KEY=VALUE."
)
@click.option(
    "--threads-to-nodes",
    "placement",
    default="auto",
    show_default=True,
    help="recorded, round-robin, block, or nodes as 0,0,1,1.",
)
@click.option("--baseline", default="auto", show_default=True, help="Policy the others are compared with.")
@click.option("--costs", type=click.Path(), help="Cost file instead of the machine's own.")
@click.option("--contended", is_flag=True, help="DRAM latencies under load of the interconnect.")
@click.option(
    "--threads",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Threads to compute with; results do not depend on it.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one row a policy.")
@click.option("-o", "--output", type=click.Path(), help="Also write the rows to FILE.parquet.")
@json_option
def command(
    capture, names, machine, settings, placement, baseline, costs, contended, threads, as_csv, output, as_json
):
    """Replay CAPTURE's page walks under other placements of its page tables.

    Without CAPTURE: the newest capture in this directory, else the bundled sample. `ptanalyze policies` and
    `ptanalyze machines` list what there is.

    Example: ptanalyze whatif app -p mitosis -p hydra --set prefetch=0
    """
    from ..machine import load_costs, load_machine
    from ..policies import share_settings
    from ..progress import progress_bar
    from ..whatif import whatif

    policies = list(
        zip(names, share_settings(names, [pair_of(setting) for setting in settings]), strict=True)
    )
    target = load_machine(machine)
    opened = open_or_default(capture)
    if output and not output.endswith(".parquet"):
        raise UsageError(f"-o {output}: results are written as Parquet; name it FILE.parquet")
    with progress_bar() as progress:
        results = whatif(
            tables_of(opened),
            opened.trace if opened.has_trace else None,
            target,
            policies,
            placement=placement,
            baseline=baseline,
            costs=load_costs(target, costs),
            contended=contended,
            threads=threads,
            cache_dir=opened.cache,
            progress=progress,
            provenance={"capture": str(opened.directory)},
        )
    show(results, as_json, as_csv)
    if output:
        write_parquet(results, output)


def tables_of(capture):
    """The capture's snapshot; for a bare trace one without tables, and a line that says so."""
    if capture.has_snapshot:
        return capture.snapshot
    from ..world.bare_trace import ASSUMED, bare_snapshot

    click.echo(f"ptanalyze: {capture.directory}: {ASSUMED}", err=True)
    return bare_snapshot(capture.trace)


def pair_of(setting):
    """(key, value) of KEY=VALUE or POLICY.KEY=VALUE."""
    key, equals, value = setting.partition("=")
    if not equals:
        raise UsageError(f"--set {setting}: write KEY=VALUE or POLICY.KEY=VALUE")
    return key, value


def show(results, as_json, as_csv):
    from ..result import frame
    from ..tables import print_json
    from ..whatif_tables import print_results

    if as_json:
        print_json("whatif", [result.to_json() for result in results])
    elif as_csv:
        click.echo(frame(results).to_csv(index=False), nl=False)
    else:
        print_results(results)


def write_parquet(results, output):
    from ..formats.atomic import atomic_write
    from ..result import frame

    with atomic_write(output) as file:
        frame(results).to_parquet(file)
    click.echo(f"ptanalyze: wrote {output}", err=True)
