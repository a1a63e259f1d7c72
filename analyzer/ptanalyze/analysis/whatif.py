"""Effects and costs of other policies: a capture's walks replayed under each."""

from __future__ import annotations

import platform
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from msgspec.structs import asdict

from ..core.columns import CAREFUL, MEASURED, UNFIT, Finding, Message, message, noted
from ..core.errors import RefusedError, UsageError
from ..core.machine import at_own_share
from ..core.options import WINDOWS, Keywords
from ..core.snapshot import Snapshot
from ..core.trace import Trace
from ..core.version import __version__
from ..cost.counts import Counts
from ..cost.law import Calibration, PageTrial, UnfitError
from ..cost.price import LOADS, UNLIKE, Pages, Unknowns, of_larger, price
from ..cost.result import Result
from ..cost.throughput import spent
from ..formats.capture import Capture, CaptureLike, load
from ..kernels.jit import say
from ..policies import Plan, Policy, plan_for
from ..policies.registry import own_code
from ..world.scaling import AS_CAPTURED, of_one_size
from ..world.scenario import Scenario
from ..world.tlb_filter import must_fit
from .counting import counted, must_be_enough, static_results
from .frames import Replayed
from .replay import PolicyRun, label, replay_steady_state, replay_walks, start, with_refusals
from .setup import Policies, ReplayCapture, Setup, asked_or_usual, baseline_of, open_replay_capture, setup_of
from .verdict import HUGE, RESET, UNTOLD, process_of, start_of, unstripped, untold, verdict, workload

if TYPE_CHECKING:
    from pandas import DataFrame


# Plans replayed on a Scenario: one filter pass, one cache pass, many replays; then the same once more, warm.


def replay_scenario(
    captured: Scenario,
    plans: Sequence[Plan],
    setup: Setup,
    provenance: Mapping[str, str] | None = None,
    refused: dict[str, str] | None = None,
    others: Sequence[Scenario] = (),
) -> list[Result]:
    """[Result] of Plans on a captured Scenario; the others are compared with the first.

    refused  a dict: plans that the capture does not allow are left out, and added with the reason, by name
    others   without a trace: Scenarios of processes captured with it, whose counts are added
    Without a calibration the capture's own is taken; where that tells nothing, a finding says why.
    """
    known = {"ptanalyze": __version__, "python": platform.python_version(), **(provenance or {})}
    trial, own = setup.calibration, captured.snapshot.trial
    if own is not None and trial is None:
        try:
            of_own = replace(setup, calibration=own)
            return replay_scenario(captured, plans, of_own, provenance, refused, others)
        except UnfitError as error:
            bare = replace(captured, snapshot=replace(captured.snapshot, trial=None))
            results = replay_scenario(bare, plans, setup, provenance, refused, others)
            note = noted(UNFIT, CAREFUL, why=error.why)
            return [replace(one, findings=(*one.findings, note)) for one in results]
    _must_fit(trial, captured)
    if not captured.traced:
        rows = static_results([captured, *others], plans, setup, known, refused)
        if isinstance(trial, PageTrial):  # of page size; of placements it tells nothing
            if not _here(trial, captured):
                raise UnfitError(trial.program, str(message("trial", "untraced", **asdict(trial))))
            gains = {"gain": trial.answer, "found": trial.gain}
            line = "measured-alone" if trial.answer != trial.gain else "measured-here"
            tried = noted(MEASURED, line=line, **asdict(trial) | gains)
            rows[0] = replace(rows[0], findings=(*rows[0].findings, tried))
        return rows
    asked, huge = plans, plans[0]
    if isinstance(trial, PageTrial):  # of a guest: its host stays as it is
        huge = plan_for(HUGE, {} if captured.snapshot.native else {"layers": "gpt"}).beside(huge)
        huge = next((plan for plan in plans if plan == huge), huge)
        plans = [*plans, huge] if huge not in plans else plans
    if captured.trace.sampled_walks:
        must_be_enough(captured)
    done: dict[int, Counts] = {}
    for scenario, runs in by_scenario(plans, captured, refused):
        counts = _replayed(scenario, runs, setup, data=not done)  # of the baseline, which comes first
        done |= {id(run.plan): of_run for run, of_run in zip(runs, counts, strict=True)}
    larger, machine = captured.growth, captured.machine
    loaded = larger.factor > 1 and machine.latency.contended is not None
    states = (setup.contended,) if setup.contended or setup.calibration or not loaded else (False, True)
    if machine.nodes > 1 and machine.latency.contended is not None:
        known["memory"] = LOADS[states]
    measured: Calibration | Pages | None = None if isinstance(trial, PageTrial) else trial
    if isinstance(trial, PageTrial):
        if id(huge) not in done:
            raise UnfitError(trial.program, (refused or {})[label(huge, plans)])
        measured = Pages(trial, done[id(huge)], _here(trial, captured))
    every = [done[id(plan)] for plan in plans if id(plan) in done]
    rows = price(every, machine, setup.costs, Unknowns(states, measured), known)
    rows = rows[: len(rows) - len(plans) + len(asked)]
    doubts: list[Finding] = []
    if larger.factor > 1:
        doubts = of_one_size(captured.stream, captured.space.regions.va, setup.machine.tlb)
    times = captured.times_captured
    return of_larger(rows, every[: len(rows)], machine, states, times, larger.factor, doubts)


def _replayed(scenario: Scenario, runs: list[PolicyRun], setup: Setup, data: bool) -> list[Counts]:
    """Counts of each run: the trace replayed, and its steady state unless cold; data: as replay_walks'."""
    caches = scenario.caches()
    reads, warm = scenario.reads(caches=caches), not setup.as_traced
    spend = partial(spent, machine=scenario.machine, costs=setup.costs, contended=setup.contended)
    mapped = replay_walks(runs, scenario, reads, setup.progress, setup.windows, warm, spend, data)
    steady, steady_mapped = scenario, mapped
    if warm:
        steady = scenario.steady_state()
        again = steady.reads(caches=caches)
        steady_mapped = replay_steady_state(runs, steady, again, mapped, setup.progress, data)
    return counted(runs, scenario, mapped, steady, steady_mapped, setup)


def _here(trial: PageTrial, captured: Scenario) -> bool:
    """Whether a trial is of the captured program, on the machine that it was captured on."""
    facts, command = captured.snapshot.facts, captured.trace.facts.get("command")
    own = trial is captured.snapshot.trial
    return own or trial.of(str(facts.get("cpu")), str(command or facts.get("comm", "")))


def _must_fit(measured: Calibration | PageTrial | None, captured: Scenario) -> None:
    """UsageError for what was measured of another program than this capture's, or tells nothing of it."""
    if isinstance(measured, PageTrial):
        command = str(captured.trace.facts.get("command", ""))
        if not measured.named(name := process_of(captured.snapshot.facts, command)) and name != "PID":
            say(str(message("trial", "other", program=measured.program, name=name)))
        measured.must_fit(captured.traced, captured.times_captured * captured.extent[0])
    elif measured is not None and captured.traced:
        name = measured.name or "(unnamed)"
        if measured.exposed is None or not measured.local.walk:
            why = "has no walk cycles; calibrate with counters of page walks, or leave it out"
            raise UsageError(f"calibration {name}: {why}")
        if measured.native != captured.snapshot.native:
            of, is_ = ("native", "a VM's") if measured.native else ("a VM's", "native")
            raise UsageError(f"calibration {name}: of a run that was {of}, the capture is {is_}")
        local, chunks = measured.local, captured.trace.chunks
        traced = chunks["instructions"].sum() / max(chunks["accesses"].sum(), 1)
        run = (local.instructions or 0) / (local.accesses or 1)
        if local.accesses and run and traced and not 1 / UNLIKE <= run / traced <= UNLIKE:
            raise UsageError(
                f"calibration {name}: {run:.2g} instructions per load or store counted, {traced:.2g} in the "
                "trace: not the same program; count a run of the traced one, or leave --calibration out"
            )


def chosen(
    policies: Sequence[tuple[Policy | str, Mapping[str, Any]]], scenario: Scenario, setup: Setup
) -> list[Plan]:
    """[Plan]: the baseline that the Setup names, or that "auto" chooses, then the others in their order."""
    plans = [plan_for(policy, params) for policy, params in policies]
    name, own = baseline_of(scenario, setup.baseline)
    named = plan_for(name, own)
    alike = (plan for plan in plans if plan.name == named.name and (not own or plan.params == named.params))
    first = next(alike, named)
    return [first, *(plan.beside(first) for plan in plans if plan is not first)]


def by_scenario(
    plans: Sequence[Plan], scenario: Scenario, refused: dict[str, str] | None = None
) -> Iterator[tuple[Scenario, list[PolicyRun]]]:
    """Yield (Scenario, [PolicyRun]): plans that reshape the Scenario alike share its passes."""
    groups: dict[Hashable, list[Plan]] = {}
    for plan in plans:
        groups.setdefault(plan.reshaping, []).append(plan)
    for alike in groups.values():
        shaped: Scenario | None = None
        runs = []
        for plan in alike:
            try:
                with own_code(plan):
                    shaped = shaped or plan.reshape(scenario)
                    plan.check(shaped)
                runs.append(start(plan, shaped))
            except RefusedError as error:
                if refused is None or plan is plans[0]:
                    raise
                refused[label(plan, plans)] = error.why
        if shaped and runs:
            yield shaped, runs


def replay(
    capture: CaptureLike = None,
    policies: Policies = (),
    setup: Setup | None = None,
    *,
    judged: bool = False,
    **options: Unpack[Keywords],
) -> Replayed:
    """Replay the capture's walks under policies: all tables of a single run.

    policies  "hydra", "ptemagnet+hydra", ("hydra", {"prefetch": 3}), or a policies.contract.Policy of your
              own in place of a name; or a list of these; none: setup.asked_or_usual
    setup     machine, costs, placement of threads; or its fields as keyword arguments, with names and files
              (those of Setup): `replay("app", "hydra", machine="hydra-haswell", contended=True)`
    judged    with the Verdict: what mainline Linux offers beside the policies is replayed, too
    """
    known = open_replay_capture(capture)
    setup = setup_of(setup, options, known.capture)
    scenario, others, refused = known.scenario(setup), known.others(setup), dict[str, str]()
    asked = asked_or_usual(policies, known.snapshot)
    plans = chosen(asked, scenario, setup)
    more = mainline(scenario, plans) if judged else {}
    every = replay_scenario(scenario, [*plans, *more.values()], setup, known.provenance, refused, others)
    notes = _unknown(known, plans[0], setup, every[0], refused) if judged else []
    refused = {name: why for name, why in refused.items() if name not in more}
    results = [result for result in every if result.policy not in more]
    offered = every[len(results) :]
    results = with_refusals(results, refused, len(results) - len(plans) + len(asked))
    said = verdict(results, workload(scenario, others), offered, notes=notes) if judged else None
    return Replayed(results, setup.machine, refused, scenario.fits_caches, said)


def mainline(scenario: Scenario, plans: Sequence[Plan]) -> dict[str, Plan]:
    """{name: Plan} of what mainline Linux offers besides the plans for a traced Scenario; errors as of
    `must_tell`."""
    names = {HUGE} if scenario.snapshot.native else {HUGE, RESET}
    more = names - {plan.name for plan in plans} if scenario.traced else ()
    if more:
        must_tell(scenario)
    return {name: plan_for(name).beside(plans[0]) for name in sorted(more, reverse=True)}


def must_tell(scenario: Scenario) -> None:
    """Say that the trace of a smaller run does not tell what huge pages do, which is all that there is to
    ask on one node: UsageError."""
    try:
        if scenario.growth.factor > 1:
            must_fit(scenario.trace, scenario.machine.tlb, np.array([2]))
    except RefusedError:
        unknown = message("unknown", UNTOLD, way=unstripped(start_of(scenario.trace)))
        if scenario.machine.nodes == 1:
            why = f"on one node page size is the only question, and not known is {unknown}"
            raise UsageError(f"--stands-for: {why}; -m NAME asks about several nodes") from None
        say(f"not known in this answer: {unknown}")


def _unknown(
    known: ReplayCapture, baseline: Plan, setup: Setup, base: Result, refused: Mapping[str, str]
) -> list[Message]:
    """What is not known of the run, and what is known in its place: huge pages' gain at the traced size, and
    remote data with and without NUMA balancing."""
    notes = untold(refused, base, start_of(known.trace))
    if notes:
        small = replace(setup, stands_for=AS_CAPTURED)
        plans = [baseline, plan_for(HUGE).beside(baseline)]
        *_, huge = replay_scenario(known.scenario(small), plans, small, known.provenance, {})
        if huge.policy == HUGE and huge.speedup:
            notes.append(message("unknown", "traced-size", gain=huge.speedup))
    marked = base.finding("autonuma")
    if marked is not None and marked.numbers["hinting_faults"] and base.remote_data is not None:
        off = replace(setup, autonuma=None)
        [still] = replay_scenario(known.scenario(off), [baseline], off, known.provenance)
        if still.remote_data is not None:
            shares = {"on": base.remote_data, "off": still.remote_data}
            notes.append(message("unknown", "balancing", faults=marked.numbers["hinting_faults"], **shares))
    return notes


def whatif(
    capture: CaptureLike = None,
    policies: Policies = (),
    setup: Setup | None = None,
    **options: Unpack[Keywords],
) -> DataFrame:
    """Effects and costs of policies: a row per policy, the baseline's first. Arguments as in `replay`.

    Columns: COLUMNS of ptanalyze/cost/result.py, their units in attrs["units"]; shares are of walks.
    speedup, _low and _high are NaN without a trace. Printed: memory_mib, peak MiB over the baseline's.
    """
    return replay(capture, policies, setup, **options).frame


def reads(
    capture: CaptureLike = None,
    policies: Policies = (),
    setup: Setup | None = None,
    **options: Unpack[Keywords],
) -> DataFrame:
    """Reads of page-table entries between nodes: policy, params, dimension, level, reader, server, from,
    count. Arguments as in `replay`; details: frames.Replayed.reads."""
    return replay(capture, policies, setup, **options).reads


def replay_snapshot(
    snapshot: Snapshot,
    trace: Trace | None,
    policies: Sequence[tuple[Policy | str, Mapping[str, Any]]],
    setup: Setup,
    *,
    refused: dict[str, str] | None = None,
) -> list[Result]:
    """[Result]: the baseline's first, then those of all other `policies`.

    policies   [(Policy, or a name as "hydra" or "ptemagnet+hydra", parameters as {key: value or text})]
    refused    {}: policies that the capture does not allow are left out, added with the reason, by name, and
               noted in the results; None: RefusedError for the first
    Without a trace every mapped page counts once for each node; policies that depend on order are refused.
    UsageError for impossible parameters, combinations and placements, and where all policies are refused.
    """
    scenario = setup.scenario(snapshot, trace)
    plans = chosen(policies, scenario, setup)
    results = replay_scenario(scenario, plans, setup, refused=refused)
    return with_refusals(results, refused or {}, len(results) - len(plans) + len(policies))


# Locality over time: targets of walks in each window of the trace.


def timeline(
    capture: CaptureLike = None,
    policies: Policies = (),
    setup: Setup | None = None,
    **options: Unpack[Keywords],
) -> DataFrame:
    """Locality over time: one row per policy and window of equal time; the capture needs a trace.

    Columns: policy, params, time_ns (the window's end), walks, leaf_*_share of its walks, DRAM reads and the
    share of remote reads by dimension, share of walks whose data are on another socket, walks and data
    accesses per second (cost.throughput says how; accesses with their interval), tables and data pages moved
    so far, data also as a share of those mapped in the end. Arguments as in `replay`; 20 windows unless the
    setup has another number; of the run as traced (Setup.cold). vMitosis, Figure 6.
    """
    known = load(capture)
    return replayed_over_time(known, policies, setup_of(setup, options, known)).timeline


def replayed_over_time(capture: Capture, policies: Policies, setup: Setup) -> Replayed:
    """The Replayed behind `timeline`; UsageError without a trace."""
    capture.trace  # noqa: B018 - UsageError without a trace
    cold = replace(setup, machine=at_own_share(setup.machine), windows=setup.windows or WINDOWS, cold=True)
    return replay(capture, policies, cold)
