"""Texts of a table as a plot may show them: printable, and what TeX would be a formula as it is."""

from typing import Any, Self

from pandas import DataFrame

from ...core.errors import printable


class Shared:
    """A dict or list that deep copies share: pandas copies attrs with every row that is looked at."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class SharedDict(Shared, dict[Any, Any]):
    pass


class SharedList(Shared, list[Any]):
    pass


def literal(value: Any) -> Any:
    """A text, or the texts in a dict or list, printable and without formulas; other values as they are."""
    if isinstance(value, str):
        return printable(value).replace("$", r"\$")
    if isinstance(value, dict):
        return SharedDict({key: literal(item) for key, item in value.items()})
    return SharedList(literal(item) for item in value) if isinstance(value, list) else value


def literal_table(table: DataFrame) -> DataFrame:
    """The table with its texts, and those of its attrs, literal."""
    words = [at for at, kind in enumerate(table.dtypes) if kind.kind not in "biuf"]
    shown = table.copy() if words else table.copy(deep=False)
    for at in words:
        shown.isetitem(at, table.iloc[:, at].map(literal))
    shown.attrs = literal(table.attrs)
    return shown
