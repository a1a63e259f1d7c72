"""vMitosis (ASPLOS 2021), figure by figure."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

import ptanalyze as pt
from ptanalyze_law.calibrate import calibrate_runs
from ptanalyze_law.predict import predict_placement

from . import page_size
from . import wide as sockets
from .bench import Bench
from .law_rows import misplaced, placed, predicted, replicated, run_of, slowdown, waited_for
from .row import FITTED, LAW, MODELLED, NOT_REPRODUCIBLE, Kind, Row, published
from .script import million_entries_per_second
from .vmitosis_moved import figure_6_modelled
from .wide import CANNEAL, CLASSES, MIB, counted, made, remote, run_cycles, scaled, shares, slower, speedup

PAPER = published("vmitosis")

# vMitosis, Figure 2: where leaf entries are, seen from each socket.


def figure_2(bench: Bench) -> Iterator[Row]:
    """Classes of leaf entries."""
    even = made(bench, "visible", trace=False, placement="interleave", host_placement="interleave")
    middle = (100 * shares(even)).mean(axis=0)
    first = 100 * shares(made(bench, "visible", trace=False)).mean(axis=0)
    yield from classes("graph500", "numa-visible", middle, first, MODELLED, "graph500")
    single = 100 * shares(bench.capture(trace=False, guest="visible", **CANNEAL))
    of_all = single.mean(axis=0)
    yield from classes("canneal", "numa-visible", of_all, of_all, MODELLED, "canneal")
    most = 100 * counted("canneal", "numa-visible")[:, 0].max()
    title = "Canneal, NUMA-visible, Local-Local on its socket"
    yield share("canneal-visible-socket", title, most, single[0, 0], MODELLED, "canneal")
    for workload in ("canneal", "graph500"):
        yield from classes(workload, "numa-oblivious", middle, middle, NOT_REPRODUCIBLE, "oblivious")
    yield PAPER.row("oblivious-local-local", middle[0])
    yield PAPER.row("oblivious-one-remote", 100 - middle[0])


def classes(
    workload: str, vm: str, ours: np.ndarray, other: np.ndarray, kind: Kind, note: str
) -> Iterator[Row]:
    """A row per class: the mean over sockets, as published in counts; the interval reaches to `other`."""
    known = 100 * counted(workload, vm).mean(axis=0)
    for name, published_share, middle, end in zip(CLASSES, known, ours, other, strict=True):
        title = f"{workload.capitalize()}, {vm.replace('numa', 'NUMA')}, {name}, mean of the sockets"
        interval = pt.Interval(min(middle, end), middle, max(middle, end))
        yield share(f"{workload}-{vm}-{name}", title, published_share, interval, kind, note)


def share(name: str, title: str, value: float, ours: float | pt.Interval, kind: Kind, note: str) -> Row:
    return PAPER.measured(name, "Figure 2, section 2.2", title, "%", value, ours, kind, note)


# vMitosis, section 5.2: shadow paging.


def shadow(bench: Bench) -> Iterator[Row]:
    """A single table instead of two: walks, and initialization."""
    results = bench.replay(made(bench, "visible"), ["linux", "shadow+mitosis"])
    yield PAPER.row("shadow-best", speedup(results["shadow+mitosis"]), scaled=scaled(bench))
    capture = bench.capture(size=256 * MIB, guest="visible", init_trace=True, accesses=1, threads=4)
    touched = bench.replay(capture, ["linux", "shadow"], cold=True)
    for name in ("shadow-init-least", "shadow-init-most"):
        yield PAPER.row(name, run_cycles(touched["shadow"]) / run_cycles(touched["linux"]))


# vMitosis, Tables 4 and 5: groups of vCPUs, system calls.

SOCKETS = [(0, 4, 8), (1, 5, 9), (2, 6, 10), (3, 7, 11)]
ENTRIES = {"4KiB": 1, "4MiB": 1 << 10, "4GiB": 1 << 20}


def table_4(bench: Bench) -> Iterator[Row]:
    """Groups from the published latencies of 12 of the 192 vCPUs."""
    matrix = json.loads((pt.errors.bundled("models") / "reference/vmitosis-table-4.json").read_bytes())
    ns = np.array(matrix["ns"], float)
    by_latency = latency_groups(np.fmin(ns, ns.T), matrix["cpus"])
    yield PAPER.row("groups", len(by_latency))
    yield PAPER.row("grouped", sum(len(group) for group in by_latency if group in SOCKETS))


GAP = 1.3  # Table 4: 62 / 50 = 1.24 is the whole spread within sockets, 125 / 62 = 2.02 the gap across


def latency_groups(ns: np.ndarray, cpus: Sequence[int]) -> list[tuple[int, ...]]:
    """Virtual NUMA groups (section 3.3.4): CPUs that pairs below a gap of the sorted latencies join, of the
    widest latencies at which no pair within a group is slower; [] where there is no such gap.

    ns  float64[n, n], symmetric, row and column i for cpus[i]; nan for unknown pairs and on the diagonal
    """
    steps = np.unique(ns[~np.isnan(ns)])
    for below in steps[:-1][steps[1:] >= GAP * steps[:-1]][::-1]:
        reach = (ns <= below) | np.eye(len(ns), dtype=bool)
        while (wider := reach @ reach).sum() > reach.sum():
            reach = wider
        if not (reach & (ns > below)).any():
            return sorted({tuple(sorted(np.array(cpus)[row].tolist())) for row in reach})
    return []


def table_5(bench: Bench) -> Iterator[Row]:
    """System calls, by models/costs/server-2020.toml; fitted are the cells it was made from (ADR 9)."""
    machine = pt.load_machine("vmitosis-cascade-lake")
    for size, entries in ENTRIES.items():
        for call in ("mmap", "mprotect", "munmap"):
            for copies, name in ((1, "linux"), (4, "replication")):
                rate = million_entries_per_second(machine, call, entries, copies)
                yield PAPER.row(f"{call}-{size}-{name}", rate)


# vMitosis, Figures 1, 3 and 6: one-socket workloads whose tables are remote or repaired, by the law.

FAMILY = "thin-2D-4K"
WORKLOADS = {"gups": "GUPS", "btree": "BTree", "canneal": "Canneal"}
FIGURE_1 = ("LR", "RL", "RR", "LRI", "RLI", "RRI")
SECOND = "RR"
GUPS_RRI = "gups RRI "  # what two figures predict


def thin(where: str, workload: str, config: str, second: str = "") -> Row:
    """Row of the run time at a configuration over the local run time, from the local run and `second`;
    fitted where that is the configuration."""
    return PAPER.measured(
        "-".join(filter(None, (FAMILY, workload, config, second))),
        where,
        f"{WORKLOADS[workload]}, {config} over LL, from {f'LL and {second}' if second else 'LL'}",
        "x",
        slowdown(FAMILY, workload, config, "LL"),
        predicted(FAMILY, workload, "LL", config, second),
        FITTED if config == second else LAW,
        "two-runs" if second else "one-run",
        prediction=" ".join([workload, config, second]),
        basu=None if second else waited_for(FAMILY, workload, "LL", config),
    )


def figure_1(bench: Bench) -> Iterator[Row]:
    """Slow-downs; once from the all-local run alone, once with RR added."""
    found = {}
    for workload in WORKLOADS:
        for config in FIGURE_1:
            found[workload, config] = row = thin("Figure 1, section 2.1", workload, config)
            yield row
        for config in FIGURE_1:
            yield thin("Figure 1, section 2.1", workload, config, SECOND)
    one_remote = [middle_of(row) for (_, config), row in found.items() if config in ("LR", "RL")]
    worst = [middle_of(row) for (_, config), row in found.items() if config == "RRI"]
    yield PAPER.row("one-remote-least", min(one_remote))
    yield PAPER.row("one-remote-most", max(one_remote))
    yield PAPER.row("contended-least", min(worst))
    yield PAPER.row("contended-most", found["gups", "RRI"].ours, prediction=GUPS_RRI)


ALONE: dict[str, Any] = {"threads": 1, "threads_to_nodes": "0", "placement": "bind:0", "init_trace": False}
# pattern of synth, GiB of the published run
SIZES = {"gups": ("uniform", 64), "btree": ("btree", 330), "canneal": ("anneal", 64)}
# guest and host's placement: pages of 4 KiB, all-local run, runs to predict; pages of 2 MiB, all-local run
TABLES = {
    ("visible", "bind:0"): (FAMILY, "LL", FIGURE_1, "thin-2D-THP", "TLL"),
    ("native", None): ("thin-1D-4K", "L", ("R", "RI"), "thin-1D-THP", "TL"),
}


def walks(bench: Bench) -> Iterator[Row]:
    """Cycles of walks over those with all tables local: two tables, one, huge pages."""
    known, size = pt.load_machine("vmitosis-cascade-lake"), bench.size(64, 4)
    for (workload, (pattern, whole)), (guest, host) in product(SIZES.items(), TABLES):
        family, local, configs, huge, huge_local = TABLES[guest, host]
        capture = bench.capture(
            size=size * sockets.GIB, guest=guest, pattern=pattern, host_placement=host, **ALONE
        )
        machine = sockets.with_caches(known, size / whole)
        # 2 MiB pages of a quick run's 4 GiB nearly fit into the TLB, which is not scaled
        policies = ["linux"] if bench.quick else ["linux", "thp"]
        small, *large = bench.replay(capture, policies, machine, baseline="linux").values()
        base, least = walked(small, machine, local), run_of(family, workload, local).walk or np.nan
        runs = [(family, one, small) for one in configs] + [(huge, huge_local, one) for one in large]
        for kind, config, result in runs:
            if walk := run_of(kind, workload, config).walk:
                title = f"{WORKLOADS[workload]}, {config} over {local}: walk cycles"
                ours, name = walked(result, machine, placed(config)) / base, f"walks-{workload}-{config}"
                of = FITTED if (workload, kind) == ("gups", "thin-1D-4K") else MODELLED  # its latencies
                beside = (walk / least, ours, of, "walks")
                yield PAPER.measured(name, "walk cycles", title, "x", *beside, size=size)


def walked(result: pt.Result, machine: pt.Machine, config: str) -> float:
    """Cycles of the walks of a Result whose tables are all local, with them at a configuration."""
    price = pt.counts.read_cycles(machine, contended=config.endswith("I"))[0]
    every, guests = (reads.sum(axis=(0, 1, 2)) for reads in (result.reads, result.reads[::8]))
    guest, host = (price[int(table == "R")] for table in (config[0], config[:2][-1]))
    return float(guests @ guest + (every - guests) @ host + result.walks * machine.walk_caches.cycles)


def middle_of(row: Row) -> float:
    assert row.ours is not None, row.name
    return row.ours.middle


def figure_3(bench: Bench) -> Iterator[Row]:
    """Repair by migrating either table of 4 KiB pages."""
    where = "Figure 3, section 4.1"
    for workload in WORKLOADS:
        for config in ("RRIE", "RRIG"):
            yield thin(where, workload, config)
    yield PAPER.row("repaired-most", predicted(FAMILY, "gups", "LL", "RRI"), prediction=GUPS_RRI)


def figure_6(bench: Bench) -> Iterator[Row]:
    """Memcached before and after it moved: the law, from a single repaired configuration.

    Throughput is the reciprocal of run time. RRI+g leaves the ePT remote; all others follow
    from its throughput alone, each table having half of the waiting; by symmetry RRIE is RRIG.
    """
    known = PAPER["restored-gpt"].value / 100
    alone = calibrate_runs(pt.law.MeasuredRun(1.0), pt.law.MeasuredRun(1 / known), "RRIG", native=False)
    left = {
        name: predict_placement(alone, name).slowdown.through(lambda value: 100 / value)
        for name in ("RRI", "RRIE", "RRIG", "LRI")
    }
    for name, placement in (
        ("restored-none", "RRI"), ("restored-ept", "RRIE"), ("restored-gpt", "RRIG"),
        ("artifact-RRI", "RRI"), ("artifact-RRIG", "RRIG"),
    ):  # fmt: skip
        prediction = "" if name == "restored-gpt" else f"restored {placement}"
        yield PAPER.row(name, left[placement], prediction=prediction)
    yield PAPER.row("oblivious-drop", left["LRI"].through(lambda value: 100 - value))


# vMitosis, Figures 4 and 5, and misplaced replicas: workloads on all four sockets.

WIDE_WORKLOADS = ("graph500", "canneal")
QUARTERS = (0.75, 0.75)


def figure_4(bench: Bench) -> Iterator[Row]:
    """Replicas in a NUMA-visible VM."""
    gains = {}
    for workload in WIDE_WORKLOADS:
        for config in ("F", "FA", "I"):
            counts = config == "F"
            known = remote(counted(workload, "numa-visible")) if counts else QUARTERS
            note = "replicas-counted" if counts else "replicas-taken"
            where = "Figure 4, section 4.2.1 (4a)"
            gains[workload, config] = gain = wide("wide-NV-4K", workload, config, "M", known, note, where)
            yield gain
    middles = {key: middle_of(gain) for key, gain in gains.items()}
    yield PAPER.row("visible-least", min(middles.values()))
    yield PAPER.row("visible-most", max(middles.values()))
    interleaved = min(value for (_, config), value in middles.items() if config == "I")
    yield PAPER.row("interleaved-least", interleaved)
    results = bench.replay(made(bench, "visible"), ["linux", "vmitosis-replicate"])
    ours = speedup(results["vmitosis-replicate"])
    for end in ("least", "most"):
        note = f"modelled-{end}"
        yield PAPER.row(f"visible-{end}", ours, kind=MODELLED, note=note, scaled=scaled(bench))
    for workload in WIDE_WORKLOADS:
        for config in ("TF", "TFA", "TI"):
            note = "huge-replicas-apart" if (workload, config) == ("canneal", "TF") else "huge-replicas"
            yield wide("wide-NV-THP", workload, config, "M", None, note, "Figure 4, section 4.2.1 (4b)")


def wide(
    family: str, name: str, config: str, suffix: str, known: tuple[float, float] | None, note: str, where: str
) -> Row:
    """Row of the run time without replicas over that with them; known: remote shares of gPT and ePT, None:
    not reproducible."""
    ours = basu = None
    if known is not None:
        ours, basu = replicated(run_of(family, name, config), known, FAMILY, name)
    return PAPER.measured(
        f"{family}-{name}-{config}-{suffix}",
        where,
        f"{name.capitalize()}, {config} over {config}+{suffix}",
        "x",
        slowdown(family, name, config, config + suffix),
        ours,
        LAW if known else NOT_REPRODUCIBLE,
        note,
        prediction=f"{family} {name} {config}" if known else "",
        basu=basu,
    )


def figure_5(bench: Bench) -> Iterator[Row]:
    """Replicas in a NUMA-oblivious VM, para- and fully virtualized."""
    where, gains = "Figure 5, section 4.2.2", {}
    for workload in WIDE_WORKLOADS:
        known = remote(counted(workload, "numa-oblivious"))
        for suffix in ("MP", "MF"):
            gains[workload] = gain = wide(
                "wide-NO-4K", workload, "OF", suffix, known, "replicas-counted", where
            )
            yield gain
    yield PAPER.row("oblivious-least", min(map(middle_of, gains.values())))
    most = gains["graph500"]
    yield PAPER.row("oblivious-most", most.ours, prediction=most.prediction)
    results = bench.replay(
        made(bench, "oblivious", host_placement="interleave"),
        ["linux", ("vmitosis-replicate", {"mode": "no-p"})],
    )
    ours = speedup(results["vmitosis-replicate"])
    yield PAPER.row("oblivious-least", ours, kind=MODELLED, note="scaled", scaled=scaled(bench))


def misplaced_replicas(bench: Bench) -> Iterator[Row]:
    """Every CPU walks another node's replica of the gPT (section 4.2.2)."""
    capture = made(bench, "oblivious", host_placement="interleave")
    how = {"mode": "no-f", "misplaced": 1.0, "layers": "gpt"}
    alone = bench.replay(capture, ["linux", ("vmitosis-replicate", how)])["vmitosis-replicate"]
    known = remote(counted("graph500", "numa-oblivious"))
    graph500 = misplaced(run_of("wide-NO-4K", "graph500", "OF"), known, FAMILY, "graph500")
    yield PAPER.row("misplaced-graph500", percent_more(graph500))
    for name in ("misplaced-xsbench", "misplaced-memcached"):
        yield PAPER.row(name, percent_more(slower(alone)), scaled=scaled(bench))


def percent_more(ratio: pt.Interval) -> pt.Interval:
    """Interval of the extra run time in %, from a ratio of run times."""
    return ratio.through(lambda value: 100 * (value - 1))


FIGURES = {
    "Figure 1": figure_1,
    "walk cycles": walks,
    "Figure 2": figure_2,
    "Figure 3": figure_3,
    "Figure 4": figure_4,
    "Figure 5": figure_5,
    "section 4.2.2, misplaced": misplaced_replicas,
    "Figure 6": figure_6,
    "Figure 6, modelled": figure_6_modelled,
    "Table 4": table_4,
    "Table 5": table_5,
    "section 5.2: shadow paging": shadow,
    "page size": partial(page_size.rows, "vmitosis"),
}
