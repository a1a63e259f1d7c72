"""Location of each table page of a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..formats.capture import CaptureLike, load
from .answers import page_tables_frame
from .opened import provenance_of

if TYPE_CHECKING:
    from pandas import DataFrame


def page_tables(capture: CaptureLike = None) -> DataFrame:
    """Every table page: dimension, level, base, span_bytes, node, tracers; see answers.page_tables_frame."""
    opened = load(capture)
    table = page_tables_frame(opened.snapshot)
    table.attrs["provenance"] = provenance_of(opened)
    return table
