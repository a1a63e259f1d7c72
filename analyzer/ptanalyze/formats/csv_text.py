"""Tables as CSV that is safe to open: no cell steers a terminal, and none is a formula to a spreadsheet."""

import re
from typing import TYPE_CHECKING

from ..core.errors import printable

if TYPE_CHECKING:
    from pandas import DataFrame

FORMULA = re.compile(r"[=+\-@](?![\d.]*$).")  # neither a number nor a dash alone


def csv_text(table: "DataFrame") -> str:
    """The table as CSV without its index; texts are printable, and quoted if a spreadsheet would run them."""
    safe = table.rename(columns=cell)
    words = [at for at, kind in enumerate(table.dtypes) if kind.kind not in "biuf"]
    for at in words:
        safe.isetitem(at, table.iloc[:, at].map(cell))
    return str(safe.to_csv(index=False))


def cell(value: object) -> object:
    """A text as a cell that is only ever shown: \"'\" before what begins as a formula."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if FORMULA.match(text) else text
