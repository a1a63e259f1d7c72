"""Policies from outside whose own code fails: an error of one line that names the policy and the place."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from types import FunctionType

from ..core.errors import PtanalyzeError, UsageError
from ..kernels.hooks import is_ours, uncompiled
from .combine import Plan
from .table import POLICIES

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
