"""Units of the columns of the API's tables, and attaching them to a table."""

from collections.abc import Iterable, Mapping
from typing import Any

from pandas import DataFrame

from .finding import Finding, plain

ENDS = (
    ("_share", "share"),  # 0 to 1
    ("_ns", "ns"),
    ("_cycles", "cycles"),
    ("_bytes", "bytes"),
    ("_per_walk", "reads/walk"),
    ("_reads", "reads"),
)
UNITS = {
    "share": "share",
    "extra_updates": "share of the baseline's run",
    "walks": "walks",
    "cycles_per_walk": "cycles/walk",
    "speedup": "ratio",
    "speedup_low": "ratio",
    "speedup_high": "ratio",
    "walk_share_low": "share",
    "walk_share_high": "share",
    "traced_speedup": "ratio",
    "gain": "ratio",
    "pays_back_walks": "walks",
    "pays_back_seconds": "s",
    "ratio": "ratio",
    "slowdown": "ratio",
    "ns": "ns/call",
    "system_call_ns": "ns/call",
    "stolen_ns": "ns/call",
    "system_call_stolen_ns": "ns/call",
    "time_ns": "ns",
    "base": "address",
    "start": "address",
    "end": "address",
    "bytes": "bytes",
    "pt_bytes_extra": "bytes",
    "pt_bytes_peak": "bytes",
    "ept_bytes_extra": "bytes",
    "tables_moved": "pages",
    "data_moved": "pages",
    "walks_per_s": "1/s",
    "accesses_per_s": "1/s",
    "accesses_per_s_low": "1/s",
    "accesses_per_s_high": "1/s",
    "level": "level",
    "node": "node",
    "from_node": "node",
    "to_node": "node",
    "table_pages": "pages",
    "frames": "pages",
    "reader": "node",
    "server": "node",
    "socket": "node",
    "ept_lines": "cache lines",
    "ghz": "GHz",
    "low": "ratio",
    "middle": "ratio",
    "high": "ratio",
    "cycles": "cycles",
    "pays_back_runs": "runs",
    "degree": "degree",
    "seconds": "s",
}


def unit_of(column: str) -> str:
    """Unit of a column of numbers; "count" for counts, which have none."""
    if column in UNITS:
        return UNITS[column]
    return next((unit for end, unit in ENDS if column.endswith(end)), "count")


def units_of(table: DataFrame) -> dict[str, str]:
    """{column of numbers: unit}."""
    return {str(name): unit_of(str(name)) for name in table.columns if table[name].dtype.kind in "iuf"}


def described(
    table: DataFrame,
    findings: Iterable[Finding] = (),
    provenance: Mapping[str, str] | None = None,
    **more: Any,
) -> DataFrame:
    """The table with attrs: units {column of numbers: unit}, findings (finding.plain), provenance
    {what: text}, `more`.

    Plain values only, so that attrs can be copied, compared and written as JSON.
    """
    table.attrs = {
        "units": units_of(table),
        "findings": plain(findings),
        "provenance": dict(provenance or {}),
        **more,
    }
    return table
