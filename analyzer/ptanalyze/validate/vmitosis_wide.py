"""vMitosis, Figures 4 and 5, and misplaced replicas: workloads on all four sockets."""

from collections.abc import Iterator

from ..core.interval import Interval
from ..cost.result import Result
from .bench import Bench
from .law_rows import beside, misplaced, replicated, run_of, took
from .published import Figure, published
from .row import DEFINITION, MODELLED, REPLAYED, Row, not_reproducible, row
from .wide import counted, made, remote, scaled, slower, speedup

PAPER = published("vmitosis")
WORKLOADS = ("graph500", "canneal")
PAIRS = {  # family: runs without replicas, and the suffix of those with
    "wide-NV-4K": (("F", "M"), ("FA", "M"), ("I", "M")),
    "wide-NV-THP": (("TF", "M"), ("TFA", "M"), ("TI", "M")),
    "wide-NO-4K": (("OF", "MP"), ("OF", "MF")),
}
PRIOR = "thin-2D-4K"
QUARTERS = (0.75, 0.75)
ODD = (
    "3 of 4, taken; but Graph500's gPT walk cycles do not change with replicas under FA and I, as if that "
    "table was local without: the paper does not say why"
)
HUGE = (
    "with 2 MiB pages between none and all of a walk waits for DRAM, and no counter of the run without "
    "replicas says how much: refused"
)
LAW = (
    "law, from the counters of the run without replicas; what workloads have in common was fitted on "
    "one-socket runs of others; shares of remote leaf entries: {}"
)


def figure_4(bench: Bench) -> Iterator[Row]:
    """Replicas in a NUMA-visible VM."""
    gains = {}
    for workload in WORKLOADS:
        for config in ("F", "FA", "I"):
            known = remote(counted(workload, "numa-visible")) if config == "F" else QUARTERS
            counts = "as counted for Figure 2" if config == "F" else ODD
            gain = law_row(
                "wide-NV-4K", workload, config, "M", known, LAW.format(counts), "Figure 4, section 4.2.1 (4a)"
            )
            gains[workload, config] = gain.number.middle
            yield gain
    note = "predicted for Graph500 and Canneal alone; counters of the other two are not at hand"
    yield row(PAPER["visible-least"], min(gains.values()), REPLAYED, note)
    yield row(PAPER["visible-most"], max(gains.values()), REPLAYED, note)
    interleaved = min(value for (_, config), value in gains.items() if config == "I")
    yield row(PAPER["interleaved-least"], interleaved, REPLAYED, note)
    yield from modelled_gains(bench)
    yield from huge_pages_visible()


def modelled_gains(bench: Bench) -> Iterator[Row]:
    """The same of a modelled workload without measured counters."""
    results = bench.replay(made(bench, "visible"), ["linux", "vmitosis-replicate"])
    ours = speedup(results["vmitosis-replicate"])
    for name, end in (("visible-least", "least"), ("visible-most", "most")):
        yield row(PAPER[name], ours, MODELLED, f"{scaled(bench)}; {end} of the paper's workloads")


def huge_pages_visible() -> Iterator[Row]:
    where = "Figure 4, section 4.2.1 (4b)"
    note = HUGE
    for workload in WORKLOADS:
        for config in ("TF", "TFA", "TI"):
            said = note + "; three runs of it differ by 27 %" * ((workload, config) == ("canneal", "TF"))
            yield not_reproducible(gain_of("wide-NV-THP", workload, config, "M", where), said)
    for name in ("thp-canneal-balanced", "thp-canneal-interleaved"):
        yield not_reproducible(PAPER[name], note)


def law_row(
    family: str,
    workload: str,
    config: str,
    suffix: str,
    known: tuple[float, float],
    note: str,
    where: str,
) -> Row:
    """Row of the run time without replicas over that with them."""
    runs = [(w, c, c + m) for w in WORKLOADS for c, m in PAIRS[family]]
    gains = {(w, after): took(family, w, before) / took(family, w, after) for w, before, after in runs}
    figure = gain_of(family, workload, config, suffix, where)
    ours = replicated(run_of(family, workload, config), *known, PRIOR, workload)
    return row(figure, ours, REPLAYED, note, **beside(gains, workload, config + suffix))


def gain_of(family: str, workload: str, config: str, suffix: str, where: str) -> Figure:
    """Figure: run time without replicas over that with them, from the artifact."""
    title = f"{workload.capitalize()}, {config} over {config}+{suffix}"
    name = f"{family}-{workload}-{config}-{suffix}"
    ratio = took(family, workload, config) / took(family, workload, config + suffix)
    return PAPER.measured(name, where, title, "x", ratio)


def figure_5(bench: Bench) -> Iterator[Row]:
    """Replicas in a NUMA-oblivious VM, para- and fully virtualized."""
    where, gains = "Figure 5, section 4.2.2", {}
    for workload in WORKLOADS:
        known = remote(counted(workload, "numa-oblivious"))
        for suffix in ("MP", "MF"):
            note = LAW.format("as counted for Figure 2")
            gain = law_row("wide-NO-4K", workload, "OF", suffix, known, note, where)
            gains[workload] = gain.number.middle
            yield gain
    few = "predicted for Graph500 and Canneal alone; counters of the other two are not at hand"
    yield row(PAPER["oblivious-least"], min(gains.values()), REPLAYED, few)
    yield row(PAPER["oblivious-most"], gains["graph500"], REPLAYED, few)
    results = bench.replay(
        made(bench, "oblivious", host_placement="interleave"),
        ["linux", ("vmitosis-replicate", {"mode": "no-p"})],
    )
    yield row(PAPER["oblivious-least"], speedup(results["vmitosis-replicate"]), MODELLED, scaled(bench))
    same = "both variants put the same replicas on the same nodes, once the groups are found (Table 4)"
    yield row(PAPER["pv-over-fv"], 1.0, DEFINITION, same)
    yield not_reproducible(PAPER["oblivious-thp-most"], HUGE)


def misplaced_replicas(bench: Bench) -> Iterator[Row]:
    """Every CPU walks another node's replica of the gPT (section 4.2.2)."""
    capture = made(bench, "oblivious", host_placement="interleave")
    policies = [
        ("linux", {}),
        ("vmitosis-replicate", {"mode": "no-f", "misplaced": 1.0, "layers": "gpt"}),
    ]
    alone = bench.replay(capture, policies)
    both = bench.replay(capture, ["linux", ("vmitosis-replicate", {"mode": "no-f", "misplaced": 1.0})])
    before, after = (remote_leaves(alone[name]) for name in ("linux", "vmitosis-replicate"))
    repaired = remote_leaves(both["vmitosis-replicate"])
    note = scaled(bench)
    yield row(PAPER["misplaced-remote"], after[0], DEFINITION, note)
    yield row(PAPER["plain-remote"], before[0], DEFINITION, note)
    yield row(PAPER["misplaced-added"], repaired[0] - before[0], DEFINITION, note)
    yield row(PAPER["misplaced-removed"], before[1] - repaired[1], DEFINITION, note)
    yield row(PAPER["misplaced-gain"], speedup(both["vmitosis-replicate"]), MODELLED, note)
    known = remote(counted("graph500", "numa-oblivious"))
    ours = misplaced(run_of("wide-NO-4K", "graph500", "OF"), known, PRIOR, "graph500")
    yield row(
        PAPER["misplaced-graph500"], percent_more(ours), REPLAYED, LAW.format("as counted for Figure 2")
    )
    for name in ("misplaced-xsbench", "misplaced-memcached"):
        yield row(PAPER[name], percent_more(slower(alone["vmitosis-replicate"])), MODELLED, note)


def percent_more(ratio: Interval) -> Interval:
    """Interval of the extra run time in %, from a ratio of run times."""
    return ratio.through(lambda value: 100 * (value - 1))


def remote_leaves(result: Result) -> tuple[float, float]:
    """(% of the gPT's leaf reads that are remote, % of the ePT's)."""
    _, lr, rl, rr = (100 * result.classes.sum(axis=0) / result.classes.sum()).tolist()
    return rl + rr, lr + rr
