"""Options that calibrate and predict share: the counters of a run, or of two, and what is known of them."""

from collections.abc import Callable
from typing import Any

import click

import ptanalyze as pt

REMOTE = ("RR", "LR", "RL", "RRI", "RP", "RPI")  # placements that have a name, but for all local


def run_options(second: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the keywords of run_time.calibrate as options; second  what the remote run's placement is
    called, its keyword being `placement`."""
    options = (
        click.option(
            "--local",
            type=click.Path(),
            help="perf stat output of a run with all tables local. Default: none, but --seconds.",
        ),
        click.option(
            "--remote",
            type=click.Path(),
            help="perf stat output of a run with remote tables. Default: none.",
        ),
        click.option(
            second,
            "placement",
            shell_complete=pt.options.words_or_files(*REMOTE),
            help="Table placement of the --remote run: RR, LR, RL (gPT, ePT), RRI with load; native RP, RPI; "
            "or shares of its walks: LL:0.06,LR:0.19,RL:0.19,RR:0.56. Default: none.",
        ),
        click.option(
            "--at",
            help="Table placement of the --local run, such as RRI or L:0.25,R:0.75. Default: all local.",
        ),
        click.option(
            "--seconds",
            type=click.FloatRange(0, min_open=True),
            help="Elapsed time of the local run. Default: the file's.",
        ),
        click.option(
            "--remote-seconds",
            type=click.FloatRange(0, min_open=True),
            help="Elapsed time of the remote run. Default: the file's.",
        ),
        click.option(
            "-m",
            "--machine",
            help="Machine model: a name or a TOML file. Default: the machine of the reference runs.",
            shell_complete=pt.options.machines,
        ),
        click.option("--native", is_flag=True, help="The run is native: there are no ePT counters."),
        click.option(
            "--walkers",
            type=click.FloatRange(0.5, 8),
            help="Number of page walkers per core; below 1: per busy hardware thread. Default: from the "
            "events.",
        ),
        click.option(
            "--threads-per-core",
            type=click.FloatRange(1, 2),
            help="Busy hardware threads per core: 1, or 2 where hyperthreads share its page walkers. "
            "Default: from the CPUs that were busy, else 1 to 2.",
        ),
    )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
