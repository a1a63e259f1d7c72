"""Options that calibrate and predict share."""

import click

import ptanalyze as pt

REMOTE = ("RR", "LR", "RL", "RRI", "RP", "RPI")  # placements that have a name, but for all local
seconds_option = click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    help="Elapsed time of the local run. Default: the file's.",
)
remote_seconds_option = click.option(
    "--remote-seconds",
    type=click.FloatRange(0, min_open=True),
    help="Elapsed time of the remote run. Default: the file's.",
)

native_option = click.option("--native", is_flag=True, help="The run is native: there are no ePT counters.")

walkers_option = click.option(
    "--walkers",
    type=click.FloatRange(0.5, 8),
    help="Number of page walkers per core; below 1: per busy hardware thread. Default: from the events.",
)

threads_per_core_option = click.option(
    "--threads-per-core",
    type=click.FloatRange(1, 2),
    help="Busy hardware threads per core: 1, or 2 where hyperthreads share its page walkers. Default: from "
    "the CPUs that were busy, else 1 to 2.",
)

measured_machine_option = click.option(
    "-m",
    "--machine",
    help="Machine model: a name or a TOML file. Default: the machine of the reference runs.",
    shell_complete=pt.complete.machines,
)
