"""Files of machines, which are written here, and of calibrations."""

from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from ..core.errors import InputError, UsageError
from ..core.interval import Interval
from ..core.machine import Machine
from ..core.safe_files import Undecodable, plain_toml, read_given, struct_of
from ..cost.law import LEAST as LEAST_MEASURED
from ..cost.law import RATIOS, Calibration, PageTrial, impossible, placement
from .atomic import atomic_write
from .text_output import toml


def write_machine(path: str | PathLike[str], machine: Machine) -> None:
    """Write a Machine as a file that load_machine reads; UsageError unless it is named FILE.toml."""
    if Path(path).suffix != ".toml" or not Path(path).parent.is_dir():
        raise UsageError(f"{path}: expected FILE.toml in a directory that exists")
    with atomic_write(path, given=True) as out:
        out.write(toml(msgspec.to_builtins(machine)).encode())


# Calibration files: TOML with fixed fields, written by `ptanalyze calibrate` and `trial`, read strictly.

FORMAT, VERSION, PAGE_SIZE = "ptanalyze-calibration", 2, "page size"
WRITTEN_BY = "`calibrate -o` and `trial --pages -o` write such files"
HEAD = ("format", "version", "kind")
NUMBERS = ("walkers", "busy", "noise", "counted_noise", "repair")
LEAST = {"remote_stretch": 1.0, "contended_stretch": 1.0, **dict.fromkeys(RATIOS, LEAST_MEASURED)}
MOST = {"exposed": 1.0, "gpt_part": 1.0}
FACTOR = 1e6  # no coefficient is beyond


def write_calibration(path: str | PathLike[str], calibration: Calibration | PageTrial) -> None:
    """Write a Calibration or a PageTrial as TOML: whole, synced, 0600."""
    kind = PAGE_SIZE if isinstance(calibration, PageTrial) else None
    fields = {"format": FORMAT, "version": VERSION, "kind": kind, **msgspec.to_builtins(calibration)}
    with atomic_write(path, given=True) as out:
        out.write(toml(fields).encode())


def read_measured(path: str | PathLike[str]) -> Calibration | PageTrial:
    """Calibration or PageTrial of a file; InputError names file, field and value of a damaged one."""
    try:
        return _checked(path, plain_toml(read_given(path)))
    except Undecodable as error:
        raise InputError(path, error.field, error.value, f"{error.why}; {WRITTEN_BY}") from None


def _checked(path: str | PathLike[str], raw: dict[str, Any]) -> Calibration | PageTrial:
    if raw.get("format") != FORMAT:
        raise InputError(path, "format", raw.get("format"), f"expected {FORMAT}; {WRITTEN_BY}")
    if raw.get("version") != VERSION:
        raise InputError(path, "version", raw.get("version"), f"this release reads version {VERSION}")
    if raw.get("kind", PAGE_SIZE) != PAGE_SIZE:
        raise InputError(path, "kind", raw["kind"], f"expected {PAGE_SIZE}, or no kind")
    plain = {field: value for field, value in raw.items() if field not in HEAD}
    kind: type[Calibration | PageTrial] = PageTrial if "kind" in raw else Calibration
    record = struct_of(plain, kind)
    for field in record.__struct_fields__:
        interval, low, high = getattr(record, field), LEAST.get(field, 0.0), MOST.get(field, FACTOR)
        if isinstance(interval, Interval) and not (
            low <= interval.low <= interval.middle <= interval.high <= high
        ):
            shown = ", ".join(f"{value:g}" for value in interval)
            why = f"expected low, middle, high in this order from {low:g} to {high:g}"
            raise InputError(path, field, shown, why)
    if isinstance(record, Calibration):
        _check(path, record)
    return record


def _check(path: str | PathLike[str], record: Calibration) -> None:
    for field in NUMBERS:
        value = getattr(record, field)
        known = bool(value) if field != "walkers" else value is not None
        if known and not LEAST_MEASURED <= value <= FACTOR:
            raise InputError(path, field, value, f"expected a number from {LEAST_MEASURED:g} to {FACTOR:g}")
    for which in ("local", "remote"):
        if (run := getattr(record, which)) is not None:
            if run.cycles is None and run.seconds is None:
                raise InputError(path, f"{which}.cycles", None, "expected cycles, or seconds")
            for field, value, why in impossible(run):
                raise InputError(path, f"{which}.{field}", value, why)
    if (record.remote is None) != (record.placement is None):
        raise InputError(path, "placement", record.placement, "a remote run and its placement go together")
    for field in ("placement", "at"):
        name = getattr(record, field)
        if name is not None and not _fits(name, record.native):
            raise InputError(path, field, name, "does not fit the rest of the file")


def _fits(name: str, native: bool) -> bool:
    try:
        where = placement(name)
    except UsageError:
        return False
    return (where.ept is None) == native
