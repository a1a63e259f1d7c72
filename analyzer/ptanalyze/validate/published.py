"""Published figures as data (models/reference/published-PAPER.toml), each with its place in the paper."""

from functools import cache
from typing import Literal, TypeAlias

import msgspec

from ..core.decode import Undecodable, plain_toml, struct_of
from ..core.errors import UsageError, bundled

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
        raise UsageError(f"{self.paper}: no published figure is named {name!r}")

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
    path = bundled("models") / "reference" / f"published-{name}.toml"
    try:
        paper = struct_of(plain_toml(path.read_bytes()), Paper)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except Undecodable as error:
        raise UsageError(f"{path}: {error}") from None
    names = [figure.name for figure in paper.figure]
    if twice := next((figure for figure in names if names.count(figure) > 1), None):
        raise UsageError(f"{path}: figure {twice!r}: named twice")
    figures = tuple(msgspec.structs.replace(figure, paper=paper.paper) for figure in paper.figure)
    return msgspec.structs.replace(paper, figure=figures)
