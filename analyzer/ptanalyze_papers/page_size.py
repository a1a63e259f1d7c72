"""Placements by page size: run times from two local runs, with 4 KiB and with 2 MiB pages, and walk cycles.

The law of docs/explanation/page-size.md with walk cycles as counted in place of replayed ones. Nothing is
fitted, so that no program need be left out; limits and noise of the law were chosen with these runs in sight.
Runs whose tables were all repaired walk as the local run does, and could not have failed: they are left out.
"""

from collections.abc import Iterator
from typing import NamedTuple

import ptanalyze as pt
from ptanalyze_law.prior import PER_CORE, law_of, many_threads

from .bench import Bench
from .law_rows import line, run_of, slowdown, took
from .row import NOT_REPRODUCIBLE, PAGES, Row, published


class Series(NamedTuple):
    """Runs of a family, with small pages, and of the same workloads with huge ones.

    runs    {(run with small pages, with huge ones): runs to predict}
    second  the remote run that the straight line goes through, "": none
    """

    what: str
    small: str
    huge: str
    workloads: tuple[str, ...]
    runs: dict[tuple[str, str], tuple[str, ...]]
    second: str = ""


THIN, WIDE = ("gups", "canneal"), ("graph500", "canneal")  # BTree's run with huge pages was not counted
SERIES = {
    "vmitosis": (
        Series(
            "thin, two tables",
            "thin-2D-4K",
            "thin-2D-THP",
            THIN,
            {("LL", "TLL"): ("LR", "RL", "RR", "LRI", "RLI", "RRI", "RRIE", "RRIG")},
            "RR",
        ),
        Series("thin, one table", "thin-1D-4K", "thin-1D-THP", THIN, {("L", "TL"): ("R", "RI")}, "R"),
        Series(
            "wide, NUMA-visible",
            "wide-NV-4K",
            "wide-NV-THP",
            WIDE,
            {("F", "TF"): ("FM",), ("FA", "TFA"): ("FAM",), ("I", "TI"): ("IM",)},
        ),
        Series("wide, NUMA-oblivious", "wide-NO-4K", "wide-NO-THP", WIDE, {("OF", "TOF"): ("OFMP", "OFMF")}),
    ),
    "mitosis": (
        Series(
            "thin, native",
            "native-thin",
            "native-thin",
            ("GUPS", "BTree", "PageRank", "LibLinear", "Canneal"),
            {("LP-LD", "TLP-LD"): ("RP-LD", "RPI-LD")},
            "RP-LD",
        ),
        Series(
            "wide, native",
            "native-wide",
            "native-wide",
            ("BTree", "Canneal"),
            {("F", "TF"): ("F+M",), ("F-A", "TF-A"): ("F-A+M",), ("I", "TI"): ("I+M",)},
        ),
    ),
}
NOTE = (
    "from both local runs and the walk cycles of all three, from the slope of the former to a cycle for each "
    "(two where threads share a walker); nothing is fitted, limits and 3 % of noise were chosen with these "
    "runs in sight"
)
REFUSED = "refused: huge pages gain {gain:.0f} % here and leave {left:.0f} % of the walk cycles"


def by_pages(gain: float, here: float, left: float, walk: float, walkers: int, shared: float) -> pt.Interval:
    """Run time with `walk` walk cycles over that with small pages, which have `here`, and huge ones `left`,
    all in cycles of the run with small pages; gain: speed with huge pages over that; walkers: of a core;
    shared: s of the law, part of the time that another thread wants the same walker."""
    saved = min((1 - 1 / gain) / (here - left), 1 + shared)  # by each walk cycle less
    least = min(max(saved, 1 / walkers), 1.0) * (1 + shared / 2)
    own, middle, steep = (
        max(1 / gain - each * left, 1 + each * (walk - here)) for each in (saved, least, 1 + shared)
    )
    noise = 1 + pt.law.PageTrial.NOISE
    return pt.Interval(min(own, steep) / noise, middle, max(own, steep) * noise)


def rows(name: str, _: Bench) -> Iterator[Row]:
    """Rows of the published runs of a paper: slow-downs by remote tables, speed-ups by replicas."""
    for series in SERIES[name]:
        for workload in series.workloads:
            for (base, huge), configs in series.runs.items():
                for config in configs:
                    yield row(name, series, workload, base, huge, config)


def row(name: str, series: Series, workload: str, base: str, huge: str, config: str) -> Row:
    small, large = run_of(series.small, workload, base), run_of(series.huge, workload, huge)
    placed, cycles = run_of(series.small, workload, config), pt.law.counted(small.cycles, "run: cycles")
    here, left, walk = (
        pt.law.counted(run.walk, "run: walk cycles") / cycles for run in (small, large, placed)
    )
    gain = took(series.small, workload, base) / took(series.huge, workload, huge)
    ours, note = None, REFUSED.format(gain=100 * (gain - 1), left=100 * left / here)
    rivals: dict[str, float] = {}
    if gain >= pt.law.PageTrial.LEAST_GAIN and left <= pt.law.PageTrial.MOST_LEFT * here:
        shared = law_of(series.small, many_threads(series.small, workload))[1]
        ours, note = by_pages(gain, here, left, walk, PER_CORE[series.small], shared), NOTE
        rivals["basu"] = 1 + walk - here
        if series.second and config != series.second:
            rivals["line"] = line(small, run_of(series.small, workload, series.second), walk * cycles)
    measured, over = slowdown(series.small, workload, config, base), f"{config} over {base}"
    if not series.second:  # replicas
        measured, over = 1 / measured, f"{base} over {config}"
        ours = ours and ours.through(lambda value: 1 / value)
        rivals = {rival: 1 / value for rival, value in rivals.items()}
    return published(name).measured(
        f"pages-{series.small}-{workload}-{base}-{config}",
        f"page size: {series.what}",
        f"{workload}, {over}, from {base} and {huge}",
        "x",
        measured,
        ours,
        PAGES if ours else NOT_REPRODUCIBLE,
        note,
        basu=rivals.get("basu"),
        line=rivals.get("line"),
    )
