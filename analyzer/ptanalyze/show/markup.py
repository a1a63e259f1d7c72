"""A tidy table as Markdown or LaTeX, to paste into an issue or a paper."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import printable
from .terminal import number

if TYPE_CHECKING:
    from pandas import DataFrame

MARKS = re.compile(
    r"[\\`*\[\]<>|~&]"  # also of HTML
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # within a word, Markdown leaves it alone
    r"|:(?=//)|(?<=www)\.|@"  # GitHub makes links of them
)
NEEDS = r"% in the preamble: \usepackage{booktabs}"
SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
}


def markdown(table: DataFrame) -> str:
    """A table of GitHub's Markdown; numbers to the right. Names that others chose stay text."""
    names, rows = texts(table, lambda text: MARKS.sub(r"\\\g<0>", text))
    rules = ["---:" if numeric(table, k) else "---" for k in range(len(names))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (names, rules, *rows))


def latex(table: DataFrame) -> str:
    """A tabular, for the package booktabs."""
    names, rows = texts(table, lambda text: "".join(SPECIAL.get(sign, sign) for sign in text))
    columns = "".join("r" if numeric(table, k) else "l" for k in range(len(names)))
    lines = [" & ".join(cells) + r" \\" for cells in (names, *rows)]
    body = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", lines[0], r"\midrule", *lines[1:]]
    return "\n".join([NEEDS, *body, r"\bottomrule", r"\end{tabular}", ""])


def numeric(table: DataFrame, column: int) -> bool:
    return bool(table.dtypes.iloc[column].kind in "iuf")


def texts(table: DataFrame, escaped: Callable[[str], str]) -> tuple[Sequence[str], list[list[str]]]:
    """(names of columns, rows of cells); missing numbers are "-"."""
    names = [escaped(str(name)) for name in table.columns]
    rows = [[escaped(cell(value)) for value in row] for row in table.itertuples(index=False)]
    return names, rows


def cell(value: object) -> str:
    if isinstance(value, int | float):  # NumPy's float64 is a float
        return "-" if value != value else number(value)
    if isinstance(value, np.number):
        return number(value.item())
    return "-" if value is None else printable(str(value))
