"""A row: a published number, ours, and its kind of evidence."""

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

import ptanalyze as pt

if TYPE_CHECKING:
    from .bench import Bench

Kind: TypeAlias = Literal[
    "law", "page size", "replayed", "modelled", "traced small", "fitted", "not reproducible"
]
LAW: Kind = "law"
PAGES: Kind = "page size"
REPLAYED: Kind = "replayed"
MODELLED: Kind = "modelled"
TRACED: Kind = "traced small"
FITTED: Kind = "fitted"
NOT_REPRODUCIBLE: Kind = "not reproducible"
JUDGED = (LAW, PAGES, REPLAYED, MODELLED, TRACED, NOT_REPRODUCIBLE)  # can fail, with a number of ours
KINDS = (*JUDGED[:-1], FITTED, NOT_REPRODUCIBLE)
LEAST_EFFECT = 0.05  # of a ratio: smaller published effects are noise
LEAST = "at least"


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published number, and ours beside it.

    name   unique within its paper
    where  figure, table or section
    unit   "x" (ratio), "%" (points of a share), "bytes", ...
    bound  "" where the paper gives a number, "at least" or "at most" where it says more or fewer
    read   how it was taken: from text or table, off a figure, or from the public artifact of the paper
    kind   law: a run time from published counters of other runs; page size: from two local runs, with small
           and huge pages, and the walk cycles of the run itself; replayed: from published counts, tables or
           sizes; modelled: a workload made by synth from its published description; traced small: the program
           itself, traced at a small size; fitted: calibrated on this very number, or made from published
           results of the same experiment, which is no evidence; not reproducible: the note says why; it is
           judged all the same if there is a number of ours
    note   assumptions and scaling, in a sentence; in the file of a paper the key of one of its notes
    ours   None where we have no number
    ranged      whether ours was given with its ends: ends that are equal claim that nothing is unknown
    prediction  what it predicts, where several figures show that; the figure alone where empty
    basu, line  what the law's rivals say from the same runs, None where there is none: every walk cycle is
                waited for; the straight line through two runs
    """

    name: str
    where: str
    quantity: str
    unit: str
    value: float
    bound: Literal["", "at least", "at most"] = ""
    read: Literal["text", "table", "figure (read off)", "artifact"] = "text"
    kind: Kind
    note: str
    paper: str = ""
    ours: pt.Interval | None = None
    ranged: bool = False
    prediction: str = ""
    basu: float | None = None
    line: float | None = None

    def says(self, text: str) -> bool:
        """Whether a text, in any case, is in its place, quantity or name."""
        return text.casefold() in f"{self.where} {self.quantity} {self.name}".casefold()

    def effect_error(self, ours: float) -> float | None:
        """(ours - published) / published, of a ratio ("x") / |published - 1|, or 5 % where that is less; None
        for a published 0 that is missed.

        A speed-up of 1.28 for a published 1.35 is 5 % off as a ratio, and misses a fifth of the effect. A
        ratio below 1 is taken as how many times less: else 0.02 for 0.17 would be off by less than a fifth.
        """
        if self.unit != "x":
            return relative(ours, self.value)
        published, ours = (1 / self.value, 1 / ours) if self.value < 1 and ours else (self.value, ours)
        return (ours - published) / max(abs(published - 1), LEAST_EFFECT)


Rows: TypeAlias = "Callable[[Bench], Iterator[Row]]"  # of a figure or table


def relative(ours: float, published: float) -> float | None:
    if published == 0:
        return 0.0 if ours == 0 else None
    return (ours - published) / published


def flat(row: Row) -> dict[str, pt.columns.Cell]:
    """{column: value} of a Row: errors are signed shares, None without a published or own number; inside:
    whether our interval holds the published number; holds: whether ours keeps to a published bound."""
    ours, value = row.ours, row.value
    error = None if ours is None or row.bound else relative(ours.middle, value)
    judged = ours is not None and not row.bound and row.kind in JUDGED
    inside = holds = None
    if ours is not None and judged and row.ranged:
        inside = bool(ours.low <= value <= ours.high)
    if ours is not None and row.bound:
        holds = bool(ours.middle >= value if row.bound == LEAST else ours.middle <= value)
    return {
        "paper": row.paper,
        "name": row.name,
        "where": row.where,
        "quantity": row.quantity,
        "unit": row.unit,
        "bound": row.bound,
        "published": value,
        "read": row.read,
        "low": None if ours is None else ours.low,
        "ours": None if ours is None else ours.middle,
        "high": None if ours is None else ours.high,
        "error": error,
        "effect_error": None if ours is None or error is None else row.effect_error(ours.middle),
        "judged": judged,
        "inside": inside,
        "holds": holds,
        "kind": row.kind,
        "prediction": row.prediction or row.name,
        "basu": row.basu,
        "line": row.line,
        "note": row.note,
    }


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A paper's figures, without numbers of ours; `paper` is its short name, notes {key: sentence}."""

    paper: str
    title: str
    citation: str
    notes: dict[str, str] = {}
    figure: tuple[Row, ...] = ()

    def __getitem__(self, name: str) -> Row:
        """The figure of that name; UsageError where there is none."""
        for figure in self.figure:
            if figure.name == name:
                return figure
        raise pt.UsageError(f"{self.paper}: no published figure is named {name!r}")

    def row(
        self,
        name: str,
        ours: float | pt.Interval | None = None,
        *,
        kind: str = "",
        note: str = "",
        prediction: str = "",
        **facts: object,
    ) -> Row:
        """Row of the figure of that name; kind, note and prediction instead of the file's; facts: what its
        note has in braces."""
        more = {"kind": kind, "note": note, "prediction": prediction}
        figure = msgspec.structs.replace(self[name], **{key: of for key, of in more.items() if of})
        return self._beside(figure, ours, **facts)

    def measured(
        self,
        name: str,
        where: str,
        quantity: str,
        unit: str,
        value: float,
        ours: float | pt.Interval | None,
        kind: Kind,
        note: str,
        prediction: str = "",
        basu: float | None = None,
        line: float | None = None,
        **facts: object,
    ) -> Row:
        """Row of a number that is not in the file: from the public artifact of the paper."""
        row = Row(
            name=name,
            where=where,
            quantity=quantity,
            unit=unit,
            value=float(value),
            read="artifact",
            kind=kind,
            note=note,
            prediction=prediction,
            basu=basu,
            line=line,
        )
        return self._beside(row, ours, **facts)

    def _beside(self, row: Row, ours: float | pt.Interval | None, **facts: object) -> Row:
        note, ranged = self.notes.get(row.note, row.note), isinstance(ours, pt.Interval)
        if ours is not None and not isinstance(ours, pt.Interval):
            ours = pt.Interval.exactly(float(ours))
        assert ours is None or math.isfinite(ours.middle), row.name
        return msgspec.structs.replace(
            row, paper=self.paper, note=note.format(**facts) if facts else note, ours=ours, ranged=ranged
        )


@cache
def published(name: str) -> Paper:
    """Paper of the bundled file published-NAME.toml."""
    content = (pt.errors.bundled("models") / "reference" / f"published-{name}.toml").read_bytes()
    return pt.safe_files.struct_of(pt.safe_files.plain_toml(content), Paper)
