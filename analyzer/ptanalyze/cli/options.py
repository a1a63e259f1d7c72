"""Arguments and options that several subcommands share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..core.errors import DEFAULT_MACHINE, UsageError
from . import complete
from .echo import echo

if TYPE_CHECKING:
    from ..formats.capture import Capture

C = TypeVar("C", bound=Callable[..., Any])


capture_argument = click.argument(
    "capture", required=False, type=click.Path(), shell_complete=complete.captures
)


def new_capture_option(default: str, name: str = "output") -> Callable[[C], C]:
    """-o as the parameter `name`: the capture directory that a command makes. `default` tells what free_name
    is asked for without it."""
    words = f"Capture directory to make. Default: {default}."
    return click.option("-o", "--output", name, type=click.Path(), help=words)


def free_name(name: str) -> str:
    """ "app.capture" of a path with this name, in this directory; if taken "app.2.capture" and so on."""
    stem = Path(name).name.removesuffix(".capture") or "new"
    names = (f"{stem}.{n}.capture" if n > 1 else f"{stem}.capture" for n in count(1))
    return next(one for one in names if not Path(one).exists())


class Renamed(click.Option):
    """An option that is also taken under its former name, which neither help nor completion shows."""

    def __init__(self, *arguments: Any, formerly: str, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.formerly = formerly

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)
        parser.add_option(obj=self, opts=[self.formerly], dest=self.name, action="store", nargs=1)


machine_option = click.option(
    "-m",
    "--machine",
    default=DEFAULT_MACHINE,
    show_default=True,
    help="Machine model: a name that `ptanalyze machines` lists, or a TOML file.",
    shell_complete=complete.machines,
)
threads_on_option = click.option(
    "--threads-to-nodes",
    "threads_on",
    metavar="NODES",
    shell_complete=complete.words("auto", "recorded", "round-robin", "block"),
    default="auto",
    show_default=True,
    help="NUMA nodes of the threads: auto, recorded, round-robin, block, or one node per thread as 0,0,1,1.",
)
jobs_option = click.option(
    "-j",
    "--jobs",
    "jobs",
    cls=Renamed,
    formerly="--threads",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of CPUs to compute on; results do not depend on it.",
)
on_option = click.option(
    "--on",
    metavar="dask:HOST:PORT",
    default="",
    help="Compute on the workers of this Dask cluster, which one must trust; results do not depend on it. "
    "Default: in this process.",
)
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete.settings,
    help="Policy parameter, or POLICY.KEY=VALUE for one policy; repeatable. Default: as `ptanalyze policies` "
    "lists them.",
)


def pair_of(setting: str) -> tuple[str, str]:
    """(key, value) of KEY=VALUE or POLICY.KEY=VALUE."""
    key, equals, value = setting.partition("=")
    if not equals:
        raise UsageError(f"--set {setting}: write KEY=VALUE or POLICY.KEY=VALUE")
    return key, value


def open_or_default(directory: str | None) -> Capture:
    """The named capture, or the newest here, or a bundled sample; says on stderr which it took."""
    from ..formats.capture import default_capture, open_capture

    if directory is not None:
        return open_capture(directory)
    capture, which = default_capture()
    echo(f"ptanalyze: {which}", err=True)
    return capture


strip_option = click.option(
    "--strip",
    type=click.Choice(["on", "off"]),
    default="on",
    show_default=True,
    help="Leave out touches that surely hit in the first-level TLB and change nothing there.",
)
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
    shell_complete=complete.machines,
)
