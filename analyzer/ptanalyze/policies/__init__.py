"""The placement policies. Importing this imports none of them: names come from their files on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .table import BOUND, POLICIES, names

if TYPE_CHECKING:
    from .base import RESEARCH, Policy, has_parameter, parameters
    from .combine import Plan
    from .known import NOT_MAINLINE, besides, find, label, members, plan_for, policies, share_settings, takes

DEFINED_IN = {
    "NOT_MAINLINE": "known",
    "besides": "known",
    "takes": "known",
    "RESEARCH": "base",
    "Policy": "base",
    "parameters": "base",
    "Plan": "combine",
    "find": "known",
    "label": "known",
    "members": "known",
    "plan_for": "known",
    "policies": "known",
    "share_settings": "known",
    "has_parameter": "base",
}
__all__ = [
    "BOUND",
    "NOT_MAINLINE",
    "POLICIES",
    "RESEARCH",
    "Plan",
    "Policy",
    "besides",
    "find",
    "has_parameter",
    "label",
    "members",
    "names",
    "parameters",
    "plan_for",
    "policies",
    "share_settings",
    "takes",
]


def __getattr__(name: str) -> Any:
    if name not in DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{DEFINED_IN[name]}", __name__), name)
    return value
