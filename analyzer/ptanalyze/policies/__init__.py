"""The placement policies. Importing this imports none of them: names come from their files on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .table import BOUND, POLICIES, names

if TYPE_CHECKING:
    from .contract import RESEARCH, Policy, has_parameter, parameters
    from .registry import (
        NOT_MAINLINE,
        Plan,
        availability,
        caveat,
        find,
        label,
        members,
        plan_for,
        policies,
        share_settings,
    )

CONTRACT = ("RESEARCH", "Policy", "has_parameter", "parameters")  # the others are in registry.py
__all__ = [
    "BOUND",
    "NOT_MAINLINE",
    "POLICIES",
    "RESEARCH",
    "Plan",
    "Policy",
    "availability",
    "caveat",
    "find",
    "has_parameter",
    "label",
    "members",
    "names",
    "parameters",
    "plan_for",
    "policies",
    "share_settings",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    file = ".contract" if name in CONTRACT else ".registry"
    value = globals()[name] = getattr(import_module(file, __name__), name)
    return value
