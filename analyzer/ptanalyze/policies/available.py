"""What it takes to have a policy on a machine: a line to type today, or a research kernel."""

from .base import RESEARCH, TODAY
from .known import members

NOT_MAINLINE = "none of Mitosis, vMitosis, Hydra, WASP, PTEMagnet is mainline"


def besides(name: str) -> str:
    """What to know before typing the line of `takes`, of a policy or of several as A+B; "" nothing."""
    return "; ".join(filter(None, (policy.besides for policy in members(name))))


def takes(name: str) -> str:
    """In words, of a policy or of several as A+B: "today: LINE", "research kernel", or why nothing has it."""
    parts = [policy.takes for policy in members(name)]
    others = [part for part in parts if not part.startswith(TODAY.rstrip(": "))]
    if others:
        return RESEARCH if RESEARCH in others else others[0]
    return "; ".join(dict.fromkeys(parts))
