"""Options of the commands that replay policies, and the capture, policies and Setup that they stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import UsageError
from ..core.options import EVERYWHERE, Option, as_options
from . import complete, echo
from .options import DURATION, C, open_or_default

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from pandas import DataFrame

    from ..analysis.advise import Question
    from ..analysis.frames import Replayed
    from ..analysis.setup import Policies, Setup
    from ..analysis.size import SizeCurve
    from ..core.process import Progress
    from ..formats.capture import Capture


# What shells offer for policies and their parameters.


def settings_offered(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """KEY= of the policies that -p names, of all without; after it the values, where there are few."""
    from ..policies import members, names, parameters

    asked = [one.partition(":")[0] for one in context.params.get("names") or names()]
    known = [row for name in asked for policy in members(name) for row in parameters(policy)]
    key, equals, _ = incomplete.partition("=")
    if not equals:
        return complete.items(dict.fromkeys(f"{name}=" for name, *_ in known), incomplete)
    values = [value for name, _, allowed, _ in known if name == key for value in allowed.split(", ")]
    return complete.items(
        dict.fromkeys(f"{key}={value}" for value in values if ".." not in value), incomplete
    )


def policies_offered(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names; of A+B and A,B the last."""
    from ..policies import names

    kept = max(incomplete.rfind("+"), incomplete.rfind(",")) + 1
    return complete.items((incomplete[:kept] + name for name in [*names(), "all"]), incomplete)


OFFERS: dict[str, complete.Offer] = {"machines": complete.machines, "policies": policies_offered}


def parameter(option: Option) -> Callable[[C], C]:
    """The click option of an Option."""
    how: dict[str, Any] = {"help": option.help, "multiple": option.multiple}
    if option.default is not None:
        how["default"] = option.default
    if option.default is False:
        how["is_flag"] = True
    elif option.default or option.shown:
        how["show_default"] = option.shown or True
    if option.kind == "path":
        how["type"] = click.Path()
    elif option.kind:
        words = isinstance(option.kind[0], str)
        how["type"] = click.Choice(option.kind) if words else click.IntRange(*option.kind)
    if isinstance(option.complete, str):
        how["shell_complete"] = OFFERS.get(option.complete)
    else:
        how["shell_complete"] = complete.words(*option.complete)
    return click.option(*option.flags.split(), option.parameter, metavar=option.metavar, **how)


def option(*names: str) -> Callable[[C], C]:
    """Decorator: what core.options.Options says of these fields, in their order."""

    def decorate(command: C) -> C:
        for asked in reversed([asked for name in names for asked in as_options(name)]):
            command = parameter(asked)(command)
        return command

    return decorate


set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=settings_offered,
    help="Policy parameter, or POLICY.KEY=VALUE for one policy; repeatable. Default: as `ptanalyze policies` "
    "lists them.",
)


def pair_of(setting: str) -> tuple[str, str]:
    """(key, value) of KEY=VALUE or POLICY.KEY=VALUE."""
    key, equals, value = setting.partition("=")
    if not equals:
        raise UsageError(f"--set {setting}: write KEY=VALUE or POLICY.KEY=VALUE")
    return key, value


replay_options = option(*EVERYWHERE)


def split_names(words: Sequence[str]) -> tuple[str, ...]:
    """Names of -p, each once: A,B as two, "all" as all that there are."""
    from ..policies import names

    split = [part for word in words for part in re.split(r",(?=[A-Za-z])", word) if part]
    every = [name for part in split for name in (names() if part == "all" else [part])]
    return tuple(dict.fromkeys(every))


def usual(names: Sequence[str], capture: Capture) -> Sequence[str]:
    """The names; where none were given those of the API's default, as `configured` reads them."""
    from ..analysis.setup import asked_or_usual, open_replay_capture

    taken = () if names else asked_or_usual((), open_replay_capture(capture).snapshot)
    return names or [":".join([str(name), *map("=".join, own.items())]) for name, own in taken]


def naming_policies(help: str) -> Callable[[C], C]:
    """-p as the parameter `names`, a tuple."""
    return click.option(
        "-p",
        "--policy",
        "names",
        multiple=True,
        callback=lambda context, parameter, names: split_names(names),
        shell_complete=policies_offered,
        help=help,
    )


policy_option = naming_policies(
    "Policy to replay: NAME, NAME:KEY=VALUE with parameters, A+B for policies that combine, A,B for "
    "several, or all; repeatable. Default: mitosis and hydra; in a guest without visible NUMA nodes "
    "vmitosis-migrate and vmitosis-replicate:mode=no-p."
)
ranked_option = naming_policies(
    "Policy to rank, written like -p of `ptanalyze whatif`: NAME, NAME:KEY=VALUE, A+B or A,B; "
    "repeatable. Default: all that CAPTURE allows."
)
horizon_option = click.option(
    "--horizon",
    type=DURATION,
    default="1h",
    show_default=True,
    help="Compare policies over a run of this length at the region's rate, one-time costs included: 10s, "
    "5m, 24h.",
)
sizes_option = click.option(
    "--sizes",
    metavar="N,...",
    help="Also answer for runs N times as large as CAPTURE; 1: none. Default: 4,16,64,256 if CAPTURE's "
    "leaf entries fit the caches, else none.",
)
BUDGET = (
    click.option(
        "--memory",
        metavar="SIZE",
        help="Limit on extra page tables and unused memory: 64M, 2G, or 1% of the mapped memory. Default: no "
        "limit.",
    ),
    click.option(
        "--updates",
        metavar="PERCENT",
        help="Limit on extra page-table updates, in percent of the run: 2%. Default: no limit.",
    ),
)


def question_options(command: C) -> C:
    """-p, the budget and --horizon, for `question`."""
    for option in reversed((ranked_option, *BUDGET, horizon_option)):
        command = option(command)
    return command


def question(memory: str | None, updates: str | None, horizon: float, names: Sequence[str]) -> Question:
    """What the options that `advise` and `report` alone have stand for."""
    from ..analysis.ranking import NO_LIMIT

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
        from ..world.traced_program import ASSUMED

        echo(f"ptanalyze: {opened.directory}: {ASSUMED}", err=True)
    return opened


def setup_from(options: Mapping[str, Any], progress: Progress = None) -> Setup:
    """The Setup that core.options stand for, by their names."""
    from ..analysis.setup import Setup

    plain = dict(options)
    balancing = plain.pop("balancing")
    moving = dict(map(pair_of, balancing)) if balancing else plain.pop("autonuma")
    return Setup.of(**(plain | {"autonuma": moving, "progress": progress}))


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


def sizes_of(
    asked: str | None, capture: Capture, policies: Policies, setup: Setup, replayed: Replayed
) -> SizeCurve | None:
    """The SizeCurve that --sizes asks for, or that a capture needs whose leaf entries the caches hold."""
    if asked == "1" or (asked is None and not replayed.fits_caches):
        return None
    from ..analysis.size import needed_curve, size_curve

    if asked is None:
        return needed_curve(capture, policies, setup, replayed)
    times = [float(one) for one in asked.split(",") if re.fullmatch(r"\d{1,7}(\.\d+)?", one)]
    if len(times) != asked.count(",") + 1:
        raise UsageError(f"--sizes {asked}: write factors as 4,16,64, or 1 for none")
    return size_curve(capture, policies, setup, times)


def plots_of(replayed: Replayed, curve: SizeCurve | None = None) -> dict[str, Callable[[], DataFrame]]:
    """{kind of plot: its table} of what was replayed."""

    def sizes() -> DataFrame:
        if curve is None:
            raise UsageError("--plot-kind sizes: name them, --sizes 4,16,64,256")
        return curve.frame

    return {
        "speedup": lambda: replayed.frame,
        "locality": lambda: replayed.leaves,
        "reads": lambda: replayed.reads,
        "sizes": sizes,
    }
