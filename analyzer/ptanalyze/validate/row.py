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
LEAST_EFFECT = 0.05  # of a ratio: smaller published effects are noise


@dataclass(frozen=True)
class Row:
    """Our number beside a Figure.

    ours  Interval, None where we have no number
    kind  replayed: from published counts, tables or sizes; modelled: a workload made by synth from its
          published description; fitted: calibrated on this very number, or made from published results of
          the same experiment, which is no evidence; by definition: an assumption of the model or plain
          arithmetic, no evidence either; not reproducible: the note says why; it is judged all the same if
          there is a number of ours
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
    def effect_error(self) -> float | None:
        """The error of the effect: of a ratio ("x"), (ours - published) / |published - 1|; of effects
        below 5 % relative to 5 %; else as `error`.

        A speed-up of 1.28 for a published 1.35 is 5 % off as a ratio, and misses a fifth of the effect.
        """
        return None if self.error is None else effect(self.number.middle, self)

    @property
    def width(self) -> float | None:
        """Width of our interval, of the published effect as `effect_error`; None without an interval."""
        if self.ours is None or self.ours.low == self.ours.high or self.figure.bound:
            return None
        value = self.figure.value
        scale = max(abs(value - 1), LEAST_EFFECT) if self.figure.unit == "x" else abs(value)
        return (self.ours.high - self.ours.low) / scale if scale else None

    @property
    def counts(self) -> bool:
        """Whether it is judged: evidence, or a number that we give although we cannot reproduce it."""
        return self.ours is not None and not self.figure.bound and self.kind in (*EVIDENCE, NOT_REPRODUCIBLE)

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


def effect(ours: float, row: Row) -> float:
    """Error of `ours` beside the published number of a Row, as Row.effect_error."""
    value = row.figure.value
    if row.figure.unit == "x":
        return (ours - value) / max(abs(value - 1), LEAST_EFFECT)
    return relative(ours, value) or 0.0


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
