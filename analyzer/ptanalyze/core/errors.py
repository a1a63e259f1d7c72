"""Errors: a line that a person can act on, and an exit code.

Exit codes: 0 all well, 1 a capture failed a check, 2 wrong usage or input, 3 the data is only partial.
"""

from collections.abc import Mapping
from typing import Any, Final

from .printable import printable

NO_VALUE: Final = object()  # of a missing field
MOST_CHARACTERS = 400  # of a value in a line
LARGEST_DECIMAL = 1 << 1024  # Python writes no decimal number of over 4,300 digits


class PtanalyzeError(Exception):
    """One line: where, what, and how to fix it. Printed without a traceback."""

    exit_code = 2

    def __str__(self) -> str:
        return printable(super().__str__())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as it is, whatever its __init__ takes: workers raise errors too."""
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[PtanalyzeError], args: tuple[Any, ...], fields: Mapping[str, Any]) -> PtanalyzeError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class UsageError(PtanalyzeError):
    """The command, a parameter or a machine file is wrong (exit 2)."""


class RefusedError(UsageError):
    """A policy cannot run on this capture; a comparison goes on with the others (exit 2 if none is left).

    why  what the capture lacks, and the way out
    """

    def __init__(self, why: str, policy: str = "") -> None:
        super().__init__(f"policy {policy}: {why}" if policy else why)
        self.why = why


class CaptureError(PtanalyzeError):
    """A capture file is damaged, foreign or contradicts itself (exit 1)."""

    exit_code = 1

    def __init__(self, file: object, field: str, value: object, why: str) -> None:
        super().__init__(f"{file}: {said(field, value, why)}")


class InputError(CaptureError):
    """A file beside captures, such as perf stat's output, cannot be what it was given as (exit 2)."""

    exit_code = 2


class PartialDataError(PtanalyzeError):
    """The data was read, but part of it is missing, e.g. the process ended while it was dumped (exit 3)."""

    exit_code = 3


def said(field: str, value: object, why: str) -> str:
    """ "field = value: why", or "field: why" without a value."""
    return f"{field}: {why}" if value is NO_VALUE else f"{field} = {written(value)}: {why}"


def written(value: object) -> str:
    """Text of a value, cut where it is longer than anyone reads."""
    text = hex(value) if isinstance(value, int) and abs(value) > LARGEST_DECIMAL else str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
