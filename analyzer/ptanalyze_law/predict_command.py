"""`ptanalyze predict`: run time under any placement, from a calibration alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

import ptanalyze as pt

from .options import REMOTE, run_options

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from .predict import Prediction

LONG = 100.0  # seconds: a tenth of one is precise enough


@click.command("predict")
@click.argument("calibration", type=click.Path(), required=False)
@run_options("--remote-placement")
@click.option(
    "--placement",
    "placements",
    multiple=True,
    shell_complete=pt.options.words_or_files("LL", *REMOTE),
    help="Placement to predict: LL, RRI, RRIE ..., RP-RD (remote data), or shares of walks and of data: "
    "LL:0.06,LR:0.19,RL:0.19,RR:0.56,D:0.75; repeatable. "
    "Default: all with local data.",
)
@click.option(
    "--walk-cycles",
    multiple=True,
    metavar="FILE|NUMBER",
    help="Walk cycles of a further run, wherever its tables are: perf stat output, or a number; repeatable. "
    "Default: none.",
)
@pt.options.output_options("prediction")
def command(
    calibration: str | None,
    placements: tuple[str, ...],
    walk_cycles: tuple[str, ...],
    output: pt.options.Output,
    **run: Any,
) -> None:
    """Predict run time from a CALIBRATION of `ptanalyze calibrate`, or from perf files, without a trace.

    Placements are those of the papers' figures: gPT then ePT, L or R, I for a loaded remote node, then the
    repaired tables: E (ePT), G (gPT), M (both). Native: LP, RP, RPI, RPIM, with -RD or -RDI where data are
    remote. `ptanalyze classify` prints shares of walks by class, or writes them with --json.

    \b
    Examples:
      ptanalyze predict app.toml
      ptanalyze predict --local perf.txt
    """

    from .run_time import calibrate

    if (calibration is None) == (run["local"] is None and run["seconds"] is None):
        raise pt.UsageError(
            "predict: give either a CALIBRATION.toml or --local with perf stat output (or --seconds)"
        )
    known = calibrate(**run) if calibration is None else pt.measured.read_calibration(calibration)
    emit(known, placements, walk_cycles, output)


def emit(
    calibration: pt.law.Calibration,
    placements: tuple[str, ...],
    walk_cycles: tuple[str, ...],
    output: pt.options.Output,
) -> None:
    from dataclasses import asdict

    from .run_time import predictions, predictions_frame

    runs = predictions(calibration, placements or None, walk_cycles)

    def table() -> DataFrame:
        return predictions_frame(calibration, runs)

    def plot() -> Figure:
        from .prediction_plot import prediction_plot

        return prediction_plot(table())

    def json() -> dict[str, Any]:
        notes = {"assumed": calibration.assumed, "flags": warnings(calibration, runs)}
        return {"name": calibration.name, "predictions": [asdict(one) for one in runs], **notes}

    output.emit("predict", table, json, lambda: [view(calibration, runs)], {"prediction": plot})


def view(calibration: pt.law.Calibration, runs: list[Prediction]) -> pt.columns.Section:

    lines = [f"assumed: {line}" for line in calibration.assumed]
    lines += [f"warning: {line}" for line in warnings(calibration, runs)]
    title = f"Run time of {calibration.name or 'the run'} over {calibration.at or 'all tables local'}"
    widths = "low to high: a nominal 90 % interval; noise: its width from run-to-run noise alone"
    return pt.columns.Section(title, [row(one) for one in runs], [widths, *lines])


def warnings(calibration: pt.law.Calibration, runs: list[Prediction]) -> list[str]:
    return [*calibration.flags, *(one.doubt for one in runs if one.doubt)]


def row(one: Prediction) -> dict[str, Any]:
    shown = {"placement": one.placement, "low": one.low, "run time": one.middle, "high": one.high}
    if one.seconds is not None:
        low, middle, high = (f"{value:.3g}" if value < LONG else f"{value:,.0f}" for value in one.seconds)
        shown["seconds"] = middle if low == high else f"{middle} ({low}-{high})"
    shown["noise"] = one.noise[1] - one.noise[0]
    return {key: f"{value:.3f}" if isinstance(value, float) else value for key, value in shown.items()} | {
        "from": "measured" if one.measured else "predicted"
    }
