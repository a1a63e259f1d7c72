"""`ptanalyze calibrate`: what the counters of one run, or two, say of a program's page walks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import complete_machines, json_option
from .plotting import plot_option, write_plot

if TYPE_CHECKING:
    from ..core.interval import Interval
    from ..cost.calibration import Calibration


@click.command("calibrate")
@click.option("--local", type=click.Path(), required=True, help="perf stat output, all tables local.")
@click.option("--remote", type=click.Path(), help="perf stat output of a run with remote tables.")
@click.option(
    "--placement", help="Of the remote run: RR, LR, RL (gPT, ePT), RRI with load; RP, RPI if native."
)
@click.option("--latency", type=click.Path(), help="From topology latency, mlc, or a SLIT directory.")
@click.option("--local-ns", type=click.FloatRange(0, min_open=True), help="With a SLIT: local latency in ns.")
@click.option(
    "-m",
    "--machine",
    help="Machine name or file; default: the one of the reference runs.",
    shell_complete=complete_machines,
)
@click.option("--native", is_flag=True, help="No virtual machine: there are no ePT counters.")
@click.option(
    "--walkers", type=click.FloatRange(0.5, 8), help="Page walkers of a hardware thread; default: found."
)
@click.option("--allow-multiplexed", is_flag=True, help="Take counters that perf scaled up from below 90 %.")
@click.option("-o", "--output", type=click.Path(), help="Keep the calibration in this TOML file.")
@click.option(
    "--write-machine", type=click.Path(), help="With --latency: also write a machine file with it, FILE.toml."
)
@plot_option()
@json_option
def command(
    output: str | None, write_machine: str | None, plot: str | None, as_json: bool, **options: Any
) -> None:
    """Calibrate the run-time law with counters of `perf stat`: human output, -x, or -j.

    One run with local tables gives walk cycles and bounds; a second one with any known placement gives what
    they cost, a contended one (RRI) most surely. Count cycles:u, dtlb_load_misses.walk_pending:u,
    dtlb_store_misses.walk_pending:u, ept.walk_pending:u. Then: ptanalyze predict FILE.toml
    """
    from ..analysis.run_time import calibrate
    from ..formats.calibration_file import write_calibration

    if output is not None:
        check_output(output)
    if write_machine is not None:
        write_machine_file(write_machine, options["machine"], options["latency"], options["local_ns"])
    calibration = calibrate(**options)
    if output is not None:
        write_calibration(output, calibration)
    show(calibration, as_json)
    if plot:
        from ..analysis import answers as frames
        from ..show import plots

        write_plot(plot, plots.coefficients(frames.coefficients_frame(calibration)))
    if output is not None:
        click.echo(f"{output}: written; next: ptanalyze predict {output}", err=True)


def check_output(output: str) -> None:
    from ..core.errors import UsageError

    path = Path(output)
    if path.suffix != ".toml" or path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"-o {output}: expected FILE.toml in a directory that exists")


def write_machine_file(
    path: str, machine: str | None, latency_file: str | None, local_ns: float | None
) -> None:
    """The machine asked for (or the reference one), with measured latencies."""
    from ..core.errors import UsageError
    from ..core.machine import load_machine
    from ..cost.calibrate import REFERENCE_MACHINE
    from ..formats.machine_file import with_latency, write_machine
    from ..formats.node_latency import read_latency

    if latency_file is None:
        raise UsageError(f"--write-machine {path}: needs --latency, what `ptanalyze topology latency` wrote")
    base = load_machine(machine or REFERENCE_MACHINE)
    write_machine(path, with_latency(base, read_latency(latency_file, local_ns), Path(path).stem))
    click.echo(f"{path}: written; use it with -m {path}", err=True)


def show(calibration: Calibration, as_json: bool) -> None:
    import msgspec

    from ..show.terminal import console, number, print_json, print_sections

    if as_json:
        print_json("calibration", msgspec.to_builtins(calibration))
        return
    local = calibration.local
    counted = {"cycles": local.cycles, "gPT walk cycles": local.gpt, "ePT walk cycles": local.ept}
    names = {
        "e, exposed share of walk cycles": calibration.exposed,
        "f, share of walk cycles from DRAM": calibration.dram_share,
        "gPT's part of that": calibration.gpt_part,
        "k, idle remote node": calibration.remote_stretch,
        "k, contended remote node": calibration.contended_stretch,
    }
    print_sections(
        {
            "All tables local": {key: number(value) for key, value in counted.items()},
            "low, middle, high": {key: interval(value) for key, value in names.items()},
        }
    )
    out = console()
    for heading, lines in (
        ("identified", calibration.identified),
        ("assumed", calibration.assumed),
        ("suspicious", calibration.flags),
    ):
        for line in lines:
            out.print(f"{heading}: {line}")


def interval(value: Interval | None) -> str:
    if value is None:
        return "not counted"
    if value.low == value.high:
        return f"{value.middle:.3g}"
    return f"{value.low:.3g}, {value.middle:.3g}, {value.high:.3g}"
