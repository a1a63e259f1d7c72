"""Policies by name, ours imported when their names are looked up and outside ones by entry point; one or
several joined by "+" resolved to a Plan for the replay.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from traceback import walk_tb
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np

from ..core.columns import AS_STARTED, Finding
from ..core.errors import PtanalyzeError, UsageError, meant
from ..core.machine import Machine
from ..kernels.jit import say
from .contract import (
    RESEARCH,
    Availability,
    Policy,
    PolicySide,
    Scenario,
    Setting,
    check_needs,
    nodes_of,
    parameters,
    share_out,
)
from .static_replicas import AS_CAPTURED, BIND, MISPLACED, State
from .table import POLICIES, outside_points

ACTED_ON = {  # in words, in a VM and without one
    "gPT": "the program's page table (in a VM the guest's, gPT)",
    "ePT": "the host's page table of a VM (ePT)",
}


class Plan(NamedTuple):
    """`members` are [(Policy, parameters)] in a fixed order, so that "a+b" is "b+a"."""

    name: str
    members: tuple[tuple[Policy, Any], ...]
    guest: tuple[PolicySide, Any]
    host: tuple[PolicySide, Any]

    @property
    def params(self) -> dict[str, Any]:
        """{key: value}, of several members {policy.key: value}."""
        several = len(self.members) > 1
        return {
            f"{policy.name}.{key}" if several else key: value
            for policy, params in self.members
            for key, value in msgspec.structs.asdict(params).items()
        }

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Policy.finding of the members that have one."""
        return tuple(policy.finding for policy, _ in self.members if policy.finding)

    def beside(self, baseline: Self) -> Self:
        """The Plan with what it does not act on as under a baseline that places tables from the start on."""
        if all(finding.code != AS_STARTED for finding in baseline.findings):
            return self
        guest, host = (side[side[0][1] is None] for side in zip(self[2:], baseline[2:], strict=True))
        return self._replace(guest=guest, host=host)

    @property
    def reshaping(self) -> tuple[tuple[str, bytes], ...]:
        """Cache key: plans with equal keys share a Scenario."""
        return tuple(
            (policy.name, msgspec.json.encode(params)) for policy, params in self.members if policy.reshape
        )

    def reshape(self, scenario: Scenario) -> Scenario:
        """The Scenario as all members reshape it; RefusedError where the capture lacks a need of a policy."""
        self.check(scenario)
        for policy, params in self.members:
            if policy.reshape:
                scenario = policy.reshape(scenario, params)
        return scenario

    def check(self, scenario: Scenario) -> None:
        """RefusedError where the capture behind the Scenario lacks a need of a member."""
        by_guest = not any(policy.wrap_guest for policy, _ in self.members)
        for policy, params in self.members:
            check_needs(policy, params, scenario.captured, by_guest)


def plan(policies: Sequence[Policy], settings: Mapping[str, Any]) -> Plan:
    """Plan of policies that act on different things; settings: {key or policy.key: value}.

    UsageError names policies that act on the same thing, and parameters that none of them has.
    """
    name = "+".join(policy.name for policy in policies)
    if len(policies) == 1:  # a key that it lacks is its own error
        prefix = f"{policies[0].name}."
        shares: Sequence[Any] = [{key.removeprefix(prefix): settings[key] for key in settings}]
    else:
        shares = share_out(f"policy {name}:", policies, settings.items())
    members = tuple((policy, policy.configure(of)) for policy, of in zip(policies, shares, strict=True))
    made = Plan(name, members, (AS_CAPTURED[0], None), (AS_CAPTURED[1], None))
    with own_code(made):
        taken: dict[str, str] = {}
        for policy, params in members:
            policy.had_by(msgspec.structs.asdict(params))  # fails now, if it does, not when results are shown
            for what in sorted(policy.acts_on(params)):
                if what in taken:
                    both = f"{taken[what]} and {policy.name} both act on {ACTED_ON.get(what, what)}"
                    way = "give them apart (-p A -p B), or restrict one by a parameter such as layers"
                    raise UsageError(f"policy {name}: {both}; {way}")
                taken[what] = policy.name
        guest, of_guest = _part(members, "gPT", 0)
        host, of_host = _part(members, "ePT", 1)
        for policy, params in members:
            if policy.wrap_guest:
                guest, of_guest = policy.wrap_guest(guest, of_guest, params)
    return made._replace(guest=(guest or AS_CAPTURED[0], of_guest), host=(host or AS_CAPTURED[1], of_host))


def _part(members: Iterable[tuple[Policy, Any]], what: str, dimension: int) -> tuple[PolicySide | None, Any]:
    """(PolicySide, parameters) of the member that acts on `what`; (None, None) where none does."""
    for policy, params in members:
        part = (policy.guest, policy.host)[dimension]
        if part is not None and what in policy.acts_on(params):
            return part, params
    return None, None


# Policies from outside whose own code fails: an error of one line that names the policy and the place.

NOT_ITS_OWN = {"ptanalyze", "numba", "numpy", "importlib", "_frozen_importlib"}  # packages in a traceback
PLACE = re.compile(r" at (\S.*\.py) \((\d+)\)$", re.MULTILINE)  # in Numba's messages
OURS_OR_NUMBAS = re.compile(r"[/\\](ptanalyze|numba)[/\\]")


class BrokenPolicyError(UsageError):
    """The code of a policy from outside fails. policy: its name; why: what failed, and where."""

    def __init__(self, policy: str, why: str) -> None:
        super().__init__(f"policy {policy}: {why}")
        self.policy, self.why = policy, why


@contextmanager
def own_code(plan: Plan) -> Iterator[None]:
    """BrokenPolicyError for what the code of a Plan's policies raises; ours alone raise what they do."""
    try:
        yield
    except Exception as error:
        blame(plan, error)
        raise


def blame(plan: Plan, error: Exception) -> None:
    """BrokenPolicyError in place of an error that the code of a Plan's policies from outside raised."""
    if isinstance(error, MemoryError) or all(policy.name in POLICIES for policy, _ in plan.members):
        return
    if type(error) is UsageError:  # a line to print
        raise BrokenPolicyError(plan.name, str(error).removeprefix(f"policy {plan.name}: ")) from error
    if not isinstance(error, PtanalyzeError):
        where = f" ({at})" if (at := place(error)) else ""
        more = f"ptanalyze.replay(CAPTURE, {plan.name!r}) in Python shows the whole traceback"
        raise BrokenPolicyError(plan.name, f"{reason(error)}{where}; {more}") from error


def reason(error: Exception) -> str:
    """Type and message in a line: of Numba's, which take many, the first that says why."""
    lines = [line.strip() for line in str(error).splitlines()]
    why = [line for line in lines if line and not line.startswith("Failed in nopython mode")]
    first = why[0] if why else ""
    return first if re.match(r"\w+Error: ", first) else f"{type(error).__name__}: {first}".removesuffix(": ")


def place(error: Exception) -> str:
    """FILE:LINE where Python left a policy's own code, or that Numba could not compile; "" neither."""
    own = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] not in NOT_ITS_OWN
    ]
    told = PLACE.findall(str(error))
    compiled = [f"{file}:{line}" for file, line in told if not OURS_OR_NUMBAS.search(file)]
    return own[-1] if own else compiled[0] if compiled else ""


# Nodes that a policy places tables on: the machine must have them; compiled code does not look.


def check_nodes(policy: str, what: str, nodes: np.ndarray, machine: Machine, least: int = 0) -> None:
    """BrokenPolicyError for the first of `nodes` that is below `least` or that the machine lacks."""
    wrong = nodes[(nodes < least) | (nodes >= machine.nodes)]
    if wrong.size:
        raise BrokenPolicyError(policy, f"{what} node {wrong.flat[0]}, {nodes_of(machine)}")


def check_placed(policy: str, state: Any, machine: Machine) -> None:
    """Check all nodes in the static_replicas.State that a hook's state is or holds."""
    for placed in fixed(state):
        what = "start placed a table on"
        for anywhere in (placed.home, placed.again, placed.serve):
            check_nodes(policy, what, anywhere, machine, MISPLACED)
        bound = placed.rule[1:2] if placed.rule[0] == BIND else placed.rule[:0]
        for named in (placed.copies, placed.turns, bound):
            check_nodes(policy, what, named, machine)


def fixed(state: Any) -> Iterator[State]:
    if isinstance(state, State):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from fixed(part)


def policies() -> dict[str, Policy]:
    """{name: Policy}: ours first."""
    return {name: ours(name) for name in POLICIES} | outside()


def ours(name: str) -> Policy:
    """The Policy of a name in POLICIES."""
    file, _, policy = POLICIES[name].partition(".")
    return getattr(import_module(f".{file}", __package__), policy)


@cache
def outside() -> dict[str, Policy]:
    """{name: Policy}: an entry point that loads a Policy adds it, but replaces none.

    A line on standard error names each that cannot be loaded.
    """
    known: dict[str, Policy] = {}
    for point in outside_points():
        try:
            policy = loaded(point)
        except BrokenPolicyError as error:
            say(f"{error}; left out")
            continue
        if policy.name not in POLICIES:
            known.setdefault(policy.name, policy)
    return known


def loaded(point: EntryPoint) -> Policy:
    """The Policy of an entry point; BrokenPolicyError where there is none."""
    name = f"{point.name} (package {point.dist.name} {point.dist.version})" if point.dist else point.name
    try:
        policy = point.load()
    except Exception as error:
        command = f"python -c 'from {point.module} import {point.attr.partition('.')[0]}'"
        where = place(error)
        why = f"cannot be loaded: {reason(error)}{f' ({where})' if where else ''}; {command} shows all"
        raise BrokenPolicyError(name, why) from error
    if not isinstance(policy, Policy):
        raise BrokenPolicyError(name, f"{point.value}: not a ptanalyze.policies.Policy")
    return policy


def find(name: str) -> Policy:
    """The Policy of that name; UsageError lists the known names.

    Of outside ones it loads the entry point of that name; all of them where that is not the policy's.
    """
    if name in POLICIES:
        return ours(name)
    for point in outside_points().select(name=name):
        policy = loaded(point)
        if policy.name == name:
            return policy
    known = outside()
    if name not in known:
        every = [*POLICIES, *known]
        way = "NAME:KEY=VALUE:KEY=VALUE; " if "=" in name else meant(name, every)
        raise UsageError(f"policy {name}: no such policy; {way}there are: {', '.join(every)}")
    return known[name]


def members(name: str | Policy) -> list[Policy]:
    """[Policy] of "a" or "a+b", in a fixed order: those that reshape the scenario first.

    A Policy, known by name or not, is its own only member.
    """
    if isinstance(name, Policy):
        return [name]
    parts = [find(part.strip()) for part in name.split("+")]
    if len(parts) == 1:
        return parts
    rank = {name: k for k, name in enumerate(POLICIES)}
    return sorted(parts, key=lambda one: (one.reshape is None, rank.get(one.name, len(rank)), one.name))


def share_settings(names: Sequence[str | Policy], settings: Iterable[Setting]) -> list[dict[str, Any]]:
    """[{key: value}] for each name, as plan_for takes them: KEY goes to every policy that has it.

    UsageError for a setting that none takes.
    """
    asked = [(k, policy) for k, name in enumerate(names) for policy in members(name)]
    shared: list[dict[str, Any]] = [{} for _ in names]
    shares = share_out("--set", [policy for _, policy in asked], settings)
    for (k, policy), share in zip(asked, shares, strict=True):
        prefix = f"{policy.name}." if len(members(names[k])) > 1 else ""
        shared[k] |= {prefix + key: value for key, value in share.items()}
    return shared


def plan_for(policy: str | Policy, settings: Mapping[str, Any] | None = None) -> Plan:
    """Plan of a Policy, or of a name as "hydra" or "ptemagnet+hydra", with its parameters."""
    return plan(members(policy), dict(settings or {}))


# A policy with its settings, as one types it after -p: "mitosis:nodes=0,2".


def label(policy: str, params: Mapping[str, Any], others: Sequence[Mapping[str, Any]] = ()) -> str:
    """The name, the settings that are not the defaults, and those in which `others` of the policy differ; of
    several as A+B with the policy of a key only where both have it."""
    usual = defaults(policy)
    names = [key.rpartition(".")[2] for key in usual]
    said = [
        f"{short if names.count(short := key.rpartition('.')[2]) == 1 else key}={value}"
        for key, value in params.items()
        if str(value) != str(usual.get(key, value))
        or (value != "" and any(str(other.get(key)) != str(value) for other in others))
    ]
    return ":".join([policy, *said])


@cache
def defaults(policy: str) -> dict[str, Any]:
    """{key: default} of a policy, {policy.key: default} of several as A+B; {} of what is no policy here."""
    try:
        found = members(policy)
    except UsageError:
        return {}
    several = len(found) > 1
    return {
        f"{one.name}.{key}" if several else key: default
        for one in found
        for key, default, *_ in parameters(one)
    }


# How to get a policy today: a command, or a research kernel.

NOT_MAINLINE = "none of Mitosis, vMitosis, Hydra, WASP, PTEMagnet is mainline"


def availability(
    name: str, settings: Mapping[str, Any] | None = None, host_nodes: Sequence[tuple[int, ...]] = ()
) -> Availability:
    """How to get a policy with its settings, or several as A+B with {policy.key: value}, on a host.

    host_nodes  Machine.host_nodes
    """
    found, parts = members(name), []
    for one in found:
        own, given = f"{one.name}.", (settings or {}).items()
        its = [(key, value) for key, value in given if len(found) == 1 or key.startswith(own)]
        parts.append(one.had_by({key.removeprefix(own): value for key, value in its}, host_nodes))
    others = [part for part in parts if not part.line]
    if others:
        return RESEARCH if RESEARCH in others else others[0]
    first, *_ = parts
    return first._replace(line="; ".join(dict.fromkeys(part.line for part in parts)))
