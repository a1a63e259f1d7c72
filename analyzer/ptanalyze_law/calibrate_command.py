"""`ptanalyze calibrate`: what the counters of one run, or two, say of page walks, and of other placements."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

import ptanalyze as pt

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .predict import Prediction

LONG = 100.0  # seconds: a tenth of one is precise enough
COEFFICIENTS = {
    "exposed": "e: share of walk cycles that the program waits for",
    "shared": "s: part of the time that a page walker is shared",
    "dram_share": "f: share of walk cycles that waits for DRAM",
    "gpt_part": "gPT's part of that",
    "remote_stretch": "k of an idle remote node",
    "contended_stretch": "k of a contended remote node",
}


@click.command("calibrate")
@click.argument("calibration_file", metavar="[CALIBRATION]", type=click.Path(), required=False)
@click.option(
    "--local",
    type=click.Path(),
    help="perf stat output of a run with all tables local. Default: none, but --seconds.",
)
@click.option(
    "--remote", type=click.Path(), help="perf stat output of a run with remote tables. Default: none."
)
@click.option(
    "--placement",
    help="Table placement of the --remote run: RR, LR, RL (gPT, ePT), RRI with load; native RP, RPI; "
    "or shares of its walks: LL:0.06,LR:0.19,RL:0.19,RR:0.56. Default: none.",
)
@click.option(
    "--at", help="Table placement of the --local run, such as RRI or L:0.25,R:0.75. Default: all local."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    help="Elapsed time of the local run. Default: the file's.",
)
@click.option(
    "--remote-seconds",
    type=click.FloatRange(0, min_open=True),
    help="Elapsed time of the remote run. Default: the file's.",
)
@click.option(
    "-m",
    "--machine",
    help="Machine model: a name or a TOML file. Default: the machine of the reference runs.",
    shell_complete=pt.options.machines,
)
@click.option("--native", is_flag=True, help="The run is native: there are no ePT counters.")
@click.option(
    "--threads-per-core",
    type=click.FloatRange(1, 2),
    help="Busy hardware threads per core: 1, or 2 where hyperthreads share its page walkers. "
    "Default: from the CPUs that were busy, else 1 to 2.",
)
@click.option(
    "--allow-multiplexed", is_flag=True, help="Accept counters that perf scaled up from below 90 %."
)
@click.option(
    "--predict",
    "placements",
    metavar="PLACEMENT",
    multiple=True,
    help="Placement to predict: LL, RRI, RRIE ..., RP-RD (remote data), or shares of walks and of data: "
    "LL:0.06,LR:0.19,RL:0.19,RR:0.56,D:0.75; repeatable. Default: all with local data, or with "
    "--walk-cycles none.",
)
@click.option(
    "--walk-cycles",
    multiple=True,
    metavar="FILE|NUMBER",
    help="Walk cycles of a further run to predict, wherever its tables are: perf stat output, or a number; "
    "repeatable. Default: none.",
)
@click.option(
    "-o",
    "--output",
    "output_file",
    type=click.Path(),
    callback=pt.options.must_end_with("toml"),
    metavar="FILE.toml",
    help="CALIBRATION to write, for whatif --calibration and for this command. Default: none.",
)
@pt.options.output_options("prediction", file=False)
def command(
    calibration_file: str | None,
    placements: tuple[str, ...],
    walk_cycles: tuple[str, ...],
    output_file: str | None,
    output: pt.options.Output,
    **run: Any,
) -> None:
    """Calibrate the run-time law with counters of `perf stat` (-x, or -j), and predict run times from it.

    A run with local tables gives walk cycles and bounds; a second run with any known placement gives their
    cost, most precisely with contended tables (RRI); with that run, elapsed times alone are enough. Count
    cycles:u, dtlb_load_misses.walk_pending:u, dtlb_store_misses.walk_pending:u, ept.walk_pending:u and
    duration_time. With a CALIBRATION, which -o wrote, run times are predicted from that.

    Placements are those of the papers' figures: gPT then ePT, L or R, I for a loaded remote node, then the
    repaired tables: E (ePT), G (gPT), M (both). Native: LP, RP, RPI, RPIM, with -RD or -RDI where data are
    remote. `ptanalyze classify` prints shares of walks by class, or writes them with --json.

    \b
    Examples:
      ptanalyze calibrate --local perf.txt -o app.toml
      ptanalyze calibrate --local l.txt --remote r.txt --placement RRI -o app.toml
      ptanalyze calibrate app.toml --predict RRIM
    """
    import msgspec

    from .run_time import calibrate, predictions, predictions_frame, read_calibration

    if (calibration_file is None) == (not any([*run.values(), output_file])):
        raise pt.UsageError(
            "calibrate: give either a CALIBRATION.toml, or --local with perf stat output (or --seconds) and "
            "what belongs to that run"
        )
    calibration = calibrate(**run) if calibration_file is None else read_calibration(calibration_file)
    runs = predictions(calibration, placements or None, walk_cycles)
    warnings = [*calibration.flags, *(prediction.doubt for prediction in runs if prediction.doubt)]

    table = partial(predictions_frame, calibration, runs)

    def plot() -> Figure:
        from .prediction_plot import prediction_plot

        return prediction_plot(table())

    def json() -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(calibration)
        return fields | {"flags": warnings, "predictions": msgspec.to_builtins(runs)}

    if output_file is not None:
        pt.measured.write_calibration(output_file, calibration)
    output.emit("calibration", table, json, lambda: view(calibration, runs, warnings), {"prediction": plot})
    if output_file is not None:
        asked = ["CAPTURE", *pt.replay_options.given(), "--calibration", output_file]
        pt.options.echo(f"{output_file}: written; {pt.options.next_step('whatif', *asked)}", err=True)


def view(
    calibration: pt.law.Calibration, runs: list[Prediction], warnings: list[str]
) -> Iterator[pt.columns.Section]:
    local = calibration.local
    counted = {
        "cycles": local.cycles,
        "gPT walk cycles": local.gpt,
        "ePT walk cycles": local.ept,
        "seconds": local.seconds,
    }
    yield pt.columns.Section(
        "All tables local" if calibration.at is None else f"Tables at {calibration.at}",
        {key: pt.terminal.number(value) for key, value in counted.items()},
    )
    intervals = {words: interval(getattr(calibration, field)) for field, words in COEFFICIENTS.items()}
    yield pt.columns.Section("low, middle, high", intervals)
    title = f"Run time of {calibration.name or 'the run'} over {calibration.at or 'all tables local'}"
    widths = "low to high: a nominal 90 % interval; noise: its width from run-to-run noise alone"
    yield pt.columns.Section(title, [row(prediction) for prediction in runs], [widths])
    for heading, lines in (
        ("identified", calibration.identified),
        ("assumed", calibration.assumed),
        ("warning", warnings),
    ):
        yield pt.columns.Section(lines=[f"{heading}: {line}" for line in lines])


def interval(value: pt.Interval | None) -> str:
    if value is None:
        return "not counted"
    if value.low == value.high:
        return f"{value.middle:.3g}"
    return f"{value.low:.3g}, {value.middle:.3g}, {value.high:.3g}"


def row(run: Prediction) -> dict[str, Any]:
    shown = {"placement": run.placement, "low": run.low, "run time": run.middle, "high": run.high}
    if run.seconds is not None:
        low, middle, high = (f"{value:.3g}" if value < LONG else f"{value:,.0f}" for value in run.seconds)
        shown["seconds"] = middle if low == high else f"{middle} ({low}-{high})"
    shown["noise"] = run.noise[1] - run.noise[0]
    return {key: f"{value:.3f}" if isinstance(value, float) else value for key, value in shown.items()} | {
        "from": "measured" if run.measured else "predicted"
    }
