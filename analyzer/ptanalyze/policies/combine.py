"""A policy, or several joined by "+", resolved to a Plan for the replay."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ..core.errors import UsageError
from .base import Part, Policy, World, check_needs
from .fixed_copies import AS_CAPTURED
from .settings import share_out

ACTED_ON = {  # in words, in a VM and without one
    "gPT": "the program's page table (in a VM the guest's, gPT)",
    "ePT": "the host's page table of a VM (ePT)",
}


class Plan(NamedTuple):
    """`members` are [(Policy, parameters)] in a fixed order, so that "a+b" is "b+a"."""

    name: str
    members: tuple[tuple[Policy, Any], ...]
    guest: tuple[Part, Any]
    host: tuple[Part, Any]

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
    def notes(self) -> tuple[str, ...]:
        """Policy.note of the members that have one."""
        return tuple(policy.note for policy, _ in self.members if policy.note)

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
        by_guest = not any(policy.over_guest for policy, _ in self.members)
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
        if policy.over_guest:
            guest, of_guest = policy.over_guest(guest, of_guest, params)
    return Plan(name, members, (guest or AS_CAPTURED[0], of_guest), (host or AS_CAPTURED[1], of_host))


def _part(members: Iterable[tuple[Policy, Any]], what: str, dimension: int) -> tuple[Part | None, Any]:
    """(Part, parameters) of the member that acts on `what`; (None, None) where none does."""
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
