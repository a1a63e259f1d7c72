"""Published measurements that come with the package (models/reference/), as a table with citations."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pandas as pd

from ..core.bundled import bundled
from ..core.errors import UsageError
from .closed_forms import Run

FILES = ("vmitosis-runs.csv", "mitosis-runs.csv")
COLUMNS = ("paper", "figure", "family", "workload", "config", "quantity", "value", "unit", "use", "note")
LOCAL_RUN = {"thin-2D-4K": "LL", "thin-1D-4K": "L", "native-thin": "LP-LD"}
GPT = ("dtlb_load_misses.walk_pending", "dtlb_store_misses.walk_pending")


@cache
def reference() -> pd.DataFrame:
    """DataFrame of all rows: paper, figure, family, workload, config, quantity, value, unit, use, note.

    `use` of a row: fit (the law is calibrated on it), check (only compared with it) or no; `note` says why
    not. UsageError where a file is missing or has other columns.
    """
    return pd.concat([_read(bundled("models") / "reference" / name) for name in FILES], ignore_index=True)


def _read(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_csv(path, keep_default_na=False, dtype={"value": float})
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    if tuple(table.columns) != COLUMNS:
        raise UsageError(f"{path}: columns = {', '.join(table.columns)}: expected {', '.join(COLUMNS)}")
    return table


def runs(family: str, use: Iterable[str] = ("fit", "check")) -> dict[str, dict[str, Run]]:
    """{workload: {config: Run}}: the measured runs of a family, including the all-local run."""
    rows = reference()
    rows = rows[(rows.family == family) & rows.use.isin(use)]
    by_workload: dict[str, dict[str, Run]] = {}
    for (workload, config), part in rows.groupby(["workload", "config"], sort=False):
        values = dict(zip(part.quantity, part.value, strict=True))
        by_workload.setdefault(workload, {})[config] = run_from(values)
    return by_workload


def run_from(values: Mapping[str, float]) -> Run:
    """Run of a configuration's {quantity: value}."""
    if "walk_cycles" in values:
        return Run(values["cycles"], values["walk_cycles"], 0.0)
    gpt = sum(values[name] for name in GPT)
    return Run(values["cycles"], gpt, values["ept.walk_pending"], values["run_time"])
