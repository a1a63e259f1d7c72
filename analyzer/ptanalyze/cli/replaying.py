"""What the commands that replay policies share: their options, and the capture and machine they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..core.bundled import DEFAULT_MACHINE
from ..core.errors import UsageError
from ..core.sizes import NO_LIMIT
from .options import complete_machines, complete_policies, open_or_default

if TYPE_CHECKING:
    from ..analysis.setup import Setup
    from ..core.progress import Progress
    from ..formats.capture import Capture

C = TypeVar("C", bound=Callable[..., Any])

OPTIONS = (
    click.option(
        "-m",
        "--machine",
        default=DEFAULT_MACHINE,
        show_default=True,
        help="Name or TOML file.",
        shell_complete=complete_machines,
    ),
    click.option(
        "--threads-to-nodes",
        "threads_on",
        default="auto",
        show_default=True,
        help="recorded, round-robin, block, or nodes as 0,0,1,1.",
    ),
    click.option("--costs", type=click.Path(), help="Cost file instead of the machine's own."),
    click.option(
        "--calibration",
        type=click.Path(),
        help="What `ptanalyze calibrate` wrote of a measured run: run times in its proportions.",
    ),
    click.option("--contended", is_flag=True, help="DRAM latencies under load of the interconnect."),
    click.option(
        "--threads",
        "jobs",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Threads to compute with; results do not depend on it.",
    ),
    click.option(
        "--move-threads", default="", metavar="A:B@30%,...", help="Threads of node A go on on B; or @2.5s."
    ),
    click.option("--autonuma", is_flag=True, help="Data follow their walkers (Linux's NUMA balancing)."),
    click.option(
        "--autonuma-set",
        "balancing",
        multiple=True,
        metavar="KEY=VALUE",
        help="With it: delay_ms, scan_period_ms, scan_size_mb, rate_limit_mb_s, by (guest, host).",
    ),
)

policy_option = click.option(
    "-p",
    "--policy",
    "names",
    multiple=True,
    required=True,
    shell_complete=complete_policies,
    help="Policy to replay, or several that act on different things as A+B, with parameters of its own as "
    "A:KEY=VALUE; give -p again to compare.",
)
set_option = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Policy parameter, or POLICY.KEY=VALUE."
)
baseline_option = click.option(
    "--baseline", default="auto", show_default=True, help="Policy the others are compared with."
)
BUDGET = (
    click.option(
        "--memory",
        metavar="SIZE",
        help="Most that extra page tables and unused pages may take: 64M, 2G, or 1% of what its tables map.",
    ),
    click.option(
        "--updates", metavar="PERCENT", help="Most that extra updates of page tables may take of the run: 2%."
    ),
)
csv_option = click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one row a result.")


def replay_options(command: C) -> C:
    """The options of `setup_from`, in their order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def budget_options(command: C) -> C:
    """--memory and --updates, for `limits`."""
    for option in reversed(BUDGET):
        command = option(command)
    return command


def limits(memory: str | None, updates: str | None) -> dict[str, Any]:
    """Keyword arguments of advise that the options of the budget stand for."""
    return {"memory": memory or NO_LIMIT, "updates": updates or NO_LIMIT}


def capture_of(directory: str | None) -> Capture:
    """The named capture or the default; says on stderr what a bare trace is taken for."""
    opened = open_or_default(directory)
    if not opened.has_snapshot:
        from ..world.bare_trace import ASSUMED

        click.echo(f"ptanalyze: {opened.directory}: {ASSUMED}", err=True)
    return opened


def setup_from(options: Mapping[str, Any], progress: Progress = None) -> Setup:
    """The Setup that replay_options and --baseline stand for, by their names."""
    from ..analysis.setup import Setup

    plain = dict(options)
    balancing = plain.pop("balancing")
    moving = dict(map(pair_of, balancing)) if balancing else plain.pop("autonuma")
    return Setup.of(**(plain | {"autonuma": moving, "progress": progress}))


def pair_of(setting: str) -> tuple[str, str]:
    """(key, value) of KEY=VALUE or POLICY.KEY=VALUE."""
    key, equals, value = setting.partition("=")
    if not equals:
        raise UsageError(f"--set {setting}: write KEY=VALUE or POLICY.KEY=VALUE")
    return key, value


def configured(names: Sequence[str], settings: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    """[(name, {key: value})] from --policy, as NAME or NAME:KEY=VALUE:KEY=VALUE, and from --set."""
    from ..policies import share_settings

    names, own = zip(*((name, parts) for name, *parts in (one.split(":") for one in names)), strict=True)
    shared = share_settings(names, [pair_of(setting) for setting in settings])
    return [
        (name, {**values, **dict(map(pair_of, parts))})
        for name, values, parts in zip(names, shared, own, strict=True)
    ]
