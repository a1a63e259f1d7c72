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

DEFINED_IN = {
    "NOT_MAINLINE": "registry",
    "caveat": "registry",
    "availability": "registry",
    "RESEARCH": "contract",
    "Policy": "contract",
    "parameters": "contract",
    "Plan": "registry",
    "find": "registry",
    "label": "registry",
    "members": "registry",
    "plan_for": "registry",
    "policies": "registry",
    "share_settings": "registry",
    "has_parameter": "contract",
}
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
    if name not in DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{DEFINED_IN[name]}", __name__), name)
    return value
