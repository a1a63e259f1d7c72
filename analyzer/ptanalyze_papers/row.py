"""A row: a published number, ours, and its kind of evidence."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean, median
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

import ptanalyze as pt

if TYPE_CHECKING:
    from .bench import Bench


# Published figures as data (models/reference/published-PAPER.toml), each with its place in the paper.

Bound: TypeAlias = Literal["", "at least", "at most"]
EXACT: Bound = ""
LEAST: Bound = "at least"
MOST: Bound = "at most"


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published number.

    name   unique within its paper
    where  figure, table or section
    unit   "x" (ratio), "%" (points of a share), "reads", "bytes", ...
    bound  "" where the paper gives a number, "at least" or "at most" where it says more or fewer
    read   how it was taken: from text or table, off a figure, or from the public artifact of the paper
    """

    name: str
    where: str
    quantity: str
    unit: str
    value: float
    bound: Bound = EXACT
    read: Literal["text", "table", "figure (read off)", "artifact"] = "text"
    paper: str = ""

    def says(self, text: str) -> bool:
        """Whether a text, in any case, is in its place, quantity or name."""
        return text.casefold() in f"{self.where} {self.quantity} {self.name}".casefold()


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A paper's figures: `paper` is its short name, `citation` its full reference."""

    paper: str
    title: str
    citation: str
    figure: tuple[Figure, ...] = ()

    def __getitem__(self, name: str) -> Figure:
        """The Figure of that name; UsageError where there is none."""
        for figure in self.figure:
            if figure.name == name:
                return figure
        raise pt.UsageError(f"{self.paper}: no published figure is named {name!r}")

    def measured(self, name: str, where: str, quantity: str, unit: str, value: float) -> Figure:
        """A Figure that is not in the file: from the public artifact of the paper (reference.reference)."""
        return Figure(
            name=name,
            where=where,
            quantity=quantity,
            unit=unit,
            value=value,
            read="artifact",
            paper=self.paper,
        )


@cache
def published(name: str) -> Paper:
    """Paper of the bundled file published-NAME.toml; UsageError where it cannot be read."""
    path = pt.errors.bundled("models") / "reference" / f"published-{name}.toml"
    try:
        paper = pt.safe_files.struct_of(pt.safe_files.plain_toml(path.read_bytes()), Paper)
    except OSError as error:
        raise pt.UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except pt.safe_files.Undecodable as error:
        raise pt.UsageError(f"{path}: {error}") from None
    names = [figure.name for figure in paper.figure]
    if twice := next((figure for figure in names if names.count(figure) > 1), None):
        raise pt.UsageError(f"{path}: figure {twice!r}: named twice")
    figures = tuple(msgspec.structs.replace(figure, paper=paper.paper) for figure in paper.figure)
    return msgspec.structs.replace(paper, figure=figures)


LAW, REPLAYED, MODELLED, TRACED = "law", "replayed", "modelled", "traced small"
FITTED, DEFINITION, NOT_REPRODUCIBLE = "fitted", "by definition", "not reproducible"
EVIDENCE = (LAW, REPLAYED, MODELLED, TRACED)
KINDS = (*EVIDENCE, FITTED, DEFINITION, NOT_REPRODUCIBLE)
JUDGED = (*EVIDENCE, NOT_REPRODUCIBLE)  # what has a number of ours can fail
LEAST_EFFECT = 0.05  # of a ratio: smaller published effects are noise


@dataclass(frozen=True)
class Row:
    """Our number beside a Figure.

    ours  Interval, None where we have no number
    kind  law: a run time from published counters of other runs; replayed: from published counts, tables or
          sizes; modelled: a workload made by synth from its
          published description; traced small: the program itself, traced
          at a small size; fitted: calibrated on this very number, or made from published results of the
          same experiment, which is no evidence; by definition: an assumption of the model or plain
          arithmetic, so that it cannot fail, no evidence either; not reproducible: the note says why; it is
          judged all the same if there is a number of ours
    note  assumptions and scaling, in a sentence
    prediction  what it predicts, where several figures show that; the figure alone where empty
    ranged  whether ours was given with its ends: ends that are equal claim that nothing is unknown
    mean, constant  predictions of two baselines, None where they make no sense: the mean of this
          configuration over other workloads, and a single speed-up for all workloads and configurations
    basu, line  what the law's rivals say from the same runs, None where there is none: every walk cycle is
          waited for; the straight line through two runs
    """

    figure: Figure
    ours: pt.Interval | None
    kind: str
    note: str = ""
    mean: float | None = None
    constant: float | None = None
    prediction: str = ""
    ranged: bool = False
    basu: float | None = None
    line: float | None = None

    @property
    def number(self) -> pt.Interval:
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
        if self.ours is None or not self.ranged or self.figure.bound:
            return None
        value = self.figure.value
        scale = max(abs(value - 1), LEAST_EFFECT) if self.figure.unit == "x" else abs(value)
        return (self.ours.high - self.ours.low) / scale if scale else None

    @property
    def counts(self) -> bool:
        """Whether it is judged: evidence, or a number that we give although we cannot reproduce it."""
        return self.ours is not None and not self.figure.bound and self.kind in JUDGED

    @property
    def inside(self) -> bool | None:
        """Whether our interval holds the published number; None without an interval."""
        return bool(self.number.low <= self.figure.value <= self.number.high) if self.ranged else None

    @property
    def without_width(self) -> bool:
        """Whether it is an interval from a number to itself."""
        return self.ranged and self.number.low == self.number.high

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
    ours: float | pt.Interval,
    kind: str,
    note: str = "",
    *,
    mean: float | None = None,
    constant: float | None = None,
    prediction: str = "",
    basu: float | None = None,
    line: float | None = None,
) -> Row:
    """Row of a Figure."""
    assert kind in KINDS and figure.bound in ("", LEAST, MOST), kind
    ranged = isinstance(ours, pt.Interval)
    return Row(figure, interval(ours), kind, note, mean, constant, prediction, ranged, basu, line)


def not_reproducible(
    figure: Figure, why: str, ours: float | pt.Interval | None = None, prediction: str = ""
) -> Row:
    """Row of a Figure that we cannot reproduce; `why`: a sentence; `ours` where there is a number anyway."""
    assert why, "a row that is not reproducible says why"
    if ours is None:
        return Row(figure, None, NOT_REPRODUCIBLE, why)
    return row(figure, ours, NOT_REPRODUCIBLE, why, prediction=prediction)


def interval(ours: float | pt.Interval) -> pt.Interval:
    known = (
        pt.Interval(*map(float, ours)) if isinstance(ours, pt.Interval) else pt.Interval.exactly(float(ours))
    )
    assert math.isfinite(known.middle), known
    return known


RIVALS = {"basu": "Basu", "line": "the line through two runs"}  # of the law

# Errors of rows, summed up: only rows that could have failed are judged, and a prediction only once.

WITHIN = (0.10, 0.25, 0.50)


def tally(rows: Sequence[Row]) -> dict[str, Any]:
    """{quantity: count or share} of Rows.

    rows, and a count per kind; judged: predictions that are judged (Row.counts), each once; within_10,
    within_25, within_50: number of those by the error of the effect; no_error: judged without a relative
    error (published 0), within nothing; mean_error, median_error, max_error: of the effect, absolute, None
    without any; ratio_median_error: of ratios as such, for comparison with other work; intervals, inside:
    judged rows whose number is an interval, and those that hold the published number; width: the median
    interval's, of the published effect; bounds, bounds_held: of evidence, never among the errors
    """
    judged = predictions(rows)
    errors = [abs(row.effect_error) for row in judged if row.effect_error is not None]
    plain = [abs(row.error) for row in judged if row.error is not None]
    bounds = [row.holds for row in rows if row.evidence and row.holds is not None]
    counted: dict[str, Any] = {"rows": len(rows)}
    counted |= {kind: sum(row.kind == kind for row in rows) for kind in KINDS}
    counted |= {"judged": len(judged), "no_error": len(judged) - len(errors)}
    counted |= {f"within_{share:.0%}".rstrip("%"): sum(e <= share for e in errors) for share in WITHIN}
    counted |= spread(errors) | {"ratio_median_error": median(plain) if plain else None}
    spans = [row for row in judged if row.ranged]
    widths = [row.width for row in spans if row.width is not None]
    counted |= {"intervals": len(spans), "inside": sum(row.inside is True for row in spans)}
    counted |= {"without_width": sum(row.without_width for row in spans)}
    counted |= {"width": median(widths) if widths else None}
    return counted | {"bounds": len(bounds), "bounds_held": sum(bounds)}


def predictions(rows: Sequence[Row]) -> list[Row]:
    """The Rows that are judged; of rows with one prediction, the one that it misses most.

    Two figures of a paper often show one configuration, and one number of ours stands beside both. Equal
    numbers for different configurations are predictions of their own.
    """
    worst: dict[tuple[object, ...], Row] = {}
    for row in rows:
        if not row.counts:
            continue
        key = row.figure.paper, row.prediction or row.figure.name, *row.number
        known = worst.get(key)
        if known is None or missed_by(row) > missed_by(known):
            worst[key] = row
    return list(worst.values())


def missed_by(row: Row) -> float:
    return abs(row.effect_error) if row.effect_error is not None else float("inf")


def ratios(rows: Sequence[Row]) -> list[Row]:
    """Those of the Rows that are ratios of run times or speeds: no counts, sizes, rates or shares."""
    return [row for row in rows if row.figure.unit == "x"]


def spread(errors: Sequence[float]) -> dict[str, float | None]:
    """{mean, median, max} of absolute errors, None without any."""
    names: dict[str, Callable[[Sequence[float]], float]] = {"mean": mean, "median": median, "max": max}
    return {f"{name}_error": (of(errors) if errors else None) for name, of in names.items()}


def baselines(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """[{who, rows, mean_error, median_error, max_error}]: ours and both baselines on the rows that have both;
    empty without any."""
    same = [row for row in comparable(rows) if row.mean is not None and row.constant is not None]
    said = {"ours": "", "configuration mean": "mean", "constant speed-up": "constant"}
    return [compared(who, name, same) for who, name in said.items() if same]


def rivals(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """[{who, rows, mean_error, median_error, max_error}]: the law and each of its rivals on the rows that
    have it; empty without any."""
    lines: list[dict[str, Any]] = []
    for name, title in RIVALS.items():
        if same := [row for row in comparable(rows) if getattr(row, name) is not None]:
            lines += [compared(f"law, beside {title}", "", same), compared(title, name, same)]
    return lines


def comparable(rows: Sequence[Row]) -> list[Row]:
    """Rows that are judged and relative to a published number."""
    return [row for row in predictions(rows) if row.error is not None and row.figure.value]


def compared(who: str, name: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Errors of the effect of the number that each Row has as `name`; "": ours."""
    said = (getattr(row, name) if name else row.number.middle for row in rows)
    errors = [abs(effect(value, row)) for value, row in zip(said, rows, strict=True)]
    return {"who": who, "rows": len(rows)} | spread(errors)
