"""How close rows come: fitted ones are counted and never judged."""

from statistics import mean, median

from .row import KINDS, NOT_REPRODUCIBLE, relative

WITHIN = (0.05, 0.10, 0.25)


def tally(rows):
    """{what: count or share} of Rows.

    rows, and one count a kind; judged: rows that are evidence and not bounds; within_5, within_10, within_25:
    how many of those; no_error: judged rows without a relative error (published 0), within nothing;
    mean_error, median_error, max_error: of the absolute errors, None without any; bounds, bounds_held: of
    evidence; intervals, inside: judged rows whose number is an interval, and those that hold the published
    one; missed, missed_median_error, missed_bounds, missed_bounds_held: of rows that are not reproducible
    and yet have a number
    """
    judged = [row for row in rows if row.evidence and not row.figure.bound]
    errors = [abs(row.error) for row in judged if row.error is not None]
    bounds = [row.holds for row in rows if row.evidence and row.holds is not None]
    found = {"rows": len(rows)} | {kind: sum(row.kind == kind for row in rows) for kind in KINDS}
    found |= {"judged": len(judged), "no_error": len(judged) - len(errors)}
    found |= {f"within_{share:.0%}".rstrip("%"): sum(e <= share for e in errors) for share in WITHIN}
    found |= spread(errors) | {"bounds": len(bounds), "bounds_held": sum(bounds)}
    spans = [row for row in judged if row.ours.low < row.ours.high]
    inside = sum(row.ours.low <= row.figure.value <= row.ours.high for row in spans)
    found |= {"intervals": len(spans), "inside": inside}
    return found | missed([row for row in rows if row.kind == NOT_REPRODUCIBLE])


def missed(rows):
    """The part of tally that is about rows that are not reproducible, yet have a number."""
    errors = [abs(row.error) for row in rows if row.error is not None]
    bounds = [row.holds for row in rows if row.holds is not None]
    found = {"missed": len(errors), "missed_median_error": median(errors) if errors else None}
    return found | {"missed_bounds": len(bounds), "missed_bounds_held": sum(bounds)}


def ratios(rows):
    """Those of the Rows that are ratios of run times or speeds: no counts, sizes, rates or shares."""
    return [row for row in rows if row.figure.unit == "x"]


def spread(errors, suffix="_error"):
    """{mean, median, max} of absolute errors, None without any."""
    names = {"mean": mean, "median": median, "max": max}
    return {name + suffix: (of(errors) if errors else None) for name, of in names.items()}


def baselines(rows):
    """[{who, rows, mean_error, median_error, max_error}]: ours and both baselines on the same rows, those
    that are evidence and have both. Empty without any."""
    same = [
        row for row in rows if row.evidence and row.error is not None and None not in (row.mean, row.constant)
    ]
    said = {
        "ours": lambda row: row.ours.middle,
        "configuration mean": lambda row: row.mean,
        "constant speed-up": lambda row: row.constant,
    }
    return [
        {"who": who, "rows": len(same)} | spread([abs(relative(of(row), row.figure.value)) for row in same])
        for who, of in said.items()
        if same
    ]
