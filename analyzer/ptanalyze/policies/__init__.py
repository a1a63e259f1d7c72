"""The placement policies. Importing this imports none of them: names come from their files on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .table import BOUND, POLICIES, names

if TYPE_CHECKING:
    from .available import NOT_MAINLINE, besides, takes
    from .base import RESEARCH, Policy, parameters
    from .combine import Plan
    from .known import find, members, plan_for, policies, share_settings
    from .labels import label
    from .settings import has_parameter

DEFINED_IN = {
    "NOT_MAINLINE": "available",
    "besides": "available",
    "takes": "available",
    "RESEARCH": "base",
    "Policy": "base",
    "parameters": "base",
    "Plan": "combine",
    "find": "known",
    "label": "labels",
    "members": "known",
    "plan_for": "known",
    "policies": "known",
    "share_settings": "known",
    "has_parameter": "settings",
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
