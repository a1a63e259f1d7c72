"""What the commands that replay policies share: their options, and the capture and machine they name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..core.errors import NO_LIMIT
from . import complete
from .echo import echo
from .options import (
    jobs_option,
    machine_option,
    open_or_default,
    pair_of,
    threads_on_option,
)
from .output import NAMES
from .quantities import DURATION
from .retyped import retyped

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..analysis.advise import Question
    from ..analysis.answer import Section
    from ..analysis.answers import Replayed
    from ..analysis.setup import Setup
    from ..core.progress import Progress
    from ..cost.result import Result
    from ..formats.capture import Capture

BRIEF = (  # columns of results for Markdown and LaTeX
    "policy",
    "params",
    "speedup",
    "speedup_low",
    "speedup_high",
    "once_cycles",
    "pays_back_seconds",
    "leaf_LL_share",
    "cycles_per_walk",
    "pt_bytes_extra",
    "ept_bytes_extra",
)
BALANCING = ("delay_ms=", "scan_period_ms=", "scan_size_mb=", "rate_limit_mb_s=", "by=guest", "by=host")
C = TypeVar("C", bound=Callable[..., Any])

OPTIONS = (
    machine_option,
    threads_on_option,
    click.option("--costs", type=click.Path(), help="Cost file. Default: the machine's own costs."),
    click.option(
        "--cache-share",
        metavar="SHARE",
        help="Share of the LLC that holds page-table lines, 0.25, or its bounds, 0.1:0.5, which intervals "
        "cover. Default: the machine's.",
    ),
    click.option(
        "--calibration",
        type=click.Path(),
        metavar="FILE.toml",
        help="Calibration file; scales run-time estimates to that run. Default: none.",
    ),
    click.option(
        "--cold",
        is_flag=True,
        help="Count the run as traced instead of its steady state: caches empty at first, and all copies "
        "that a policy makes, before the first access or later, part of the run.",
    ),
    click.option("--contended", is_flag=True, help="Use loaded instead of idle DRAM latencies."),
    jobs_option,
    click.option(
        "--move-threads",
        default="",
        metavar="A:B@30%,...",
        help="Move node A's threads to node B after 30 % of the trace, or at a time (@2.5s). "
        "Default: no moves.",
    ),
    click.option(
        "--autonuma",
        is_flag=True,
        help="Migrate data pages towards the nodes that access them, like Linux NUMA balancing.",
    ),
    click.option(
        "--autonuma-set",
        "balancing",
        multiple=True,
        metavar="KEY=VALUE",
        shell_complete=complete.words(*BALANCING),
        help="Parameter of --autonuma: delay_ms, scan_period_ms, scan_size_mb, rate_limit_mb_s, by (guest or "
        "host); repeatable. Default: Linux's values.",
    ),
)


def split_names(words: Sequence[str]) -> tuple[str, ...]:
    """Names of -p, each once: A,B as two, "all" as all that there are."""
    from ..policies import names

    split = [part for word in words for part in re.split(r",(?=[A-Za-z])", word) if part]
    every = [name for part in split for name in (names() if part == "all" else [part])]
    return tuple(dict.fromkeys(every))


def usual(names: Sequence[str], capture: Capture) -> Sequence[str]:
    """The names; where none were given those of the API's default, as `configured` reads them."""
    from ..analysis.setup import asked_or_usual, opened

    taken = () if names else asked_or_usual((), opened(capture).snapshot)
    return names or [":".join([str(name), *map("=".join, own.items())]) for name, own in taken]


policy_option = click.option(
    "-p",
    "--policy",
    "names",
    multiple=True,
    callback=lambda context, parameter, names: split_names(names),
    shell_complete=complete.policies,
    help="Policy to replay, or all; several that act on different things as A+B, with parameters as "
    "A:KEY=VALUE; repeatable, or with commas. Default: mitosis and hydra; in a guest "
    "that sees no NUMA nodes vmitosis-migrate and vmitosis-replicate:mode=no-p.",
)
ranked_option = click.option(
    "-p",
    "--policy",
    "names",
    multiple=True,
    callback=lambda context, parameter, names: split_names(names),
    shell_complete=complete.policies,
    help="Policy to rank, as of `ptanalyze whatif`, with parameters as A:KEY=VALUE; repeatable, or with "
    "commas. Default: all that CAPTURE allows.",
)
horizon_option = click.option(
    "--horizon",
    type=DURATION,
    default="1h",
    show_default=True,
    help="Compare run times after this time at the region's rate, one-time costs included: 10s, 5m, 24h.",
)
weight_option = click.option(
    "--weight",
    "weigh",
    type=click.Choice(["auto", "walks", "heat", "leaf"]),
    default="auto",
    show_default=True,
    help="Replay the trace (walks), or count pages by their accessed bits (heat) or all alike (leaf); auto: "
    "the first that CAPTURE has.",
)
baseline_option = click.option(
    "--baseline",
    default="auto",
    show_default=True,
    help="Policy that the others are compared with.",
    shell_complete=complete.policies,
)
full_option = click.option(
    "--full", is_flag=True, help="Show everything that was counted and assumed, not only the first screen."
)
BUDGET = (
    click.option(
        "--memory",
        metavar="SIZE",
        help="Limit on extra page tables and unused memory: 64M, 2G, or 1% of the memory that tables map. "
        "Default: no limit.",
    ),
    click.option(
        "--updates",
        metavar="PERCENT",
        help="Limit on extra page-table updates, in percent of the run: 2%. Default: no limit.",
    ),
)
SHARED = frozenset(  # options that whatif, advise and report have in common, or two of them
    option(click.Command("")).params[0].name for option in (*OPTIONS, *BUDGET, horizon_option, weight_option)
)


def replay_options(command: C) -> C:
    """The options of `setup_from`, in their order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def question_options(command: C) -> C:
    """-p, the budget and --horizon, for `question`."""
    for option in reversed((ranked_option, *BUDGET, horizon_option)):
        command = option(command)
    return command


def question(memory: str | None, updates: str | None, horizon: float, names: Sequence[str]) -> Question:
    """What the options that `advise` and `report` alone have stand for."""
    return {
        "memory": memory or NO_LIMIT,
        "updates": updates or NO_LIMIT,
        "horizon": horizon,
        "policies": configured(names),
    }


def capture_of(directory: str | None) -> Capture:
    """The named capture or the default; says on stderr what a bare trace is taken for."""
    opened = open_or_default(directory)
    if not opened.has_snapshot and not opened.has_vm:
        from ..world.site import ASSUMED

        echo(f"ptanalyze: {opened.directory}: {ASSUMED}", err=True)
    return opened


def setup_from(options: Mapping[str, Any], progress: Progress = None) -> Setup:
    """The Setup that replay_options and --baseline stand for, by their names."""
    from ..analysis.setup import Setup

    plain = dict(options)
    balancing = plain.pop("balancing")
    moving = dict(map(pair_of, balancing)) if balancing else plain.pop("autonuma")
    return Setup.of(**(plain | {"autonuma": moving, "progress": progress}))


def steps_from(
    context: click.Context, capture: str | None, policies: Sequence[str], results: Sequence[Result]
) -> Section:
    """What to type next after an answer of this command, with the options that were given."""
    from ..show.whatif import further

    chosen = {"names"}  # after -p in `policies`; advise has them as they were given
    own = retyped(context, without={"capture", "full", *NAMES, *(chosen if policies else ())})
    shared = retyped(context, only=SHARED | (set() if policies else chosen))
    narrower = results[0].price.speedup is not None and context.params["calibration"] is None
    return further(capture, policies, narrower, bool(results[0].elsewhere), own=own, shared=shared)


def configured(names: Sequence[str], settings: Sequence[str] = ()) -> list[tuple[str, dict[str, str]]]:
    """[(name, {key: value})] from --policy, as NAME or NAME:KEY=VALUE:KEY=VALUE, and from --set."""
    from ..policies import share_settings

    pairs = [pair_of(setting) for setting in settings]
    if not names:
        return []
    names, own = zip(*((name, parts) for name, *parts in (one.split(":") for one in names)), strict=True)
    shared = share_settings(names, pairs)
    return [
        (name, {**values, **dict(map(pair_of, parts))})
        for name, values, parts in zip(names, shared, own, strict=True)
    ]


def plots_of(replayed: Replayed) -> dict[str, Callable[[], DataFrame]]:
    """{kind of plot: its table} of what was replayed."""
    tables: dict[str, Callable[[], DataFrame]] = dict.fromkeys(
        ("speedup", "pareto", "footprint", "roofline"), lambda: replayed.frame
    )
    return tables | {"locality": lambda: replayed.leaves, "reads": lambda: replayed.reads}
