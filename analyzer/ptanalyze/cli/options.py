"""Arguments and options that several subcommands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..core.bundled import DEFAULT_MACHINE
from ..core.errors import UsageError
from .echo import echo

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ..formats.capture import Capture


def complete_captures(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Bundled samples for the shell's completion, and directories."""
    from click.shell_completion import CompletionItem

    from ..core.bundled import bundled

    samples = bundled("samples")
    names = sorted(path.name for path in samples.iterdir() if path.is_dir()) if samples.is_dir() else []
    items = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return [*items, CompletionItem(incomplete, type="dir")]


capture_argument = click.argument(
    "capture", required=False, type=click.Path(), shell_complete=complete_captures
)


def complete_settings(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """KEY= of the policies that -p names, of all without, for the shell's completion of --set."""
    from ..policies import members, names, parameters

    asked = [one.partition(":")[0] for one in context.params.get("names") or names()]
    known = [policy for name in asked for policy in members(name)]
    keys = dict.fromkeys(f"{key}=" for policy in known for key, *_ in parameters(policy))
    return [key for key in keys if key.startswith(incomplete)]


def complete_policies(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names for the shell's completion; of A+B the last."""
    from ..policies import names

    kept = max(incomplete.rfind("+"), incomplete.rfind(",")) + 1
    before, begun = incomplete[:kept], incomplete[kept:]
    return [before + name for name in [*names(), "all"] if name.startswith(begun)]


def complete_machines(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names for the shell's completion, or files where none begins that way."""
    from click.shell_completion import CompletionItem

    from ..core.machine import machine_names

    names = [CompletionItem(name) for name in machine_names() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


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
    shell_complete=complete_machines,
)
threads_on_option = click.option(
    "--threads-to-nodes",
    "threads_on",
    metavar="NODES",
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
    shell_complete=complete_settings,
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

measured_machine_option = click.option(
    "-m",
    "--machine",
    help="Machine model: a name or a TOML file. Default: the machine of the reference runs.",
    shell_complete=complete_machines,
)
