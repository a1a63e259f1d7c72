"""vMitosis, Figures 1, 3 and 6: one-socket workloads whose tables are remote or repaired, by the law."""

from collections.abc import Iterator

from ..core.interval import Interval
from ..cost.calibrate import calibrate_runs
from ..cost.closed_forms import Run
from ..cost.predict import predict_placement
from .bench import Bench
from .law_rows import ONE_RUN, calibration, slowdown, took
from .published import Figure, published
from .row import DEFINITION, FITTED, REPLAYED, Row, not_reproducible, row

PAPER = published("vmitosis")
FAMILY = "thin-2D-4K"
WORKLOADS = {"gups": "GUPS", "btree": "BTree", "canneal": "Canneal"}
FIGURE_1 = ("LR", "RL", "RR", "LRI", "RLI", "RRI")
FIGURE_3 = ("RRIE", "RRIG", "RRIM")
SECOND = "RR"
FEWER = "predicted for GUPS, BTree and Canneal alone; counters of the other three are not at hand"
REPAIRED = "the law knows no difference between tables that are local and tables that became local"
# family: (all-local run, runs to predict, workloads)
HUGE = {
    "thin-2D-THP": ("TLL", ("TRRI", "TRRIE", "TRRIG"), ("gups", "canneal")),
    "thin-2D-THP-fragmented": ("TFRRIM", ("TFRRI", "TFRRIE", "TFRRIG"), ("gups", "btree", "canneal")),
}
HUGE_NOTE = (
    "with 2 MiB pages, in the guest or in the host alone, between none and all of a walk waits for DRAM; the "
    "counters of a local run do not say how much: `calibrate` refuses it"
)


def measured(
    workload: str,
    config: str,
    local: str = "LL",
    family: str = FAMILY,
    where: str = "Figure 1, section 2.1",
    second: str = "",
) -> Figure:
    """Figure: run time at a configuration over the local run time, from the artifact."""
    known = f"{local} and {second}" if second else local
    title = f"{WORKLOADS[workload]}, {config} over {local}, from {known}"
    ratio = took(family, workload, config) / took(family, workload, local)
    return PAPER.measured(
        "-".join(filter(None, (family, workload, config, second))), where, title, "x", ratio
    )


def figure_1(bench: Bench) -> Iterator[Row]:
    """Slow-downs; once from the all-local run alone, once with RR added."""
    middles = {}
    for workload in WORKLOADS:
        for config in FIGURE_1:
            slowed = slowdown(measured(workload, config), FAMILY, FAMILY, workload, "LL", config)
            middles[workload, config] = slowed.number.middle
            yield slowed
        for config in FIGURE_1:
            figure = measured(workload, config, second=SECOND)
            yield slowdown(figure, FAMILY, FAMILY, workload, "LL", config, SECOND)
    one_remote = [value for (_, config), value in middles.items() if config in ("LR", "RL")]
    worst = [value for (_, config), value in middles.items() if config == "RRI"]
    yield row(PAPER["one-remote-least"], min(one_remote), REPLAYED, FEWER)
    yield row(PAPER["one-remote-most"], max(one_remote), REPLAYED, FEWER)
    yield row(PAPER["contended-least"], min(worst), REPLAYED, FEWER)
    yield row(PAPER["contended-most"], middles["gups", "RRI"], REPLAYED, ONE_RUN)
    halves = "the law takes half of the waiting to be the gPT's, because the paper says so here"
    yield row(PAPER["remote-gpt-over-ept"], 1.0, DEFINITION, halves)


def figure_3(bench: Bench) -> Iterator[Row]:
    """Repair by migrating either table or both: 4 KiB pages, THP, and THP in a fragmented guest."""
    where, gains = "Figure 3, section 4.1", {}
    for workload in WORKLOADS:
        for config in FIGURE_3:
            figure, kind = (
                measured(workload, config, where=where),
                DEFINITION if config == "RRIM" else REPLAYED,
            )
            note = REPAIRED if config == "RRIM" else ""
            yield slowdown(figure, FAMILY, FAMILY, workload, "LL", config, note=note, kind=kind)
        gains[workload] = predict_placement(calibration(FAMILY, FAMILY, workload, "LL"), "RRI").middle
    yield row(PAPER["repaired-least"], min(gains.values()), REPLAYED, FEWER)
    yield row(PAPER["repaired-most"], gains["gups"], REPLAYED, ONE_RUN)
    yield row(PAPER["repaired-to-best"], 1.0, DEFINITION, REPAIRED)
    yield row(PAPER["repair-by-half"], 50.0, DEFINITION, "the law takes both tables to be waited for alike")
    yield from with_huge_pages(where)


def with_huge_pages(where: str) -> Iterator[Row]:
    for family, (local, configs, workloads) in HUGE.items():
        for workload in workloads:
            for config in configs:
                figure = measured(workload, config, local, family, where)
                yield not_reproducible(figure, HUGE_NOTE)
    for name in ("thp-canneal", "fragmented-most"):
        yield not_reproducible(PAPER[name], HUGE_NOTE)
    yield not_reproducible(PAPER["thp-redis"], "no counters of Redis are at hand, and the paper gives none")
    yield not_reproducible(PAPER["thp-bloat"], "how much memory a program's huge pages waste is not modelled")


def figure_6(bench: Bench) -> Iterator[Row]:
    """Memcached before and after it moved: the law, from a single repaired configuration.

    Throughput is the reciprocal of run time. RRI+g leaves the ePT remote; all others follow
    from its throughput alone, each table having half of the waiting.
    """
    known = PAPER["restored-gpt"].value / 100
    alone = calibrate_runs(Run(1.0), Run(1 / known), "RRIG", native=False)
    note = "law, from the throughput of RRI+g alone: each table is waited for alike"
    for name, placement in (("restored-none", "RRI"), ("restored-ept", "RRIE")):
        kind = FITTED if placement == "RRIE" else REPLAYED  # by symmetry RRIE is RRIG, which is given
        yield row(PAPER[name], inverse(predict_placement(alone, placement).slowdown), kind, note)
    yield row(PAPER["restored-gpt"], inverse(predict_placement(alone, "RRIG").slowdown), FITTED, note)
    yield row(PAPER["restored-both"], 100.0, DEFINITION, REPAIRED)
    drop = inverse(predict_placement(alone, "LRI").slowdown)
    oblivious = note + "; in the oblivious VM the gPT moves as any memory of it, so only the ePT is remote"
    yield row(PAPER["oblivious-drop"], lost(drop), FITTED, oblivious)
    yield row(PAPER["oblivious-restored"], 100.0, DEFINITION, REPAIRED)
    for name, placement in (("RRI", "RRI"), ("RRIG", "RRIG"), ("RRIM", "RRIM")):
        kind = {"RRI": REPLAYED, "RRIG": FITTED, "RRIM": DEFINITION}[name]
        yield row(
            PAPER[f"artifact-{name}"], inverse(predict_placement(alone, placement).slowdown), kind, note
        )
    absolute = "the law says nothing of how fast a program is, only how much slower it becomes"
    yield not_reproducible(PAPER["initial-throughput"], absolute)


def inverse(slower: Interval) -> Interval:
    """Interval of the throughput that a slow-down leaves, in %."""
    return slower.through(lambda value: 100 / value)


def lost(kept: Interval) -> Interval:
    return kept.through(lambda value: 100 - value)
