"""Pictures for some captures only: fragmentation of a VM, locality over time, ceilings of a walker."""

from collections.abc import Iterator

from pandas import DataFrame

from ...core.errors import show_duration
from .. import plots
from ..plots.roofline import ceiling, walks_per_second
from .grid import Column, Grid, count, grid, percent, word
from .picture import Picture, picture
from .study import Study


def pictures(study: Study) -> Iterator[Picture]:
    if study.lines is not None and study.lines["count"].sum():
        yield fragmentation(study, study.lines)
    if has_time(study.timeline):
        yield timeline(study)
    if study.traced and study.ranked["dram_reads_per_walk"].max():
        yield roofline(study)


def fragmentation(study: Study, lines: DataFrame) -> Picture:
    means = lines.attrs["means"]
    how = (
        "Eight neighbouring pages share a cache line of the gPT. Their ePT entries may share one line too "
        "(1, left) or lie in eight (right): then each of the eight pages costs a walk another cache line."
    )
    here = f"On average {means['before']['all']:.2f} ePT cache lines per gPT cache line"
    if "after" in means and means["after"]["all"] is not None:
        here += f"; {means['after']['all']:.2f} if the guest reserved aligned groups of frames (PTEMagnet)"
    columns = {
        "state": Column("State", "", word),
        "lines": Column("gPT cache lines", "", word),
        "ept_lines": Column("ePT lines", "for each", count),
        "count": Column("Number", "gPT lines", count),
        "share": Column("Share", "", percent),
    }
    rows = [{str(k): v for k, v in row.items()} for row in lines.to_dict("records")]
    data = grid("fragmentation-data", "Histogram of ePT cache lines per gPT cache line", columns, rows)
    return picture("fragmentation", "Histogram", plots.fragmentation, lines, how, f"{here}.", data)


def has_time(table: DataFrame) -> bool:
    return bool(len(table) and table["walks"].sum() and table["time_ns"].max())


def shown_over_time(study: Study) -> DataFrame:
    """The baseline, the advised and the next best policies: more lines cannot be distinguished."""
    names = [study.baseline, study.best["policy"], *(row["policy"] for row in study.rows if not row["over"])]
    return study.timeline[study.timeline["policy"].isin(list(dict.fromkeys(names))[:5])]


def timeline(study: Study) -> Picture:
    table = shown_over_time(study)
    base = study.of(table, study.baseline)
    shares = 100 * base["leaf_LL_share"].dropna()
    how = (
        "Time goes to the right, as it passed while the program was recorded. Above, the share of walks that "
        f"are {study.local}, a line per policy (at most five); below, the number of walks: where there are "
        "few, lines jump."
    )
    here = (
        f"Under {study.baseline}, in the run as traced, {shares.min():.0f} to {shares.max():.0f} % of walks "
        f"are {study.local}, by window ({len(base)} of {show_duration(base['time_ns'].iloc[0] / 1e9)})"
    )
    moved = int(table.groupby("policy")["tables_moved"].max().max())
    here += f"; at most {moved:,} table pages moved" if moved else "; no table page moved"
    data = windows(study, table)
    return picture("timeline", "Lines over time", plots.timeline, table, how, f"{here}.", data)


def windows(study: Study, table: DataFrame) -> Grid:
    policies = list(dict.fromkeys(table["policy"]))
    shares = table.set_index(["time_ns", "policy"])["leaf_LL_share"]
    first = study.of(table, str(policies[0]))
    columns = {"until": Column("Until", "", word), "walks": Column("Walks", "as traced", count)}
    columns |= {str(policy): Column(str(policy), study.local, percent) for policy in policies}
    rows = [
        {
            "until": show_duration(row["time_ns"] / 1e9),
            "walks": row["walks"],
            **{str(policy): float(shares[row["time_ns"], policy]) for policy in policies},
        }
        for row in first.to_dict("records")
    ]
    return grid("timeline-data", "Share of local walks in each window", columns, rows)


def roofline(study: Study) -> Picture:
    machine, base = study.ranked.attrs["machine"], study.base
    now = float(walks_per_second(base["cycles_per_walk"], machine))
    best = ceiling(base["reads_per_walk"], base["dram_reads_per_walk"], machine["local_ns"], machine)
    how = (
        "A walker that does nothing but walk: the fewer reads go to DRAM (left) and the nearer DRAM is "
        "(higher ceiling), the more walks per second. Ceilings are of the machine file's latencies."
    )
    here = (
        f"{now:.1f} million walks per second under {study.baseline}; {float(best):.1f} million is as far as "
        "placement alone can get with the same reads. A policy above that ceiling reads less."
    )
    return picture("roofline", "Roofline plot", plots.roofline, study.ranked, how, here)
