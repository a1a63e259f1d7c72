"""`ptanalyze calibrate`: what the counters of one run, or two, say of a program's page walks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

import ptanalyze as pt

from .options import run_options


@click.command("calibrate")
@run_options("--placement")
@click.option(
    "--allow-multiplexed", is_flag=True, help="Accept counters that perf scaled up from below 90 %."
)
@click.option(
    "-o",
    "--output",
    "calibration_file",
    type=click.Path(),
    callback=pt.options.must_end_with("toml"),
    metavar="FILE.toml",
    help="Calibration file to write, for predict and whatif --calibration. Default: none.",
)
@pt.options.output_options(file=False)
def command(calibration_file: str | None, output: pt.options.Output, **options: Any) -> None:
    """Calibrate the run-time law with counters of `perf stat`: human output, -x, or -j.

    A run with local tables gives walk cycles and bounds; a second run with any known placement gives their
    cost, most precisely with contended tables (RRI); with that run, elapsed times alone are enough. Count
    cycles:u, dtlb_load_misses.walk_pending:u, dtlb_store_misses.walk_pending:u, ept.walk_pending:u and
    duration_time. Then: ptanalyze predict FILE.toml

    \b
    Examples:
      ptanalyze calibrate --local perf.txt -o app.toml
      ptanalyze calibrate --local l.txt --remote r.txt --placement RRI -o app.toml
    """
    import msgspec

    from .run_time import calibrate, coefficients_frame

    calibration = calibrate(**options)

    if calibration_file is not None:
        pt.measured.write_calibration(calibration_file, calibration)
    output.emit(
        "calibration",
        lambda: coefficients_frame(calibration),
        lambda: msgspec.to_builtins(calibration),
        lambda: view(calibration),
    )
    if calibration_file is not None:
        pt.options.echo(
            f"{calibration_file}: written; {pt.options.next_step('predict', calibration_file)}", err=True
        )


def view(calibration: pt.law.Calibration) -> Iterator[pt.columns.Section]:
    from .run_time import coefficients

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
    intervals = {name: interval(value) for name, _, value in coefficients(calibration)}
    yield pt.columns.Section("low, middle, high", intervals)
    for heading, lines in (
        ("identified", calibration.identified),
        ("assumed", calibration.assumed),
        ("warning", calibration.flags),
    ):
        yield pt.columns.Section(lines=[f"{heading}: {line}" for line in lines])


def interval(value: pt.Interval | None) -> str:
    if value is None:
        return "not counted"
    if value.low == value.high:
        return f"{value.middle:.3g}"
    return f"{value.low:.3g}, {value.middle:.3g}, {value.high:.3g}"
