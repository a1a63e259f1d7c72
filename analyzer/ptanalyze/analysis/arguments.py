"""What the API's functions may be given, and what they make of it: captures, machines, policies, costs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ..core.machine import Costs, Machine, load_costs, load_machine
from ..formats.capture import Capture, PathLike

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..core.snapshot import Snapshot
    from ..cost.calibration import Calibration
    from ..policies import Policy

MachineLike: TypeAlias = "PathLike | Machine"
Settings: TypeAlias = Mapping[str, Any]
PolicyLike: TypeAlias = "str | Policy | tuple[str | Policy, Settings]"
Policies: TypeAlias = "PolicyLike | Sequence[PolicyLike]"


def machine_of(machine: MachineLike) -> Machine:
    return machine if isinstance(machine, Machine) else load_machine(machine)


def costs_of(machine: Machine, costs: PathLike | Costs | None) -> Costs:
    if isinstance(costs, Costs):
        return costs
    return load_costs(machine, costs)


def calibration_of(calibration: PathLike | Calibration | None) -> Calibration | None:
    from ..formats.calibration_file import read_calibration

    if not isinstance(calibration, (str, os.PathLike)):
        return calibration
    found: Calibration = read_calibration(calibration)
    return found


def policies_of(asked: Policies) -> list[tuple[str | Policy, dict[str, Any]]]:
    """[(name or Policy, settings)] of one policy or several."""
    from ..policies import Policy

    if isinstance(asked, (str, Policy)):
        return [(asked, {})]
    if len(asked) == 2 and isinstance(asked[0], (str, Policy)) and isinstance(asked[1], Mapping):
        return [(asked[0], dict(asked[1]))]
    return [one for each in asked for one in policies_of(cast("PolicyLike", each))]


def moves_of(autonuma: bool | Settings) -> Any:
    from ..world.moves import Moves, moves_from

    return Moves() if autonuma is False else moves_from({} if autonuma is True else dict(autonuma))


def tables_of(capture: Capture) -> tuple[Snapshot, dict[str, str]]:
    """(Snapshot, what is assumed): of a bare trace one without tables."""
    if capture.has_snapshot or capture.has_vm:
        return capture.snapshot, {}
    from ..world.bare_trace import ASSUMED, bare_snapshot

    return bare_snapshot(capture.trace), {"assumed": ASSUMED}


def rows_of(source: DataFrame | PathLike) -> list[dict[str, Any]]:
    from ..formats.result_file import read_rows

    if not isinstance(source, (str, os.PathLike)):
        return [{str(key): value for key, value in row.items()} for row in source.to_dict("records")]
    found: list[dict[str, Any]] = read_rows(source)
    return found


def provenance_of(capture: Capture) -> dict[str, str]:
    return {"capture": str(capture.directory)}
