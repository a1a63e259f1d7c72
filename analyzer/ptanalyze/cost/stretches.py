"""k of the law: latency of remote nodes over that of local ones, idle and under load."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from ..core.errors import UsageError
from ..core.interval import Interval
from ..core.machine import load_machine
from .shared import Shared

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

MachineName: TypeAlias = str | PathLike[str] | None
REFERENCE_MACHINE = "vmitosis-cascade-lake"


class Latencies(Protocol):
    """ns of a dependent read, [reader's node][serving node]: machine.Latency, node_latency.NodeLatency."""

    @property
    def idle(self) -> ArrayLike: ...

    @property
    def contended(self) -> ArrayLike | None: ...


def machine_name(machine: MachineName) -> str:
    return REFERENCE_MACHINE if machine is None else str(machine)


def stretches(
    machine: MachineName, latency: Latencies | None, common: Shared, walk_per_cycle: float | None
) -> tuple[Interval, Interval, str]:
    """(k of an idle remote node, of a contended one, why).

    Fitted ones for the machine of the reference runs (rounded in its file); else those of the latencies. f is
    relative to k, so that the idle one needs no interval; contention does.
    """
    ratio = common.contention_at(walk_per_cycle)
    fitted = f"contention as fitted on {', '.join(common.workloads)}"
    if latency is None and machine in (None, REFERENCE_MACHINE):
        far = common.stretch
        loaded, why = _loaded(far, ratio), f"stretch of remote walks and {fitted}"
    else:
        matrices: Latencies = load_machine(machine_name(machine)).latency if latency is None else latency
        far, measured = stretch(matrices.idle), None
        why = f"latencies of {'the machine file' if latency is None else 'the latency file'}"
        if matrices.contended is not None:
            measured = stretch(matrices.contended, matrices.idle)
        if measured is None or measured <= far:
            loaded, why = _loaded(far, ratio), f"{why}, {fitted}"
        else:  # as uncertain as the ratio is among programs
            scale = (measured - 1) / ratio.middle
            loaded = ratio.through(lambda value: 1 + scale * value)
    shown = f"idle remote {far:.3g}, contended {loaded.low:.3g} to {loaded.high:.3g} times local"
    return Interval.exactly(far), loaded, f"{why}: {shown}"


def _loaded(far: float, ratio: Interval) -> Interval:
    return ratio.through(lambda value: 1 + value * (far - 1))


def stretch(latency: ArrayLike, local: ArrayLike | None = None) -> float:
    """Mean latency of remote nodes over the mean of local idle ones; UsageError unless above 1."""
    matrix = np.asarray(latency, np.float64)
    idle = matrix if local is None else np.asarray(local, np.float64)
    if len(matrix) < 2:
        raise UsageError("latency: a single node has no remote latency; give a machine with two or more")
    away = ~np.eye(len(matrix), dtype=bool)
    ratio = float(matrix[away].mean() / np.diag(idle).mean())
    if ratio <= 1:
        raise UsageError(
            f"latency: remote nodes are {ratio:.3g} times as far as local ones: expected above 1"
        )
    return ratio
