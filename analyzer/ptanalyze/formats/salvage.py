"""Whether an importer keeps what comes before damage, and which damage it came to."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ..core.errors import CaptureError


class Damaged(CaptureError):
    """A foreign trace is cut off or damaged; what comes before, or its other files, may be sound."""


_DAMAGE: ContextVar[list[str] | None] = ContextVar("DAMAGE", default=None)


@contextmanager
def salvaging(wanted: bool = True) -> Iterator[list[str]]:
    """A list that gets a line for each piece of damage that is passed over within the block; `wanted` False:
    none is."""
    damage: list[str] = []
    token = _DAMAGE.set(damage if wanted else None)
    try:
        yield damage
    finally:
        _DAMAGE.reset(token)


def damage() -> list[str] | None:
    """What was passed over so far; None where nothing may be."""
    return _DAMAGE.get()


def passed_over(error: CaptureError) -> bool:
    """Whether to go on with what is sound, the damage having been noted."""
    known = damage()
    if known is None:
        return False
    known.append(str(error))
    return True
