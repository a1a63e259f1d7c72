"""`ptanalyze predict`: run time under any placement, from a calibration alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .options import json_option
from .plotting import plot_option, write_plot

if TYPE_CHECKING:
    from ..cost.calibration import Calibration
    from ..cost.predict import Prediction


@click.command("predict")
@click.argument("calibration", type=click.Path(), required=False)
@click.option(
    "--local", "local_file", type=click.Path(), help="Instead of a calibration: perf stat, all local."
)
@click.option(
    "--remote", "remote_file", type=click.Path(), help="perf stat output of a run with remote tables."
)
@click.option("--remote-placement", help="Of the remote run.")
@click.option("--placement", "placements", multiple=True, help="LL, RRI, RRIE ...; default: all. Repeatable.")
@click.option("--statistics", is_flag=True, help="How well published runs are predicted, each left out.")
@plot_option()
@json_option
def command(
    calibration: str | None,
    local_file: str | None,
    remote_file: str | None,
    remote_placement: str | None,
    placements: tuple[str, ...],
    statistics: bool,
    plot: str | None,
    as_json: bool,
) -> None:
    """Predict run time from a CALIBRATION of `ptanalyze calibrate`, or from perf files, without a trace.

    Placements are those of the papers' figures: gPT then ePT, L or R, I for a loaded remote node, then what
    is repaired: E (ePT), G (gPT), M (both). Native: LP, RP, RPI, RPIM.
    """
    from ..analysis.run_time import calibrate, predict
    from ..core.errors import UsageError
    from ..formats.calibration_file import read_calibration

    if statistics:
        show_statistics(as_json, plot)
        return
    if calibration is not None and local_file is None:
        known = read_calibration(calibration)
    elif local_file is not None and calibration is None:
        known = calibrate(local_file, remote_file, remote_placement)
    else:
        raise UsageError("predict: give either a CALIBRATION.toml or --local with perf stat output")
    show(known, placements, as_json)
    if plot:
        from ..show import plots

        write_plot(plot, plots.prediction(predict(known, placements or None)))


def show(calibration: Calibration, placements: tuple[str, ...], as_json: bool) -> None:
    from dataclasses import asdict

    from ..analysis.run_time import predictions
    from ..show.terminal import console, print_json, print_rows

    found = predictions(calibration, placements or None)
    if as_json:
        rows = [asdict(one) for one in found]
        notes = {"assumed": calibration.assumed, "flags": calibration.flags}
        print_json("predict", {"name": calibration.name, "predictions": rows, **notes})
        return
    print_rows(
        f"Run time of {calibration.name or 'the run'} over all tables local", [row(one) for one in found]
    )
    out = console()
    for line in calibration.assumed:
        out.print(f"assumed: {line}")
    for line in calibration.flags:
        out.print(f"suspicious: {line}")


def row(one: Prediction) -> dict[str, Any]:
    shown = {"placement": one.placement, "low": one.low, "run time": one.middle, "high": one.high}
    if one.seconds is not None:
        shown["seconds"] = f"{one.seconds[0]:.1f} .. {one.seconds[1]:.1f} .. {one.seconds[2]:.1f}"
    return {key: f"{value:.3f}" if isinstance(value, float) else value for key, value in shown.items()} | {
        "from": "measured" if one.measured else "predicted"
    }


def show_statistics(as_json: bool, plot: str | None) -> None:
    from ..cost.leave_one_out import leave_one_out, summary
    from ..show.terminal import print_json, print_rows

    table = summary(leave_one_out())
    rows = table.to_dict("records")
    if as_json:
        print_json("predict statistics", [{k: None if v != v else v for k, v in r.items()} for r in rows])
    else:
        note = "|predicted / measured - 1|, workloads left out one by one; inside: share within the interval"
        print_rows("Errors of predicted run time", [percent(r) for r in rows], note)
    if plot:
        from ..show import plots

        write_plot(plot, plots.prediction_errors(table))


def percent(row: dict[str, Any]) -> dict[str, Any]:
    shares = ("mean", "median", "max", "inside")
    return {
        key: "-" if value is None or value != value else f"{value:.2%}" if key in shares else value
        for key, value in row.items()
    }
