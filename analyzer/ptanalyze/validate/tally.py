"""Errors of rows, summed up: fitted rows are counted and never judged."""

from collections.abc import Callable, Sequence
from statistics import mean, median
from typing import Any

from .row import KINDS, NOT_REPRODUCIBLE, Row

WITHIN = (0.05, 0.10, 0.25)


def tally(rows: Sequence[Row]) -> dict[str, Any]:
    """{quantity: count or share} of Rows.

    rows, and a count per kind; judged: rows that are evidence and not bounds; within_5, within_10, within_25:
    number of those; no_error: judged rows without a relative error (published 0), within nothing;
    mean_error, median_error, max_error: of the absolute errors, None without any; bounds, bounds_held: of
    evidence; intervals, inside: judged rows whose number is an interval, and those that hold the published
    number; missed, missed_median_error, missed_bounds, missed_bounds_held: of rows that are not reproducible
    and yet have a number
    """
    judged = [row for row in rows if row.evidence and not row.figure.bound]
    errors = [abs(row.error) for row in judged if row.error is not None]
    bounds = [row.holds for row in rows if row.evidence and row.holds is not None]
    counted: dict[str, Any] = {"rows": len(rows)}
    counted |= {kind: sum(row.kind == kind for row in rows) for kind in KINDS}
    counted |= {"judged": len(judged), "no_error": len(judged) - len(errors)}
    counted |= {f"within_{share:.0%}".rstrip("%"): sum(e <= share for e in errors) for share in WITHIN}
    counted |= spread(errors) | {"bounds": len(bounds), "bounds_held": sum(bounds)}
    spans = [row for row in judged if row.number.low < row.number.high]
    inside = sum(row.number.low <= row.figure.value <= row.number.high for row in spans)
    counted |= {"intervals": len(spans), "inside": inside}
    return counted | missed([row for row in rows if row.kind == NOT_REPRODUCIBLE])


def missed(rows: Sequence[Row]) -> dict[str, Any]:
    """Tally of the rows that are not reproducible, yet have a number."""
    errors = [abs(row.error) for row in rows if row.error is not None]
    bounds = [row.holds for row in rows if row.holds is not None]
    counted: dict[str, Any] = {
        "missed": len(errors),
        "missed_median_error": median(errors) if errors else None,
    }
    return counted | {"missed_bounds": len(bounds), "missed_bounds_held": sum(bounds)}


def ratios(rows: Sequence[Row]) -> list[Row]:
    """Those of the Rows that are ratios of run times or speeds: no counts, sizes, rates or shares."""
    return [row for row in rows if row.figure.unit == "x"]


def spread(errors: Sequence[float]) -> dict[str, float | None]:
    """{mean, median, max} of absolute errors, None without any."""
    names: dict[str, Callable[[Sequence[float]], float]] = {"mean": mean, "median": median, "max": max}
    return {f"{name}_error": (of(errors) if errors else None) for name, of in names.items()}


def baselines(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """[{who, rows, mean_error, median_error, max_error}]: ours and both baselines on the same rows, those
    that are evidence, have both, and are relative to a published number. Empty without any."""
    same = [
        (row.figure.value, (row.number.middle, row.mean, row.constant))
        for row in rows
        if row.evidence and row.error is not None and row.figure.value
        if row.mean is not None and row.constant is not None
    ]
    compared: list[dict[str, Any]] = []
    for k, who in enumerate(("ours", "configuration mean", "constant speed-up") if same else ()):
        errors = [abs(said[k] - value) / abs(value) for value, said in same]
        compared.append({"who": who, "rows": len(same)} | spread(errors))
    return compared
