"""A row: a published number, ours, and its kind of evidence."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ..core.interval import Interval
from .published import LEAST, MOST, Figure

if TYPE_CHECKING:
    from .bench import Bench

REPLAYED, MODELLED, FITTED = "replayed", "modelled", "fitted"
DEFINITION = "by definition"
NOT_REPRODUCIBLE = "not reproducible"
KINDS = (REPLAYED, MODELLED, FITTED, DEFINITION, NOT_REPRODUCIBLE)
EVIDENCE = (REPLAYED, MODELLED)


@dataclass(frozen=True)
class Row:
    """Our number beside a Figure.

    ours  Interval, None where we have no number
    kind  replayed: from published counts, tables or sizes; modelled: a workload made by synth from its
          published description; fitted: calibrated on this very number, which is no evidence; by
          definition: an assumption of the model, no evidence either; not reproducible: the note
          says why
    note  assumptions and scaling, in a sentence
    mean, constant  predictions of two baselines, None where they make no sense: the mean of this
          configuration over other workloads, and a single speed-up for all workloads and configurations
    """

    figure: Figure
    ours: Interval | None
    kind: str
    note: str = ""
    mean: float | None = None
    constant: float | None = None

    @property
    def number(self) -> Interval:
        """`ours`, of a row with a number."""
        assert self.ours is not None, self.figure.name
        return self.ours

    @property
    def error(self) -> float | None:
        """(ours - published) / published, with its sign; None without a number of ours, for a bound, and for
        a published 0 that we miss."""
        return (
            None if self.ours is None or self.figure.bound else relative(self.ours.middle, self.figure.value)
        )

    @property
    def holds(self) -> bool | None:
        """Whether ours keeps to a published bound; None where the paper gives a number or we have none."""
        if self.ours is None or not self.figure.bound:
            return None
        ours, limit = self.ours.middle, self.figure.value
        return ours >= limit if self.figure.bound == LEAST else ours <= limit

    @property
    def evidence(self) -> bool:
        return self.kind in EVIDENCE


Rows: TypeAlias = "Callable[[Bench], Iterator[Row]]"  # of a figure or table


def relative(ours: float, published: float) -> float | None:
    if published == 0:
        return 0.0 if ours == 0 else None
    return (ours - published) / published


def row(
    figure: Figure,
    ours: float | Interval,
    kind: str,
    note: str = "",
    *,
    mean: float | None = None,
    constant: float | None = None,
) -> Row:
    """Row of a Figure."""
    assert kind in KINDS and figure.bound in ("", LEAST, MOST), kind
    return Row(figure, interval(ours), kind, note, mean, constant)


def not_reproducible(figure: Figure, why: str, ours: float | Interval | None = None) -> Row:
    """Row of a Figure that we cannot reproduce; `why`: a sentence; `ours` where there is a number anyway."""
    assert why, "a row that is not reproducible says why"
    return Row(figure, None if ours is None else interval(ours), NOT_REPRODUCIBLE, why)


def interval(ours: float | Interval) -> Interval:
    known = Interval(*map(float, ours)) if isinstance(ours, Interval) else Interval.exactly(float(ours))
    assert math.isfinite(known.middle), known
    return known
