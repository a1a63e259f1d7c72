"""Options of the commands that replay policies, and the capture, policies and Setup that they stand for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..core import errors
from ..core.options import OF_SOME, OPTIONS
from . import OF_OUTPUT
from . import options as offered
from .options import C, Offer, duration, echo, open_or_default

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from pandas import DataFrame

    from ..analysis.advise import Question
    from ..analysis.frames import Replayed
    from ..analysis.setup import Policies, Setup
    from ..analysis.size import SizeCurve
    from ..analysis.verdict import Verdict
    from ..core.columns import Section
    from ..core.machine import Machine
    from ..core.process import Progress
    from ..cost.result import Result
    from ..formats.capture import Capture


def offered_policies(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names; of A+B and A,B the last."""
    from ..policies import names

    kept = max(incomplete.rfind("+"), incomplete.rfind(",")) + 1
    return offered.items((incomplete[:kept] + name for name in [*names(), "all"]), incomplete)


OFFERS: dict[str, Offer] = {"machines": offered.machines, "policies": offered_policies}


def option(name: str) -> Callable[[C], C]:
    """The click option that core.options.Options makes of this field."""
    row = OPTIONS[name]
    kind, default = row.metadata.get("kind"), row.metadata.get("typed", row.default)
    if default is MISSING:
        default = row.default_factory
    how: dict[str, Any] = {key: row.metadata.get(key) for key in ("help", "metavar")}
    how["shell_complete"] = OFFERS.get(row.metadata.get("offers", ""))
    if default is not None:
        how |= {"default": default, "show_default": row.metadata.get("shown", bool(default))}
    if default is False:
        how["is_flag"] = True
    elif kind == "path":
        how["type"] = click.Path()
    elif kind:
        how["type"] = click.Choice(kind) if isinstance(kind[0], str) else click.IntRange(*kind)
    return click.option(*row.metadata["flags"].split(), name, **how)


def replay_options(command: C) -> C:
    """The options that every replay has, for `setup_from`."""
    command = click.option(
        "--autonuma-set",
        "balancing",
        multiple=True,
        metavar="KEY=VALUE",
        help="Parameter of --autonuma: delay_ms, scan_period_ms, scan_size_mb, rate_limit_mb_s, by (guest or "
        "host); repeatable. Default: Linux's values.",
    )(command)
    for name in reversed([name for name in OPTIONS if name not in OF_SOME]):
        command = option(name)(command)
    return command


set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Policy parameter, or POLICY.KEY=VALUE for one; repeatable. Default: as in `ptanalyze policies`.",
)


def split_names(words: Sequence[str]) -> tuple[str, ...]:
    """Names of -p, each once: A,B as two, "all" as all that there are."""
    split = [part for word in words for part in re.split(r",(?=[A-Za-z])", word) if part]
    if "all" in split:
        from ..policies import policies  # not before the capture is being unpacked: they import Numba

        split = [name for part in split for name in (policies() if part == "all" else [part])]
    return tuple(dict.fromkeys(split))


def naming_policies(help: str) -> Callable[[C], C]:
    """-p as the parameter `names`, a tuple."""
    return click.option(
        "-p",
        "--policy",
        "names",
        multiple=True,
        callback=lambda context, parameter, names: split_names(names),
        shell_complete=offered_policies,
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
    type=duration,
    default="1h",
    show_default=True,
    help="Compare over a run of this length at the region's rate, one-time costs included: 10s, 5m, 24h.",
)
sizes_option = click.option(
    "--sizes",
    metavar="N,...",
    help="Also answer for runs N times as large as CAPTURE; 1: none. Default: 4,16,64,256 if CAPTURE's "
    "leaf entries fit the caches, else none.",
)
memory_option = click.option(
    "--memory",
    metavar="SIZE",
    help="Limit on extra page tables and unused memory: 64M, 2G, or 1% of mapped memory. Default: none.",
)


def question_options(command: C) -> C:
    """-p, the budget and --horizon, for `question`."""
    for option in reversed((ranked_option, memory_option, horizon_option)):
        command = option(command)
    return command


def question(memory: str | None, horizon: float, names: Sequence[str]) -> Question:
    """What the options that `advise` and `report` alone have stand for."""
    return {"memory": memory, "horizon": horizon, "policies": configured(names)}


def machine_for(capture: Capture, asked: str | None) -> str | Machine:
    """The machine that was asked for, else own_machine, which is said before the answer."""
    if asked is not None:
        return asked
    from ..analysis.setup import own_machine

    machine, said = own_machine(capture)
    if said:
        given = click.get_current_context().params
        for_programs = bool(given.get("form") or given.get("as_json"))
        echo(f"Machine model: {said}; -m NAME asks about another", err=for_programs)
    return machine


def capture_of(directory: str | None) -> Capture:
    """The named capture or the default; says on stderr what a bare trace is taken for."""
    opened = open_or_default(directory)
    if not opened.has_snapshot and not opened.has_vm:
        from ..world.traced_program import ASSUMED

        echo(f"ptanalyze: {opened.directory}: {ASSUMED}", err=True)
    return opened


def setup_from(options: Mapping[str, Any], capture: Capture, progress: Progress = None) -> Setup:
    """The Setup that core.options stand for, by their names, of a question about a Capture."""
    from ..analysis.setup import Setup

    fixed, given = options["fixed"], click.get_current_context().params
    if fixed and not (options["stands_for"] or given.get("sizes")):
        raise errors.UsageError(f"--fixed {fixed}: goes with --stands-for 64G, or --sizes 4,16; leave it out")
    plain = {**options, "machine": machine_for(capture, options["machine"])}
    balancing = plain.pop("balancing")
    pairs = dict(errors.pair_of(setting, "--autonuma-set ") for setting in balancing)
    return Setup.of(**(plain | {"autonuma": pairs or plain.pop("autonuma"), "progress": progress}))


def configured(
    names: Sequence[str], settings: Sequence[str] = (), capture: Capture | None = None
) -> list[tuple[str, dict[str, str]]]:
    """[(name, {key: value})] from --policy, as NAME or NAME:KEY=VALUE:KEY=VALUE, and from --set.

    capture  whose usual policies are meant where none is named, and settings where all are; None: none
    """
    from ..policies import share_settings
    from ..policies.table import POLICIES

    pairs = [*map(errors.pair_of, settings)]
    asked: Any = [*map(errors.policy_of, names)]
    usual = dict[str, Any]()
    if capture is not None and (not asked or POLICIES.keys() <= dict(asked).keys()):
        from ..analysis.setup import asked_or_usual, numbered, open_replay_capture

        snapshot = open_replay_capture(capture).snapshot
        asked = asked or [(name, {}) for name, _ in asked_or_usual((), snapshot)]
        usual = {name: numbered(name, snapshot) for name, _ in asked}
    each = zip(asked, share_settings([name for name, _ in asked], pairs), strict=True)
    return [(name, {**usual.get(name, {}), **values, **own}) for (name, own), values in each]


def sizes_of(
    asked: str | None, capture: Capture, policies: Policies, setup: Setup, replayed: Replayed
) -> SizeCurve | None:
    """The SizeCurve that --sizes asks for, or that a capture needs whose leaf entries the caches hold."""
    base = replayed.results[0]
    if asked == "1" or (asked is None and (not replayed.fits_caches or len(base.classes) == 1)):
        return None
    from ..analysis.size import needed_curve, size_curve

    if asked is None:
        return needed_curve(capture, policies, setup, replayed)
    times = [float(one) for one in asked.split(",") if re.fullmatch(r"\d{1,7}(\.\d+)?", one)]
    if len(times) != asked.count(",") + 1:
        raise errors.UsageError(f"--sizes {asked}: write factors as 4,16,64, or 1 for none")
    return size_curve(capture, policies, setup, times)


# Lines to type: about the same capture, with what was given here.

CARRIED = {*OPTIONS, "balancing"} - {"baseline", "windows"}  # of all commands that such a line names


def given(*more: str, every: bool = False) -> list[str]:
    """Words of the options that were given here: of the run and its model, and `more` parameters; every: all
    but those of the output."""
    context, words = click.get_current_context(), list[str]()
    typed, _, _ = context.command.make_parser(context).parse_args(context.meta["typed"][1:])
    for one in context.command.params:
        name = one.name or ""
        alone = name == "fixed" and not (every or context.params["stands_for"] or "sizes" in more)
        kept = isinstance(one, click.Option) and name not in OF_OUTPUT if every else name in (*CARRIED, *more)
        if alone or not kept or (value := context.params[name]) is False:
            continue
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            values = typed.get(name, value)  # as it was typed, else as the environment has it
            for each in values if getattr(one, "multiple", False) else [values]:
                words += one.opts[:1] if value is True else [one.opts[0], str(each)]
    return words


def steps(capture: str | None, commands: Mapping[str, str], opened: Capture) -> Section:
    """What to type next, of {why: command and its words}, about the same Capture; the same command again
    takes all that was given to it."""
    from ..show.terminal import next_steps

    this, typed = click.get_current_context().command.name, {}
    for why, asked in commands.items():
        name, *more = asked.split()
        kept = given(every=name == this)
        kept += [] if "-m" in kept else machine_needed(opened)
        typed[why] = f"{errors.program()} {shlex.join([name, *filter(None, [capture]), *kept, *more])}"
    return next_steps(typed)


def machine_needed(capture: Capture) -> list[str]:
    """ "-m NAME" in two words where threads were recorded on a node that the machine which is taken unasked
    has not, or without CPUs; [] where it has, or no machine has."""
    if not (capture.has_trace and capture.has_snapshot):
        return []
    of_cpu, cpus = capture.snapshot.topology.node_of_cpu(), {*capture.trace.chunks["cpu"].tolist()}
    node = max((int(of_cpu[cpu]) for cpu in cpus if 0 <= cpu < len(of_cpu)), default=0)
    if node == 0:
        return []
    from ..analysis.setup import own_machine
    from ..core.machine import Machine, load_machine
    from ..world.thread_placement import with_node

    taken, _ = own_machine(capture)
    taken = taken if isinstance(taken, Machine) else load_machine(taken)
    larger = None if node in taken.cpu_nodes else with_node(node)
    return ["-m", larger.name] if larger else []


def following(
    capture: str | None, opened: Capture, base: Result, verdict: Verdict | None, ranked: bool = False
) -> Section:
    """What to type next after an answer about a Capture.

    base    the baseline's Result; ranked: after advise
    """
    from ..analysis.setup import HOST_FILE, HOST_MODEL
    from ..analysis.verdict import one_node, process_of, start_of
    from ..capture.live import keeps_page_size, page_trial, still_runs
    from ..core.columns import ELSEWHERE, message
    from ..show.terminal import next_steps

    this, named = errors.program(), [capture] if capture else []
    context = click.get_current_context()
    again = f"{this} {shlex.join([str(context.command.name), *named, *given(every=True)])}"
    lines = {"full": f"{again} --full"}
    measured = context.params["calibration"] or opened.pages
    if verdict is not None and verdict.of_page_size and not measured:
        runs = still_runs(facts := opened.snapshot.facts if opened.has_snapshot else {})
        if (runs or one_node(base)) and not keeps_page_size(runs or 0, 0.5):
            started = opened.has_trace and not opened.trace.sampled_walks and "another_user" not in facts
            command = str(opened.trace.facts.get("command", "")) if started else None
            command = "" if started and "synth" in facts else command
            line = page_trial(runs, process_of(facts, command or ""), command)
            lines["run" if " -- " in line else "pages"] = line
    if one_node(base):
        lines["machine"] = f"{again} -m {errors.DEFAULT_MACHINE}"
    if not ranked:
        lines["advise"] = f"{this} {shlex.join(['advise', *named, *given('sizes')])}"
    drawn = all(map(find_spec, errors.EXTRAS["report"]))
    names = context.params["names"] if ranked else ()
    twice = len(names) > 1 and len({name.partition(":")[0] for name in names}) < len(names)
    if not twice and (drawn or Path.cwd() == errors.CHECKOUT):  # a page has one setting per policy
        asked = given(*("names", "memory", "horizon") if ranked else ())
        make = "" if drawn else "make report && "
        lines["report"] = f"{make}{this} {shlex.join(['report', *named, *asked])}"
    if base.finding(ELSEWHERE) is not None:
        here = HOST_FILE.exists()
        lines |= {} if here else {"model": f"{this} {HOST_MODEL}"}
        lines["host"] = f"{again} -m {HOST_FILE}" if here else f"the same, where {HOST_FILE} is"
    if capture is None:
        lines["own"] = f"{errors.as_root()} record -- ./app"
    elif base.speedup and opened.has_trace and not (measured or base.pages["host"]):
        lines |= count_walks(start_of(opened.trace))
    return next_steps({str(message("next", code)): line for code, line in lines.items()})


# CPUs whose events have these names (arch/x86/events/intel/core.c); most VMs have none.
PMU_NAME = Path("/sys/devices/cpu/caps/pmu_name")
FEW_COUNTERS = ("skylake",)  # Cascade Lake too; later ones count more at a time
COUNT_WALKS = (*FEW_COUNTERS, "icelake", "sapphire_rapids", "granite_rapids")
COUNT = (
    "perf stat -x, -o counts.csv -e cycles:u,{more}duration_time \\\n"
    "  -e dtlb_load_misses.walk_pending:u,dtlb_store_misses.walk_pending:u {command}"
)
COUNT_ACCESSES = "instructions:u,mem_inst_retired.all_loads:u \\\n  -e mem_inst_retired.all_stores:u,"


def count_walks(command: str) -> dict[str, str]:
    """{step: line} that counts a command's walk cycles on this CPU and takes them; {}: it counts none."""
    cpu = PMU_NAME.read_text().strip() if PMU_NAME.exists() else ""
    if cpu not in COUNT_WALKS:
        return {}
    more = "" if cpu in FEW_COUNTERS else COUNT_ACCESSES
    taken = f"{errors.program()} calibrate --local counts.csv --native -o counts.toml"
    return {"narrower": COUNT.format(more=more, command=command), "counted": taken}


def plots_of(replayed: Replayed, curve: SizeCurve | None = None) -> dict[str, Callable[[], DataFrame]]:
    """{kind of plot: its table} of what was replayed."""

    def sizes() -> DataFrame:
        if curve is None:
            raise errors.UsageError("--plot-kind sizes: name them, --sizes 4,16,64,256")
        return curve.frame

    return {
        "speedup": lambda: replayed.frame,
        "locality": lambda: replayed.leaves,
        "reads": lambda: replayed.reads,
        "sizes": sizes,
    }
