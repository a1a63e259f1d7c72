"""Policies that cannot run on a capture: they are named, and the others compared without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.errors import UsageError

if TYPE_CHECKING:
    from ..cost.result import Result
    from ..policies import Plan


def label(plan: Plan, plans: Sequence[Plan]) -> str:
    """The plan's name, and of several of one name the parameters that differ."""
    alike = [other.params for other in plans if other.name == plan.name]
    differ = [f"{key}={value}" for key, value in plan.params.items() if any(p[key] != value for p in alike)]
    return ":".join([plan.name, *differ])


def lines_of(refused: Mapping[str, str]) -> list[str]:
    """A line per refused policy, of {policy: why}."""
    return [f"policy {name}: {why}" for name, why in refused.items()]


def must_allow(refused: Mapping[str, str], asked: int) -> None:
    """UsageError, with the reasons, where all that was asked for is refused; asked as of `told`."""
    if refused and asked == 0:
        raise UsageError("; ".join(lines_of(refused)))


def told(results: Sequence[Result], refused: Mapping[str, str], asked: int) -> list[Result]:
    """The Results with a note per refused policy.

    asked  how many of the Results were asked for if none is refused, an added baseline left out
    UsageError, with the reasons, where all that was asked for is refused.
    """
    must_allow(refused, asked)
    lines = lines_of(refused)
    return [replace(result, notes=(*result.notes, *lines)) for result in results]
