"""One thing that was checked: how many were looked at, how many were wrong, and what that means."""

from dataclasses import dataclass

OK, NOTE, PARTIAL, FAILED = "ok", "note", "partial", "failed"


@dataclass(frozen=True)
class Finding:
    """`wrong` of `examined` did not pass; `verdict` is OK, NOTE (worth knowing), PARTIAL or FAILED."""

    name: str
    examined: int
    wrong: int
    verdict: str
    reason: str = ""


def finding(name, examined, wrong, reason, verdict=FAILED):
    """A Finding that is OK when nothing is wrong, else `verdict` with `reason`."""
    wrong = int(wrong)
    return Finding(name, int(examined), wrong, verdict if wrong else OK, reason if wrong else "")
