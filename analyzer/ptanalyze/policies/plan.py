"""A policy, or several joined by "+", resolved to a Plan for the replay."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from traceback import walk_tb
from types import FunctionType
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ..core.errors import PtanalyzeError, UsageError
from ..core.finding import Finding
from ..core.machine import Machine
from ..kernels.jit import is_ours, uncompiled
from .contract import Policy, PolicySide, World, check_needs, nodes_of, share_out
from .static_replicas import AS_CAPTURED, BIND, NOWHERE, State
from .table import POLICIES

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

    @property
    def reshaping(self) -> tuple[tuple[str, bytes], ...]:
        """Cache key: plans with equal keys share a World."""
        return tuple(
            (policy.name, msgspec.json.encode(params)) for policy, params in self.members if policy.reshape
        )

    def reshape(self, world: World) -> World:
        """The World after all members' reshaping; RefusedError where the capture lacks a need of a policy."""
        self.check(world)
        for policy, params in self.members:
            if policy.reshape:
                world = policy.reshape(world, params)
        return world

    def check(self, world: World) -> None:
        """RefusedError where the capture behind the World lacks a need of a member."""
        by_guest = not any(policy.wrap_guest for policy, _ in self.members)
        for policy, params in self.members:
            check_needs(policy, params, world.captured, by_guest)


def plan(policies: Sequence[Policy], settings: Mapping[str, Any]) -> Plan:
    """Plan of policies that act on different things; settings: {key or policy.key: value}.

    UsageError names policies that act on the same thing, and parameters that none of them has.
    """
    name = "+".join(policy.name for policy in policies)
    members = tuple(zip(policies, _configured(name, policies, settings), strict=True))
    taken: dict[str, str] = {}
    for policy, params in members:
        for what in sorted(policy.acts_on(params)):
            if what in taken:
                raise UsageError(
                    f"policy {name}: {taken[what]} and {policy.name} both act on "
                    f"{ACTED_ON.get(what, what)}; give them apart "
                    "(-p A -p B), or restrict one by a parameter such as layers"
                )
            taken[what] = policy.name
    guest, of_guest = _part(members, "gPT", 0)
    host, of_host = _part(members, "ePT", 1)
    for policy, params in members:
        if policy.wrap_guest:
            guest, of_guest = policy.wrap_guest(guest, of_guest, params)
    return Plan(name, members, (guest or AS_CAPTURED[0], of_guest), (host or AS_CAPTURED[1], of_host))


def _part(members: Iterable[tuple[Policy, Any]], what: str, dimension: int) -> tuple[PolicySide | None, Any]:
    """(PolicySide, parameters) of the member that acts on `what`; (None, None) where none does."""
    for policy, params in members:
        part = (policy.guest, policy.host)[dimension]
        if part is not None and what in policy.acts_on(params):
            return part, params
    return None, None


def _configured(name: str, policies: Sequence[Policy], settings: Mapping[str, Any]) -> list[Any]:
    """Parameters of each policy."""
    if len(policies) == 1:  # a key that it lacks is its own error
        prefix = f"{policies[0].name}."
        return [policies[0].configure({key.removeprefix(prefix): settings[key] for key in settings})]
    shares = share_out(f"policy {name}:", policies, settings.items())
    return [policy.configure(share) for policy, share in zip(policies, shares, strict=True)]


# Policies from outside whose own code fails: an error of one line that names the policy and the place.

NOT_ITS_OWN = {"ptanalyze", "numba", "numpy", "importlib", "_frozen_importlib"}  # packages in a traceback
PLACE = re.compile(r" at (\S.*\.py) \((\d+)\)$", re.MULTILINE)  # in Numba's messages
HOOK = re.compile(r"<function (\w+) at ")


class BrokenPolicyError(UsageError):
    """The code of a policy from outside fails; `advise` goes on without it.

    policy  its name; why: what failed, and where
    """

    def __init__(self, policy: str, why: str) -> None:
        super().__init__(f"policy {policy}: {why}")
        self.policy, self.why = policy, why


@contextmanager
def own_code(plan: Plan) -> Iterator[None]:
    """BrokenPolicyError for what the code of a Plan's policies raises; ours alone raise what they do."""
    try:
        yield
    except (PtanalyzeError, MemoryError):
        raise
    except Exception as error:
        if all(policy.name in POLICIES for policy, _ in plan.members):
            raise
        more = f"ptanalyze.replay(CAPTURE, {plan.name!r}) in Python shows the whole traceback"
        where = place(error) or place_of_hook(error, plan)
        raise BrokenPolicyError(
            plan.name, f"{said(error)}{f' ({where})' if where else ''}; {more}"
        ) from error


def said(error: Exception) -> str:
    """Type and message in a line: of Numba's, which take many, the reason."""
    lines = [line.strip() for line in str(error).splitlines()]
    reasons = [line for line in lines if line and not line.startswith("Failed in nopython mode")]
    reason = reasons[0] if reasons else ""
    if re.match(r"\w+Error: ", reason):
        return reason
    return f"{type(error).__name__}: {reason}".removesuffix(": ")


def place(error: Exception) -> str:
    """FILE:LINE where Python left a policy's own code, "" where it was not there."""
    own = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] not in NOT_ITS_OWN
    ]
    return own[-1] if own else ""


def place_of_hook(error: Exception, plan: Plan) -> str:
    """FILE:LINE of the hook that Numba cannot compile, "" where its message names none."""
    hooks = own_hooks(plan)
    files = {hook.__code__.co_filename for hook in hooks}
    typed = [f"{file}:{line}" for file, line in PLACE.findall(str(error)) if file in files]
    if typed:
        return typed[0]
    named = HOOK.search(str(error))
    for hook in hooks:
        function = uncompiled(hook.__globals__.get(named[1])) if named else None
        if isinstance(function, FunctionType):
            return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
    return ""


def own_hooks(plan: Plan) -> list[FunctionType]:
    """Python functions behind the hooks that are not ours."""
    hooks = [uncompiled(hook) for part, _ in (plan.guest, plan.host) for hook in part.hooks]
    return [hook for hook in hooks if not is_ours(hook)]


# Nodes that a policy places tables on: the machine must have them; compiled code does not look.


def check_nodes(policy: str, what: str, nodes: np.ndarray, machine: Machine, least: int = 0) -> None:
    """BrokenPolicyError for the first of `nodes` that is below `least` or that the machine lacks."""
    wrong = nodes[(nodes < least) | (nodes >= machine.nodes)]
    if wrong.size:
        raise BrokenPolicyError(policy, f"{what} node {wrong.flat[0]}, {nodes_of(machine)}")


def check_placed(policy: str, state: Any, machine: Machine) -> None:
    """The same for all nodes in the fixed_copies.State that a hook's state is or holds."""
    for placed in fixed(state):
        what = "start placed a table on"
        for anywhere in (placed.home, placed.again, placed.serve):
            check_nodes(policy, what, anywhere, machine, NOWHERE)
        bound = placed.rule[1:2] if placed.rule[0] == BIND else placed.rule[:0]
        for named in (placed.copies, placed.turns, bound):
            check_nodes(policy, what, named, machine)


def fixed(state: Any) -> Iterator[State]:
    if isinstance(state, State):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from fixed(part)
