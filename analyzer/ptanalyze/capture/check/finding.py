"""The result of a check: the numbers examined and wrong, and a verdict."""

from dataclasses import dataclass
from typing import SupportsInt

OK, NOTE, PARTIAL, FAILED = "ok", "note", "partial", "failed"


@dataclass(frozen=True)
class Finding:
    """`wrong` of `examined` did not pass; `verdict` is OK, NOTE (worth knowing), PARTIAL or FAILED."""

    name: str
    examined: int
    wrong: int
    verdict: str
    reason: str = ""


def finding(
    name: str, examined: SupportsInt, wrong: SupportsInt, reason: str, verdict: str = FAILED
) -> Finding:
    """A Finding that is OK when nothing is wrong, else `verdict` with `reason`."""
    count = int(wrong)
    return Finding(name, int(examined), count, verdict if count else OK, reason if count else "")
