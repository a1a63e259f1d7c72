"""`ptanalyze timeline`: locality over time, while threads and data move to other nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .options import capture_argument, json_option
from .plotting import plot_option, write_plot
from .replaying import (
    baseline_option,
    capture_of,
    configured,
    csv_option,
    policy_option,
    replay_options,
    set_option,
    setup_from,
)

if TYPE_CHECKING:
    from ..cost.result import Result


@click.command("timeline")
@capture_argument
@policy_option
@set_option
@click.option(
    "--windows", type=click.IntRange(1, 10000), default=20, show_default=True, help="Of equal time."
)
@baseline_option
@replay_options
@csv_option
@plot_option()
@json_option
def command(
    capture: str | None,
    names: tuple[str, ...],
    settings: tuple[str, ...],
    as_csv: bool,
    plot: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Replay CAPTURE's walks and show where they went in each window of its time.

    Example (vMitosis, Figure 6): ptanalyze timeline vm -p linux -p vmitosis-migrate -p vmitosis-replicate
    --move-threads 0:1@30% --autonuma
    """
    from ..analysis.timeline import replayed_over_time
    from ..show.progress import progress_bar

    policies = configured(names, settings)
    opened = capture_of(capture)
    with progress_bar() as progress:
        found = replayed_over_time(opened, policies, setup_from(options, progress))
    show(found.results, as_json, as_csv)
    if plot:
        from ..show import plots

        write_plot(plot, plots.timeline(found.timeline))


def show(results: list[Result], as_json: bool, as_csv: bool) -> None:
    from ..show.terminal import print_json
    from ..show.whatif import labels

    names = labels(results)
    windows = [result.series.rows() if result.series else [] for result in results]
    rows = [{"policy": name, **row} for name, of in zip(names, windows, strict=True) for row in of]
    if as_json:
        print_json("timeline", rows)
    elif as_csv:
        import pandas

        click.echo(pandas.DataFrame(rows).to_csv(index=False), nl=False)
    else:
        for name, result, of in zip(names, results, windows, strict=True):
            show_one(name, result, of)
        for note in dict.fromkeys(note for result in results for note in result.notes):
            click.echo(f"- {note}")


def show_one(name: str, result: Result, windows: list[dict[str, Any]]) -> None:
    from ..show.terminal import print_rows

    nested = bool(result.host_pages)
    title = f"{name} ({result.machine}; threads {result.placement})"
    print_rows(title, [shown(row, nested) for row in windows])


def shown(row: dict[str, Any], nested: bool) -> dict[str, Any]:
    kinds = ("LL", "LR", "RL", "RR") if nested else ("LL", "RL")
    names = kinds if nested else ("local", "remote")
    remote = {"gPT DRAM remote": "guest_remote_share", "ePT DRAM remote": "host_remote_share"}
    remote = remote if nested else {"DRAM remote": "guest_remote_share"}
    return {
        "ms": row["time_ns"] / 1e6,
        "walks": row["walks"],
        **{
            f"leaf {name}": percent(row[f"leaf_{kind}_share"])
            for name, kind in zip(names, kinds, strict=True)
        },
        **{name: percent(row[share]) for name, share in remote.items()},
        "data moved": row["data_moved"],
        "tables moved": row["tables_moved"],
    }


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
