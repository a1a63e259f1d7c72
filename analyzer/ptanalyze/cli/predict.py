"""`ptanalyze predict`: run time under any placement, from a calibration alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .output import Output, emit, output_options

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..analysis.answer import Answer, Section
    from ..cost.calibration import Calibration
    from ..cost.predict import Prediction

ERRORS = "|predicted / measured - 1|, each workload left out in turn; inside: share within the interval"


@click.command("predict")
@click.argument("calibration", type=click.Path(), required=False)
@click.option(
    "--local",
    "local_file",
    type=click.Path(),
    help="perf stat output of a run with local tables. Default: CALIBRATION is used instead.",
)
@click.option(
    "--remote",
    "remote_file",
    type=click.Path(),
    help="perf stat output of a run with remote tables. Default: none.",
)
@click.option("--remote-placement", help="Table placement of the --remote run, such as RRI. Default: none.")
@click.option(
    "--placement",
    "placements",
    multiple=True,
    help="Table placement to predict: LL, RRI, RRIE ...; repeatable. Default: all.",
)
@click.option(
    "--statistics",
    is_flag=True,
    help="Show the errors of predictions for published runs, each left out in turn.",
)
@output_options()
def command(
    calibration: str | None,
    local_file: str | None,
    remote_file: str | None,
    remote_placement: str | None,
    placements: tuple[str, ...],
    statistics: bool,
    output: Output,
) -> None:
    """Predict run time from a CALIBRATION of `ptanalyze calibrate`, or from perf files, without a trace.

    Placements are those of the papers' figures: gPT then ePT, L or R, I for a loaded remote node, then what
    is repaired: E (ePT), G (gPT), M (both). Native: LP, RP, RPI, RPIM.
    """
    from ..analysis.run_time import calibrate
    from ..core.errors import UsageError
    from ..formats.calibration_file import read_calibration

    if statistics:
        emit(errors(), output)
        return
    if calibration is not None and local_file is None:
        known = read_calibration(calibration)
    elif local_file is not None and calibration is None:
        known = calibrate(local_file, remote_file, remote_placement)
    else:
        raise UsageError("predict: give either a CALIBRATION.toml or --local with perf stat output")
    emit(predicted(known, placements), output)


def predicted(calibration: Calibration, placements: tuple[str, ...]) -> Answer:
    from dataclasses import asdict

    from ..analysis.answer import Answer
    from ..analysis.run_time import predict, predictions

    runs = predictions(calibration, placements or None)

    def table() -> DataFrame:
        return predict(calibration, placements or None)

    def json() -> dict[str, Any]:
        notes = {"assumed": calibration.assumed, "flags": calibration.flags}
        return {"name": calibration.name, "predictions": [asdict(one) for one in runs], **notes}

    return Answer("predict", table, json, lambda: [view(calibration, runs)], {"prediction": table})


def view(calibration: Calibration, runs: list[Prediction]) -> Section:
    from ..analysis.answer import Section

    lines = [f"assumed: {line}" for line in calibration.assumed]
    lines += [f"suspicious: {line}" for line in calibration.flags]
    title = f"Run time of {calibration.name or 'the run'} over all tables local"
    return Section(title, [row(one) for one in runs], lines)


def row(one: Prediction) -> dict[str, Any]:
    shown = {"placement": one.placement, "low": one.low, "run time": one.middle, "high": one.high}
    if one.seconds is not None:
        shown["seconds"] = f"{one.seconds[0]:.1f} .. {one.seconds[1]:.1f} .. {one.seconds[2]:.1f}"
    return {key: f"{value:.3f}" if isinstance(value, float) else value for key, value in shown.items()} | {
        "from": "measured" if one.measured else "predicted"
    }


def errors() -> Answer:
    """How far predictions of published runs are off."""
    from ..analysis.answer import Answer, Section
    from ..cost.leave_one_out import leave_one_out, summary

    table = summary(leave_one_out())
    rows = table.to_dict("records")
    return Answer(
        "predict statistics",
        lambda: table,
        lambda: rows,
        lambda: [Section("Errors of predicted run time", [percent(row) for row in rows], [ERRORS])],
        {"prediction_errors": lambda: table},
    )


def percent(row: dict[str, Any]) -> dict[str, Any]:
    shares = ("mean", "median", "max", "inside")
    return {
        key: "-" if value is None or value != value else f"{value:.2%}" if key in shares else value
        for key, value in row.items()
    }
