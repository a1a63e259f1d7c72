"""Plots show what their tables say, can be read, and need no more than the columns that they name."""

import inspect
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot, rcParams
from matplotlib.colors import to_rgb

import ptanalyze
from plot_texts import clipped, overlapping, readable, words, written
from ptanalyze.analysis import frames
from ptanalyze.analysis.walk import explain, walk_frame
from ptanalyze.core import interval
from ptanalyze.core.columns import ASSUMED, COLD
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_machine
from ptanalyze.show import plots
from ptanalyze.show.plots.speedups import gains, on_front
from ptanalyze.show.plots.style import CLASSES, NODES, SERIES, broken, node_looks, policy_labels
from ptanalyze.show.plots.table_maps import COLUMNS, extents, pixels
from ptanalyze_formats.diff import diff, table_pages
from ptanalyze_law.prediction_plot import prediction_plot
from ptanalyze_papers.run import flat, published_frame, validate
from ptanalyze_papers.validation_plots import validation
from strategies import Page, build_snapshot

MANY = [
    "linux", "ideal", "mitosis", "thp", "vmitosis-replicate", "ptemagnet+vmitosis-replicate",
    ("hydra", {"prefetch": 0}), ("hydra", {"prefetch": 3}),
]  # fmt: skip
VA = 0x7F12_3456_7000


def make(place, name, **how):
    how = {"accesses": 4000, "mprotect_every": 500, "init_trace": False, "threads": 4} | how
    return ptanalyze.synth(place / name, "16M", **how)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("plots")


@pytest.fixture(scope="module")
def vm(place):
    return make(place, "vm", guest="visible", fragmentation=0.3)


@pytest.fixture(scope="module")
def native(place):
    return make(place, "native")


@pytest.fixture(scope="module")
def wide(place):
    how = {"nodes": 16, "placement": "interleave", "guest": "visible", "trace": False}
    return ptanalyze.synth(place / "wide", "64M", **how)


@pytest.fixture(scope="module")
def many(vm):
    return ptanalyze.replay(vm, MANY, windows=5, cold=True)


@pytest.fixture(scope="module")
def few(native):
    return ptanalyze.replay(native, ["mitosis", "hydra"], windows=5, cold=True)


@pytest.fixture(scope="module")
def untraced(place):
    made = ptanalyze.synth(place / "untraced", "16M", trace=False)
    return ptanalyze.whatif(made, ["linux", "mitosis", "ideal"])


@pytest.fixture(scope="module")
def published():
    compared = validate(("vmitosis",), "Figure 1", quick=True)
    return published_frame([flat(row) for _, rows in compared for row in rows])


def title(figure):
    return " ".join(figure.get_suptitle().replace("\N{NO-BREAK SPACE}", " ").split())


def texts(figure):
    return [text.replace("\N{NO-BREAK SPACE}", " ").replace("\n", " ") for text in words(figure)]


def lines_of(axes):
    return {line.get_label().replace("\n", " "): line for line in axes.lines}


def widths(axes):
    return {of.get_label(): [bar.get_width() for bar in of] for of in axes.containers}


# Policies: speed-ups, the front, memory, sweeps, differences, rooflines.


def test_speedups_are_dots_in_bars(few):
    axes, numbers = plots.speedup(few.frame).axes
    order = [label.get_text() for label in axes.get_yticklabels()]
    rows = few.frame.set_index("policy").loc[order]
    read = [interval.as_read(*row) for row in rows[["speedup", "speedup_low", "speedup_high"]].values]
    assert read == sorted(read, reverse=True) and set(order) == {"linux", "mitosis", "hydra"}
    (dots,) = (line for line in axes.lines if line.get_marker() == "o")
    assert np.allclose(dots.get_xdata(), rows["speedup"])
    ends = np.array([path.vertices[:, 0] for path in axes.collections[0].get_paths()])
    assert np.allclose(ends, rows[["speedup_low", "speedup_high"]])
    assert numbers.get_yticklabels()[0].get_text().startswith(f"{rows['speedup'].iloc[0]:.2f}x (")


def test_wide_ratios_have_logarithmic_axes(many):
    fast = many.frame.copy()
    fast.loc[fast["policy"] == "thp", ["speedup_low", "speedup", "speedup_high"]] = [30.0, 40.0, 50.0]
    near = many.frame[many.frame["policy"].isin(["linux", "mitosis"])]
    for table, scale in ((fast, "log"), (near, "linear")):
        speedup, pareto = plots.speedup(table), plots.pareto(table)
        assert speedup.axes[0].get_xscale() == pareto.axes[0].get_yscale() == scale
        assert speedup.axes[0].get_xlabel().endswith("log scale)") is (scale == "log")
        assert readable(speedup) and readable(pareto)


def test_walk_cycles_stand_for_run_time(untraced):
    for draw in (plots.speedup, plots.pareto, plots.footprint, plots.roofline):
        assert readable(draw(untraced))
    figure = plots.speedup(untraced)
    ratio = untraced["walk_cycles"][0] / untraced["walk_cycles"]
    (dots,) = (line for line in figure.axes[0].lines if line.get_marker() == "o")
    assert sorted(dots.get_xdata()) == pytest.approx(sorted(ratio))
    assert "placement can gain next to nothing" in title(figure)
    bare = untraced.copy()
    bare.attrs = {**untraced.attrs, "findings": []}
    assert "No trace, so no run time: with mitosis at most 40.3 %" in title(plots.speedup(bare))
    assert title(plots.pareto(bare)).startswith("No trace, so bounds: ")


def test_the_front_is_unbeaten():
    cost, gain = np.array([0, 1, 2, 2, 3, 0]), np.array([1.0, 1.2, 1.1, 1.3, 1.3, 1.0])
    assert on_front(cost, gain).tolist() == [True, True, False, True, False, True]


def test_pareto_places_policies_by_bytes(many):
    rows = gains(many.frame).set_index("label")
    by_policy = many.frame.set_index("policy")
    linux, mitosis = (
        by_policy.loc[name, ["pt_bytes_peak", "ept_bytes"]].sum() for name in ("linux", "mitosis")
    )
    assert rows["bytes"]["mitosis"] == mitosis - linux > 0 == rows["bytes"]["linux"]
    figure = plots.pareto(many.frame)
    markers = [line for line in figure.axes[0].lines if line.get_linestyle() == "None"]
    wanted = rows["value"].drop("ideal").sort_values(ascending=False)
    assert [float(line.get_ydata()[0]) for line in markers] == pytest.approx(wanted.tolist())
    filled = [line.get_markerfacecolor() != "none" for line in markers]
    assert 0 < sum(filled) < len(filled) and readable(figure)


def test_footprint_bars_sum_to_page_tables(many, few):
    for table in (many.frame, few.frame):
        axes = plots.footprint(table).axes[0]
        unit = {"KiB": 1024, "MiB": 1 << 20}[axes.get_xlabel().split()[0]]
        total = table["pt_bytes"] + table["ept_bytes"] + table["aside_bytes"]
        assert np.allclose(np.sum(list(widths(axes).values()), axis=0) * unit, total)


def test_a_sweep_is_a_curve(native):
    table = ptanalyze.sweep(native, ["mitosis", "hydra"], {"prefetch": [0, 4, 9]})
    figure = plots.curve(table)
    lines, hydra = lines_of(figure.axes[0]), table[table["policy"] == "hydra"]
    assert lines["hydra"].get_xdata().tolist() == [0, 4, 9]
    assert np.allclose(lines["hydra"].get_ydata(), hydra["speedup"])
    assert np.ptp(lines["mitosis"].get_ydata()) == 0 == np.ptp(lines["linux"].get_ydata())
    assert readable(figure)
    with pytest.raises(UsageError, match="wonder"):
        plots.curve(table, "wonder")


def test_swept_words_are_not_joined(native):
    table = ptanalyze.sweep(native, ["hydra"], {"tlbflush": ["off", "single"], "nodes": [4, 5]})
    figure = plots.curve(table, "tlbflush")
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["off", "single"]
    assert {bars.get_label() for bars in figure.axes[0].containers} == {"hydra nodes=4", "hydra nodes=5"}
    assert readable(figure) and readable(plots.curve(table, "nodes"))


def swept(faster):
    """A sweep's table: a policy's speed-up rises by so much per node."""
    rows = [
        {
            "nodes": n, "policy": policy, "params": "", "baseline": "linux", "walks": 10,
            "walk_cycles": 1 / (1 + more * n), "management_cycles": 0.0,
            "speedup_low": 1 + more * n / 2, "speedup": 1 + more * n, "speedup_high": 1 + more * n * 2,
        }
        for n in (2, 4, 8)
        for policy, more in faster.items()
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    law = {"code": ASSUMED, "text": "idle latencies"}
    table.attrs = {"swept": ["nodes"], "findings": [law], "provenance": {"capture": "app"}}
    return table


def test_equally_fast_policies_win_together():
    table = swept({"linux": 0.0, "hydra": 0.1, "mitosis": 0.1})
    figure = plots.curve(table)
    assert title(figure) == "Best at nodes = 8: hydra and mitosis, 1.80x over linux"
    assert "app; bands: idle latencies" in texts(figure)
    untimed = table.assign(speedup=None, speedup_low=None, speedup_high=None)
    untimed.attrs = table.attrs
    assert title(plots.curve(untimed)).endswith("of hydra and mitosis at nodes = 8: 1.80 at most")


def test_comparison_has_the_largest_change_on_top(few):
    table = ptanalyze.compare(few.frame.iloc[[0]], few.frame.iloc[[1]])
    figure = plots.comparison(table, "app@linux", "app@mitosis")
    (dots,) = (line for line in figure.axes[0].lines if line.get_marker() == "o")
    ratios = table["ratio"][(table["ratio"] > 0) & np.isfinite(table["ratio"])]
    assert sorted(dots.get_xdata()) == pytest.approx(sorted(ratios)) and readable(figure)
    assert abs(np.log(dots.get_xdata()[0])) == pytest.approx(abs(np.log(ratios)).max())


def test_roofline_points_lie_between_the_ceilings(many):
    table = many.frame[many.frame["policy"].isin(["linux", "mitosis", "vmitosis-replicate"])]
    axes = plots.roofline(table).axes[0]
    lines = lines_of(axes)
    for policy in table["policy"]:
        (x,), (y,) = lines[policy].get_data()
        row = table.set_index("policy").loc[policy]
        assert x == row["dram_reads_per_walk"] and y == pytest.approx(2100 / row["cycles_per_walk"])
        local, remote = (np.interp(x, *lines[name].get_data()) for name in ("all local", "all remote"))
        assert remote * 0.99 <= y <= local * 1.01
    (x,), (y,) = lines["vmitosis-replicate"].get_data()
    assert y == pytest.approx(np.interp(x, *lines["all local"].get_data()), rel=0.01)
    idle = table.assign(walks=[10, 0, 10])
    assert "mitosis" not in lines_of(plots.roofline(idle).axes[0])


# Who reads whose memory.


def test_stacked_bars_are_as_high_as_the_shares(many):
    table = many.leaves[many.leaves["policy"].isin(["linux", "mitosis"])]
    figure = plots.locality(table)
    for axes, policy in zip(figure.axes, ["linux", "mitosis"], strict=True):
        of = table[table["policy"] == policy].set_index(["class", "socket"])["share"]
        tops = np.zeros(4)
        for bars in axes.containers:
            heights = np.array([bar.get_height() for bar in bars])
            assert np.allclose(heights, 100 * of[bars.get_label()])
            assert np.allclose([bar.get_y() for bar in bars], tops)
            tops += heights
        assert np.allclose(tops, 100)


def test_locality_has_a_panel_per_weight_and_group(vm, native):
    both = pd.concat([ptanalyze.classify(vm), ptanalyze.classify(vm, weight="walks")])
    assert {axes.get_title() for axes in plots.locality(both).axes} == {"leaf entries", "walks"}
    mixed = pd.concat(
        [ptanalyze.classify(one).assign(group=name) for name, one in (("p", native), ("v", vm))]
    )
    figure = plots.locality(mixed)
    legend = {text.get_text() for text in figure.axes[-1].get_legend().get_texts()}
    assert legend == set(mixed["class"]) and {"Local", "Local-Local"} <= legend and readable(figure)


def test_the_heat_map_shows_shares_of_reads(few):
    figure = plots.reads(few.reads)
    dram = few.reads[(few.reads["policy"] == "linux") & (few.reads["from"] == "DRAM")]
    counts = dram.pivot_table(index="reader", columns="server", values="count", aggfunc="sum").to_numpy()
    shown = figure.axes[0].collections[0].get_array().reshape(4, 4)
    assert np.allclose(shown, 100 * counts / counts.sum())
    assert {patch.get_xy() for patch in figure.axes[0].patches} == {(n, n) for n in range(4)}
    remote = 100 * (1 - np.trace(counts) / counts.sum())
    assert f"linux {remote:.0f} % remote" in texts(figure)
    assert plots.reads(few.reads, "cache").axes[0].collections[0].get_array().sum() == pytest.approx(100)


def test_machines_matrices_are_drawn():
    machine = load_machine("hydra-haswell")
    both = {"idle": machine.latency.idle, "contended": machine.latency.contended}
    figure = plots.latency(frames.latency_frame(both, range(machine.nodes)))
    for axes, matrix in zip(figure.axes, both.values(), strict=False):
        assert np.array_equal(axes.collections[0].get_array(), np.array(matrix))
        assert {patch.get_xy() for patch in axes.patches} == {(n, n) for n in range(machine.nodes)}
    assert readable(figure)


@pytest.mark.parametrize("cpus", [2, 16, 192])
def test_groups_of_cpus_are_boxed(cpus):
    far = np.arange(cpus)[:, None] % 2 != np.arange(cpus) % 2
    ns = np.where(far, 125.0, 50.0)
    np.fill_diagonal(ns, np.nan)
    groups = [list(range(first, cpus, 2)) for first in (0, 1)]
    figure = plots.latency(frames.latency_frame({"measured": ns}, range(cpus), "CPU", groups))
    shown, half = figure.axes[0].collections[0].get_array(), cpus // 2
    assert (shown[:half, half:] == 125).all() and not (shown[:half, :half] == 125).any()
    assert [patch.get_xy() for patch in figure.axes[0].patches] == [(0, 0), (half, half)] and readable(figure)


def test_timeline_has_gaps_without_walks(few):
    table = few.timeline.copy()
    table.loc[1, ["leaf_LL_share"]] = np.nan
    lines = lines_of(plots.timeline(table).axes[0])
    for policy in ("mitosis", "hydra", "linux"):
        wanted = 100 * table.loc[table["policy"] == policy, "leaf_LL_share"]
        assert np.allclose(lines[policy].get_ydata(), wanted, equal_nan=True)
    assert np.isnan(lines["linux"].get_ydata()).sum() == 1


def test_fragmentation_bars_are_shares(vm):
    table = ptanalyze.fragmentation(vm, after=True)
    figure = plots.fragmentation(table)
    for axes, lines in zip(figure.axes, ("all", "full"), strict=True):
        for bars, state in zip(axes.containers, ("before", "after"), strict=True):
            of = table[(table["lines"] == lines) & (table["state"] == state)]
            assert np.allclose([bar.get_height() for bar in bars], 100 * of["share"])
    assert readable(figure) and readable(plots.fragmentation(ptanalyze.fragmentation(vm)))


def test_fragmentation_has_a_bar_per_vma(vm):
    table = ptanalyze.fragmentation(vm, by="vma", after=True)
    both = pd.concat([table, table.assign(group="another", count=table["count"] * 2)], ignore_index=True)
    figure = plots.fragmentation(both)
    before = table[(table["lines"] == "all") & (table["state"] == "before")]
    mean = (before["ept_lines"] * before["count"]).sum() / before["count"].sum()
    first, _ = figure.axes[0].containers
    assert np.allclose([bar.get_width() for bar in first], mean) and readable(figure)


# Page tables.


def test_each_lowest_table_of_the_map_has_a_slot():
    level = np.array([4, 3, 2, 1, 1, 2, 3, 2, 1])  # the second level-2 table maps huge pages
    start, end = extents(level)
    assert start.tolist() == [0, 0, 0, 0, 1, 2, 3, 3, 3]
    assert end.tolist() == [4, 3, 2, 1, 2, 3, 4, 4, 4]
    image = pixels(np.array([0, 1, 3]), np.array([1, 2, 4]), np.array([0, 1, 0]), 2, 4)
    assert image[0].tolist() == image[-1].tolist() == [0, 1, -1, 0]


def test_the_map_shows_each_leaf_tables_node(vm):
    table = ptanalyze.page_tables(vm)
    figure = plots.page_table_map(table)
    assert readable(figure) and len(figure.axes) == 2
    for axes, dimension in zip(figure.axes, ("gPT", "ePT"), strict=True):
        leaves = table[(table["dimension"] == dimension) & (table["level"] == 1)]
        assert axes.images[0].get_array()[-1].tolist() == leaves["node"].tolist()


def test_a_map_of_800_000_tables_keeps_its_shares():
    leaves, per = 800_000, 512
    regions = -(-leaves // per)
    level = np.concatenate([[4, 3], np.tile(np.r_[2, np.ones(per, int)], regions)]).astype(np.uint8)
    node = np.arange(len(level)) % 4
    base = np.maximum(np.cumsum(level == 1) - 1, 0).astype(np.uint64) << np.uint64(21)
    table = pd.DataFrame({"dimension": "PT", "level": level, "base": base, "node": node, "tracers": False})
    image = plots.page_table_map(table).axes[0].images[0].get_array()
    assert image.shape[1] == COLUMNS
    band = image[-30:].filled(-1)
    assert [(band == n).mean() for n in range(4)] == pytest.approx([0.25] * 4, abs=0.03)


@pytest.mark.parametrize("name", ["vm", "wide"])
def test_bars_of_table_pages_are_shares_by_node(request, name):
    table = ptanalyze.page_tables(request.getfixturevalue(name))
    figure = plots.table_pages(table)
    assert readable(figure) and readable(plots.page_table_map(table))
    axes, numbers = figure.axes
    keys = [label.get_text() for label in axes.get_yticklabels()]
    assert keys == [f"{tree} L{level}" for tree in ("gPT", "ePT") for level in (4, 3, 2, 1)]
    shares = table.groupby(["dimension", "level"], observed=True)["node"].value_counts(normalize=True)
    for label, shown in widths(axes).items():
        node = int(label.removeprefix("node "))
        wanted = [100 * shares.get((key[:3], int(key[-1]), node), 0) for key in keys]
        assert shown == pytest.approx(wanted)
    total = table.groupby(["dimension", "level"], observed=True).size()
    assert numbers.get_yticklabels()[3].get_text() == f"{total['gPT', 1]:,}"


def test_changes_are_shares_of_each_level(vm, place):
    later = make(place, "later", guest="visible", placement="interleave", seed=1)
    table = table_pages(diff(vm, later))
    figure = plots.changes(table)
    assert np.allclose(np.sum(list(widths(figure.axes[0]).values()), axis=0), 100) and readable(figure)
    changed = table.query("what != 'same'")["table_pages"].sum()
    assert title(figure).startswith(f"{changed:,} of ") and changed > 0
    assert title(plots.changes(table_pages(diff(vm, vm)))).startswith("0 of ")


def walked(snapshot, address):
    return walk_frame(explain(snapshot, address), [node.id for node in snapshot.topology.nodes])


@pytest.mark.parametrize(
    ("levels", "host_levels", "rows"), [(4, None, 1), (5, None, 1), (4, 4, 5), (5, 5, 6)]
)
def test_a_walk_has_a_numbered_cell_per_read(levels, host_levels, rows):
    host = None if host_levels is None else []
    snapshot = build_snapshot([(VA, 77)], host, levels=levels, host_levels=host_levels or 4)
    table = walked(snapshot, VA)
    figure = plots.walk(table)
    assert readable(figure)
    cells = sorted((text.get_text() for text in figure.axes[0].texts if text.get_text()), key=cell_number)
    assert cells == [f"{k}: node {node}" for k, node in enumerate(table["node"], 1)]
    assert len(figure.axes[0].get_yticks()) == rows
    heads = [f"L{level}" for level in range(levels, 0, -1)] + ["page"] * (host is not None)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == heads


def cell_number(text):
    return int(text.partition(":")[0])


def test_beside_a_walk_are_local_and_remote_reads():
    table = walked(build_snapshot([(VA, 77)], table_nodes=(0, 1)), VA)
    bars, reads = widths(plots.walk(table).axes[1]), table["node"].value_counts()
    assert bars["local"] == [reads.get(node, 0) for node in table.attrs["nodes"]]
    assert np.add(bars["local"], bars["remote"]).tolist() == [4] * len(table.attrs["nodes"])


def test_odd_walks_are_drawn(wide):
    early = plots.walk(walked(build_snapshot([(VA, 77)]), VA + (1 << 12)))
    assert "is not mapped: the walk stops after 4 reads" in title(early) and readable(early)
    hollow = build_snapshot([(VA, 77)], [])
    hollow.host.entries[hollow.host.level == 1] = 0
    assert readable(plots.walk(walked(hollow, VA)))
    huge = plots.walk(walked(build_snapshot([Page(VA & -(1 << 21), 512 * 9, 2)], []), VA))
    assert [label.get_text() for label in huge.axes[0].get_xticklabels()] == ["L4", "L3", "L2", "page"]
    pages = ptanalyze.page_tables(wide)
    leaf = pages[(pages["dimension"] == "gPT") & (pages["level"] == 1)]["base"].iloc[3]
    unknown = ptanalyze.walk(wide, int(leaf))
    unknown.loc[0, "node"] = -1
    assert "1: unknown" in texts(plots.walk(unknown)) and readable(plots.walk(unknown))


# Plots of satellites.


def test_predictions_are_dots_or_measured_squares():
    table = pd.DataFrame(
        [("LL", 1.0, 1.0, 1.0, True), ("RR", 1.2, 1.4, 1.7, False)],
        columns=["placement", "low", "middle", "high", "measured"],
    )
    figure = prediction_plot(table)
    shown = {name: list(line.get_xdata()) for name, line in lines_of(figure.axes[0]).items()}
    assert shown["measured"] == [1.0] and shown["predicted"] == [1.4] and readable(figure)


def test_published_rows_are_ours_over_theirs(published):
    rows = published[(published["bound"] == "") & published["ours"].notna()].head(12)
    figure = validation(rows)
    dots = [collection.get_offsets()[:, 0] for collection in figure.axes[0].collections]
    shown = sorted(x for of in dots for x in of if len(of) and x > 0)
    wanted = sorted(np.clip(rows["ours"] / rows["published"], 0.25, 4))
    assert shown[-len(wanted) :] == pytest.approx(wanted) and readable(figure)


def test_many_published_rows_are_gathered(published):
    papers = [published.assign(paper=f"A Paper of Year {k}") for k in range(-(-200 // len(published)))]
    many = pd.concat(papers, ignore_index=True)
    figure = validation(many)
    there = many[(many["bound"] == "") & many["ours"].notna()]
    names = figure.axes[0].get_yticklabels()
    assert len(names) == there.groupby(["paper", "kind"]).ngroups and readable(figure)
    bounds = published.head(4).assign(
        bound=["", "at least", "at least", "at most"], holds=[None, True, False, True]
    )
    assert any("2 of 3 published bounds hold" in text for text in texts(validation(bounds)))


# What holds of all.


@pytest.fixture(scope="module")
def tables(vm, many, few):
    """{plot: a table for it}"""
    pages, machine = ptanalyze.page_tables(vm), load_machine("hydra-haswell")
    return {
        "changes": table_pages(diff(vm, vm)),
        "comparison": ptanalyze.compare(many.frame.iloc[[0]], many.frame.iloc[[1]]),
        "curve": ptanalyze.sweep(vm, ["hydra"], {"prefetch": [0, 9]}),
        **dict.fromkeys(("footprint", "pareto", "roofline", "speedup"), many.frame),
        "fragmentation": ptanalyze.fragmentation(vm, after=True),
        "latency": frames.latency_frame({"idle": machine.latency.idle}, range(machine.nodes)),
        "locality": ptanalyze.classify(vm),
        **dict.fromkeys(("page_table_map", "table_pages"), pages),
        "reads": many.reads,
        "timeline": many.timeline,
        "walk": ptanalyze.walk(vm, int(pages["base"].iloc[-1])),
        "walk_map": ptanalyze.walk_map(vm),
    }


@pytest.mark.parametrize("name", [name for name in plots.__all__ if name != "save"])
def test_named_columns_and_attrs_are_all_that_a_plot_needs(tables, name):
    draw, table = getattr(plots, name), tables[name]
    _, _, said = inspect.getdoc(draw).partition("\ncolumns  ")
    columns, _, attrs = said.partition("attrs ")
    named = set(re.findall(r"\w+", columns)) | set(table.attrs.get("swept", ()))
    alone = table[[column for column in table.columns if column in named]]
    assert len(alone.columns) and words(draw(alone)) == words(draw(table))
    assert set(re.findall(r"\w+", attrs)) <= set(table.attrs)
    assert readable(draw(table))


@pytest.mark.parametrize("name", [name for name in plots.__all__ if name != "save"])
def test_nothing_to_draw_is_one_line(tables, name):
    with pytest.raises(UsageError, match="nothing to draw: ") as error:
        getattr(plots, name)(tables[name].iloc[:0])
    assert "\n" not in str(error.value)


def test_colours_differ_in_hatching_and_grey():
    four = list(CLASSES.values())[:4]
    assert len({hatch for _, hatch in four}) == 4
    assert len({colour for colour, _ in four}) == 4 and len(set(NODES)) == 8 and len(set(SERIES)) == 7
    greys = sorted(np.dot(to_rgb(colour), [0.299, 0.587, 0.114]) for colour in NODES[:4])
    assert min(np.diff(greys)) > 0.1 and max(greys) < 0.9
    for count in (4, 8, 16, 64):
        assert len(set(node_looks(range(count)).values())) == count


def test_labels_tell_equal_policies_apart():
    table = pd.DataFrame({"policy": ["a", "b", "b"], "params": ["x=1", "x=1 y=2", "x=1 y=3"]})
    assert policy_labels(table).tolist() == ["a", "b:y=2", "b:y=3"]
    assert broken("ptemagnet+vmitosis-replicate") == "ptemagnet+\nvmitosis-replicate"
    assert broken("a+b") == "a+b"


def test_texts_are_printable_and_no_formulas(few):
    table = few.frame.replace({"policy": {"mitosis": "a$b\x1b$_2"}})
    table.attrs = few.frame.attrs | {"provenance": {"capture": "$x_1$\n"}}
    figure = plots.speedup(table)
    assert r"a$b\x1b$_2" in texts(figure) and r"$x_1$\n" in texts(figure)[-1] + texts(figure)[-2]
    assert not any(text.get_parse_math() for text in figure.axes[0].get_yticklabels())


def test_overlaps_and_clipping_are_found():
    figure = pyplot.Figure(figsize=(4, 3))
    axes = figure.subplots()
    axes.set_xticks([0, 5], ["inside", "outside"])
    axes.set_xlim(0, 1)
    figure.text(0.5, 0.6, "one above")
    figure.text(0.5, 0.6, "the other")
    figure.text(0.95, 0.2, "too long for it")
    found = written(figure)
    assert overlapping(found) == [("one above", "the other")]
    assert clipped(found, figure.bbox) == ["too long for it"]
    assert "inside" in [text for text, _ in found] and "outside" not in [text for text, _ in found]


# A plot as a file and in a notebook.


def test_a_notebook_shows_a_plot_by_itself(few):
    before = dict(rcParams)
    assert plots.speedup(few.frame)._repr_png_().startswith(b"\x89PNG")
    assert dict(rcParams) == before and pyplot.get_fignums() == []


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_files_are_the_same_bytes_each_time(few, tmp_path, ending):
    paths = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for path in paths:
        plots.save(plots.speedup(few.frame), path)
    a, b = (path.read_bytes() for path in paths)
    assert a == b and len(a) > 1000 and (ending != "svg" or b">mitosis</text>" in a)
    with pytest.raises(UsageError, match=r"FILE\.png, FILE\.svg or FILE\.pdf"):
        plots.save(plots.speedup(few.frame), tmp_path / "a.gif")


def test_a_cold_run_is_said_to_be_as_traced(many):
    assert any(one["code"] == COLD for one in many.frame.attrs["findings"])
    assert title(plots.speedup(many.frame)).endswith(" in the run as traced")
