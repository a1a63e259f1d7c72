"""Errors of rows, summed up: only rows that could have failed are judged, and a prediction only once."""

from collections.abc import Callable, Sequence
from statistics import mean, median
from typing import Any

from .row import KINDS, Row, effect

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
    spans = [row for row in judged if row.number.low < row.number.high]
    inside = sum(row.number.low <= row.figure.value <= row.number.high for row in spans)
    widths = [row.width for row in spans if row.width is not None]
    counted |= {"intervals": len(spans), "inside": inside, "width": median(widths) if widths else None}
    return counted | {"bounds": len(bounds), "bounds_held": sum(bounds)}


def predictions(rows: Sequence[Row]) -> list[Row]:
    """The Rows that are judged; of rows that one prediction stands for, the one it misses most.

    Two figures of a paper often show one configuration, and one number of ours stands beside both.
    """
    worst: dict[tuple[object, ...], Row] = {}
    for row in rows:
        if not row.counts:
            continue
        key = row.figure.paper, row.figure.unit, *row.number
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
    """[{who, rows, mean_error, median_error, max_error}]: ours and both baselines on the same rows, those
    that are judged, have both, and are relative to a published number, by the error of the effect. Empty
    without any."""
    same = [
        (row, (row.number.middle, row.mean, row.constant))
        for row in predictions(rows)
        if row.error is not None and row.figure.value
        if row.mean is not None and row.constant is not None
    ]
    compared: list[dict[str, Any]] = []
    for k, who in enumerate(("ours", "configuration mean", "constant speed-up") if same else ()):
        errors = [abs(effect(said[k], row)) for row, said in same]
        compared.append({"who": who, "rows": len(same)} | spread(errors))
    return compared
