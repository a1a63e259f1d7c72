"""What plots show is what the tables say."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot, rcParams
from matplotlib.colors import to_rgb

import ptanalyze
from plot_texts import readable, words
from ptanalyze.analysis import frames
from ptanalyze.analysis.walk import explain
from ptanalyze.capture.check import check_capture
from ptanalyze.capture.vm.diff import diff
from ptanalyze.capture.vm.join import Fit, Share
from ptanalyze.core import interval
from ptanalyze.core.columns import ASSUMED
from ptanalyze.core.errors import UsageError
from ptanalyze.show import plots
from ptanalyze.show.plots.page_table_map import COLUMNS, extents, pixels
from ptanalyze.show.plots.speedup import on_front, priced
from ptanalyze.show.plots.style import (
    CLASSES,
    NODES,
    SERIES,
    broken,
    ink,
    literal_table,
    node_looks,
    policy_labels,
)
from strategies import Page, build_snapshot

# Every plot: what its artists show is what the table says, drawn from results of replayed captures.

MANY = [
    "linux", "ideal", "mitosis", "thp", "vmitosis-replicate", ("hydra", {"prefetch": 0}),
    ("hydra", {"prefetch": 3}),
]  # fmt: skip
OF_FRAME = (plots.speedup, plots.pareto, plots.footprint, plots.roofline)


def make(tmp_path_factory, name, **how):
    return ptanalyze.synth(
        tmp_path_factory.mktemp("plots") / name,
        "16M",
        accesses=4000,
        mprotect_every=500,
        init_trace=False,
        **how,
    )


@pytest.fixture(scope="module")
def vm(tmp_path_factory):
    return make(tmp_path_factory, "vm", guest="visible", fragmentation=0.3, threads=4)


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    return make(tmp_path_factory, "native", threads=4)


@pytest.fixture(scope="module")
def many(vm):
    return ptanalyze.replay(vm, MANY, windows=5, cold=True)


@pytest.fixture(scope="module")
def few(native):
    return ptanalyze.replay(native, ["mitosis", "hydra"], windows=5, cold=True)


@pytest.fixture(scope="module")
def untraced(tmp_path_factory):
    place = tmp_path_factory.mktemp("plots") / "untraced"
    return ptanalyze.whatif(ptanalyze.synth(place, "16M", trace=False), ["linux", "mitosis", "ideal"])


def one_line(text):
    return " ".join(text.split())


def texts(figure):
    return [text.replace("\N{NO-BREAK SPACE}", " ").replace("\n", " ") for text in words(figure)]


def test_ratios_that_span_much_get_a_logarithmic_axis(many):
    fast = many.frame.copy()
    fast.attrs = many.frame.attrs
    fast.loc[fast["policy"] == "thp", ["speedup_low", "speedup", "speedup_high"]] = [30.0, 40.0, 50.0]
    near = many.frame[many.frame["policy"].isin(["linux", "mitosis"])]
    near.attrs = many.frame.attrs
    assert plots.speedup(fast).axes[0].get_xscale() == plots.pareto(fast).axes[0].get_yscale() == "log"
    assert plots.speedup(near).axes[0].get_xscale() == plots.pareto(near).axes[0].get_yscale() == "linear"
    assert readable(plots.speedup(fast)) and readable(plots.pareto(fast))


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


def test_locality_has_a_panel_a_weight_and_group(vm):
    both = pd.concat([ptanalyze.classify(vm), ptanalyze.classify(vm, weight="walks")])
    figure = plots.locality(both)
    assert [axes.get_title() for axes in figure.axes] == ["leaf entries", "walks"]
    assert readable(plots.locality(ptanalyze.classify(vm, weight="walks", by="thread")))


def test_locality_of_a_vm_and_of_a_process_stand_beside_each_other(vm, native):
    both = pd.concat([ptanalyze.classify(one).assign(group=name) for name, one in (("p", native), ("v", vm))])
    figure = plots.locality(both)
    legend = {text.get_text() for text in figure.axes[-1].get_legend().get_texts()}
    assert legend == set(both["class"]) and {"Local", "Local-Local"} <= legend
    assert readable(figure)


def test_the_heat_map_shows_the_share_of_reads_and_boxes_what_is_local(few):
    table = few.reads
    figure = plots.reads(table)
    dram = table[(table["policy"] == "linux") & (table["from"] == "DRAM")]
    counts = dram.pivot_table(index="reader", columns="server", values="count", aggfunc="sum").to_numpy()
    shown = figure.axes[0].collections[0].get_array().reshape(4, 4)
    assert np.allclose(shown, 100 * counts / counts.sum())
    assert {patch.get_xy() for patch in figure.axes[0].patches} == {(n, n) for n in range(4)}
    remote = 100 * (1 - np.trace(counts) / counts.sum())
    assert f"linux {remote:.0f} % remote" in texts(figure)
    cached = plots.reads(table, "cache").axes[0].collections[0].get_array().sum()
    assert cached == pytest.approx(100)


def test_speedups_are_dots_in_bars_with_their_numbers(few):
    figure = plots.speedup(few.frame)
    base = few.frame["baseline"].iloc[0]
    rows = few.frame.set_index("policy").loc[[base, "hydra", "mitosis"]].reset_index()
    read = [interval.as_read(*row) for row in rows[["speedup", "speedup_low", "speedup_high"]].values]
    assert read[0] > read[1] == read[2], "of equal ones hydra takes less memory"
    axes, numbers = figure.axes
    (dots,) = (line for line in axes.lines if line.get_marker() == "o")
    assert np.allclose(dots.get_xdata(), rows["speedup"])
    ends = np.array([path.vertices[:, 0] for path in axes.collections[0].get_paths()])
    assert np.allclose(ends, rows[["speedup_low", "speedup_high"]])
    assert [label.get_text() for label in axes.get_yticklabels()] == rows["policy"].tolist()
    assert numbers.get_yticklabels()[0].get_text().startswith(f"{rows['speedup'].iloc[0]:.2f}x (")


def test_without_a_trace_walk_cycles_stand_for_run_time_and_it_says_so(untraced):
    for draw in OF_FRAME:
        assert readable(draw(untraced))
    figure = plots.speedup(untraced)
    ratio = untraced["walk_cycles"][0] / untraced["walk_cycles"]
    (dots,) = (line for line in figure.axes[0].lines if line.get_marker() == "o")
    assert sorted(dots.get_xdata()) == pytest.approx(sorted(ratio))
    for draw in (plots.speedup, plots.pareto):
        assert one_line(draw(untraced).get_suptitle()).endswith(
            "fit the caches: placement can gain next to nothing"
        )
    untraced.attrs["findings"] = []
    assert one_line(plots.pareto(untraced).get_suptitle()).startswith("No trace, so bounds: ")
    figure = plots.speedup(untraced)
    assert any("No trace, so no run time: with mitosis at most 40.3 %" in text for text in texts(figure))
    assert not figure.axes[0].collections


def test_the_front_is_what_nothing_beats():
    cost, gain = np.array([0, 1, 2, 2, 3, 0]), np.array([1.0, 1.2, 1.1, 1.3, 1.3, 1.0])
    assert on_front(cost, gain).tolist() == [True, True, False, True, False, True]


def test_pareto_places_policies_by_bytes_and_speedup_and_fills_the_front(many):
    table = many.frame
    rows = priced(table).set_index("label")
    assert "ideal" not in rows.index
    by_policy = table.set_index("policy")
    linux = by_policy.loc["linux", ["pt_bytes_peak", "ept_bytes"]].sum()
    mitosis = by_policy.loc["mitosis", ["pt_bytes_peak", "ept_bytes"]].sum()
    assert rows["bytes"]["mitosis"] == mitosis - linux > 0 == rows["bytes"]["linux"]
    figure = plots.pareto(table)
    markers = [line for line in figure.axes[0].lines if line.get_linestyle() == "None"]
    assert [float(line.get_ydata()[0]) for line in markers] == pytest.approx(rows["value"].tolist())
    filled = [line.get_markerfacecolor() != "none" for line in markers]
    assert filled == rows["front"].tolist()


def test_footprint_bars_add_up_to_all_page_tables(many, few):
    for table in (many.frame, few.frame):
        axes = plots.footprint(table).axes[0]
        ends = np.array([[bar.get_x() + bar.get_width() for bar in bars] for bars in axes.containers]).max(
            axis=0
        )
        unit = {"KiB": 1024, "MiB": 1 << 20}[axes.get_xlabel().split()[0]]
        total = table["pt_bytes"] + table["ept_bytes"] + table["aside_bytes"]
        assert np.allclose(ends * unit, total)


def test_the_prefetch_curve_has_hydras_points_and_mitosis_as_a_line(native):
    table = ptanalyze.sweep(native, ["mitosis", "hydra"], {"prefetch": [0, 4, 9]})
    figure = plots.curve(table)
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    hydra = table[table["policy"] == "hydra"]
    assert lines["hydra"].get_xdata().tolist() == [0, 4, 9]
    assert np.allclose(lines["hydra"].get_ydata(), hydra["speedup"])
    assert np.ptp(lines["mitosis"].get_ydata()) == 0 and len(set(lines["linux"].get_ydata())) == 1
    assert readable(figure)


def test_a_sweep_over_words_and_over_two_keys_is_drawn(native):
    table = ptanalyze.sweep(native, ["hydra"], {"tlbflush": ["off", "single"], "nodes": [4, 5]})
    figure = plots.curve(table, "tlbflush")
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["off", "single"]
    named = {line.get_label().replace("\n", " "): line for line in figure.axes[0].lines}
    labels = {one for label in named for one in label.split(", ")}  # equal ones share a line
    assert {"hydra nodes=4", "hydra nodes=5"} <= labels
    assert readable(figure) and readable(plots.curve(table, "nodes"))
    joined = {line.get_linestyle() for label, line in named.items() if "hydra" in label}
    assert joined == {"None"}  # nothing lies between two words
    with pytest.raises(UsageError, match="wonder"):
        plots.curve(table, "wonder")


def test_timeline_lines_are_the_shares_and_a_window_without_walks_is_a_gap(few):
    table = few.timeline.copy()
    table.loc[1, ["leaf_LL_share"]] = np.nan
    figure = plots.timeline(table)
    shown = {line.get_label(): np.asarray(line.get_ydata()) for line in figure.axes[0].lines}
    for policy in ("mitosis", "hydra", "linux"):
        wanted = 100 * table.loc[table["policy"] == policy, "leaf_LL_share"]
        assert np.allclose(shown[policy], wanted, equal_nan=True)
    assert np.isnan(shown["linux"]).sum() == 1


def test_fragmentation_bars_are_the_shares_before_and_after(vm):
    table = ptanalyze.fragmentation(vm, after=True)
    figure = plots.fragmentation(table)
    for axes, lines in zip(figure.axes, ("all", "full"), strict=True):
        for bars, state in zip(axes.containers, ("before", "after"), strict=True):
            of = table[(table["lines"] == lines) & (table["state"] == state)]
            assert np.allclose([bar.get_height() for bar in bars], 100 * of["share"])
    assert readable(figure) and readable(plots.fragmentation(ptanalyze.fragmentation(vm)))


def test_fragmentation_by_vma_is_a_bar_per_vma(vm):
    table = ptanalyze.fragmentation(vm, by="vma", after=True)
    many = pd.concat([table, table.assign(group="another", count=table["count"] * 2)], ignore_index=True)
    many.attrs = table.attrs
    figure = plots.fragmentation(many)
    bars = {bars.get_label(): [bar.get_width() for bar in bars] for bars in figure.axes[0].containers}
    before = table[(table["lines"] == "all") & (table["state"] == "before")]
    mean = (before["ept_lines"] * before["count"]).sum() / before["count"].sum()
    assert set(bars) == {"before", "after"} and np.allclose(bars["before"][0], mean) and readable(figure)


def test_roofline_points_lie_between_the_local_and_the_remote_ceiling(many):
    table = many.frame[many.frame["policy"].isin(["linux", "mitosis", "vmitosis-replicate"])]
    table.attrs = many.frame.attrs
    axes = plots.roofline(table).axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    for policy in table["policy"]:
        (x,), (y,) = lines[policy].get_data()
        row = table.set_index("policy").loc[policy]
        assert x == row["dram_reads_per_walk"] and y == pytest.approx(2100 / row["cycles_per_walk"])
        local, remote = (np.interp(x, *lines[name].get_data()) for name in ("all local", "all remote"))
        assert remote * 0.99 <= y <= local * 1.01
    (x,), (y,) = lines["vmitosis-replicate"].get_data()
    assert y == pytest.approx(np.interp(x, *lines["all local"].get_data()), rel=0.01)


def test_the_map_gives_each_lowest_table_a_slot_and_each_other_its_childrens():
    level = np.array([4, 3, 2, 1, 1, 2, 3, 2, 1])  # the second level-2 table maps huge pages
    start, end = extents(level)
    assert start.tolist() == [0, 0, 0, 0, 1, 2, 3, 3, 3]
    assert end.tolist() == [4, 3, 2, 1, 2, 3, 4, 4, 4]
    image = pixels(np.array([0, 1, 3]), np.array([1, 2, 4]), np.array([0, 1, 0]), 2, 4)
    assert image[0].tolist() == image[-1].tolist() == [0, 1, -1, 0]


def test_the_map_of_a_capture_shows_each_leaf_tables_node(vm):
    table = ptanalyze.page_tables(vm)
    figure = plots.page_table_map(table)
    assert readable(figure) and len(figure.axes) == 2
    for axes, dimension in zip(figure.axes, ("gPT", "ePT"), strict=True):
        leaves = table[(table["dimension"] == dimension) & (table["level"] == 1)]
        assert axes.images[0].get_array()[-1].tolist() == leaves["node"].tolist()
        assert (
            axes.images[0].get_array()[0].tolist() == [table["node"][0]] * len(leaves) or dimension == "ePT"
        )


def test_a_map_of_800_000_tables_adds_up_to_pixels_that_keep_their_shares():
    leaves, per = 800_000, 512
    regions = -(-leaves // per)
    level = np.concatenate([[4, 3], np.tile(np.r_[2, np.ones(per, int)], regions)]).astype(np.uint8)
    node = np.arange(len(level)) % 4
    base = np.maximum(np.cumsum(level == 1) - 1, 0).astype(np.uint64) << np.uint64(21)
    table = pd.DataFrame({"dimension": "PT", "level": level, "base": base, "node": node, "tracers": False})
    figure = plots.page_table_map(table)
    image = figure.axes[0].images[0].get_array()
    assert image.shape[1] == COLUMNS
    band = image[-30:].filled(-1)
    assert [(band == n).mean() for n in range(4)] == pytest.approx([0.25] * 4, abs=0.03)
    assert readable(figure)


def test_prediction_shows_intervals_and_what_was_measured():
    table = pd.DataFrame(
        {
            "placement": ["LL", "RR"],
            "low": [1.0, 1.2],
            "middle": [1.0, 1.4],
            "high": [1.0, 1.7],
            "measured": [True, False],
        }
    )
    figure = plots.prediction(table)
    shown = {line.get_label(): list(line.get_xdata()) for line in figure.axes[0].lines}
    assert shown["measured"] == [1.0] and shown["predicted"] == [1.4]
    assert readable(figure)


def test_comparison_shows_ratios_the_largest_change_on_top(few):
    table = ptanalyze.compare(few.frame.iloc[[0]], few.frame.iloc[[1]])
    figure = plots.comparison(table, "app@linux", "app@mitosis")
    (dots,) = (line for line in figure.axes[0].lines if line.get_marker() == "o")
    ratios = table["ratio"][(table["ratio"] > 0) & np.isfinite(table["ratio"])]
    assert sorted(dots.get_xdata()) == pytest.approx(sorted(ratios))
    assert abs(np.log(dots.get_xdata()[-1])) == pytest.approx(abs(np.log(ratios)).max())
    assert readable(figure)


def test_nothing_to_draw_is_one_line_that_says_what_is_missing(many, vm, untraced):
    none = many.frame.assign(walks=0)
    for draw, table in (
        (plots.speedup, none),
        (plots.pareto, none),
        (plots.roofline, none),
        (plots.roofline, pd.DataFrame(many.frame.to_dict("records"))),
        (plots.footprint, none.iloc[:0]),
        (plots.locality, ptanalyze.classify(vm).iloc[:0]),
        (plots.reads, many.reads.assign(count=0)),
        (plots.timeline, ptanalyze.replay(vm, "linux").timeline),
        (plots.fragmentation, ptanalyze.fragmentation(vm).assign(count=0)),
        (plots.page_table_map, ptanalyze.page_tables(vm).assign(tracers=True)),
        (plots.comparison, ptanalyze.compare(many.frame, many.frame)),
    ):
        with pytest.raises(UsageError, match="nothing to draw: ") as error:
            draw(table)
        assert "\n" not in str(error.value)


def test_a_policy_that_walks_no_more_has_no_marker(few):
    table = few.frame.copy()
    table.loc[table["policy"] == "hydra", ["walks", "cycles_per_walk"]] = 0
    shown = {line.get_label() for line in plots.roofline(table).axes[0].get_lines()}
    assert "mitosis" in shown and "hydra" not in shown


def test_what_colours_tell_hatching_and_grey_tell_too():
    def grey(colour):
        return np.dot(to_rgb(colour), [0.299, 0.587, 0.114])

    four = list(CLASSES.values())[:4]
    assert len({hatch for _, hatch in four}) == 4
    assert len({colour for colour, _ in four}) == 4 and len(set(NODES)) == 8 and len(set(SERIES)) == 7
    greys = sorted(grey(colour) for colour in NODES[:4])
    assert min(np.diff(greys)) > 0.1 and max(greys) < 0.9


def test_labels_tell_equal_policies_apart_by_what_differs():
    table = pd.DataFrame({"policy": ["a", "b", "b"], "params": ["x=1", "x=1 y=2", "x=1 y=3"]})
    assert policy_labels(table).tolist() == ["a", "b:y=2", "b:y=3"]
    assert broken("ptemagnet+vmitosis-replicate") == "ptemagnet+\nvmitosis-replicate"
    assert broken("a+b") == "a+b"


# Plots of what a capture holds: a walk, table pages by level and node, changes, checks, a fit.

VA = 0x7F12_3456_7000


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Captures by name: of a VM with four nodes, one that was placed otherwise, and one of sixteen nodes."""
    place = tmp_path_factory.mktemp("captures")
    how = {"trace": False, "guest": "visible"}
    return {
        "vm": ptanalyze.synth(place / "vm", "64M", **how),
        "later": ptanalyze.synth(place / "later", "64M", placement="interleave", seed=1, **how),
        "wide": ptanalyze.synth(place / "wide", "64M", nodes=16, placement="interleave", **how),
    }


def walked(snapshot, address):
    return frames.walk_frame(explain(snapshot, address), [node.id for node in snapshot.topology.nodes])


@pytest.mark.parametrize(
    ("levels", "host_levels", "rows"), [(4, None, 1), (5, None, 1), (4, 4, 5), (5, 5, 6)]
)
def test_a_walk_has_a_numbered_cell_for_each_read_that_names_its_node(levels, host_levels, rows):
    host = None if host_levels is None else []
    snapshot = build_snapshot([(VA, 77)], host, levels=levels, host_levels=host_levels or 4)
    table = walked(snapshot, VA)
    figure = plots.walk(table)
    assert readable(figure)
    cells = [text.get_text() for text in figure.axes[0].texts]
    assert cells == [f"{k}: node {node}" for k, node in enumerate(table["node"], 1)]
    assert len(figure.axes[0].get_yticks()) == rows
    heads = [f"L{level}" for level in range(levels, 0, -1)] + ["page"] * (host is not None)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == heads


def test_beside_a_walk_stands_what_is_local_and_remote_for_each_node():
    table = walked(build_snapshot([(VA, 77)], table_nodes=(0, 1)), VA)
    bars = {of.get_label(): [bar.get_width() for bar in of] for of in plots.walk(table).axes[1].containers}
    reads = table["node"].value_counts()
    assert bars["local"] == [reads.get(node, 0) for node in table.attrs["nodes"]]
    assert np.add(bars["local"], bars["remote"]).tolist() == [4] * len(table.attrs["nodes"])


def test_a_walk_that_ends_early_and_one_of_huge_pages_are_drawn():
    table = walked(build_snapshot([(VA, 77)]), VA + (1 << 12))
    assert any("is not mapped: the walk stops after 4 reads" in text for text in texts(plots.walk(table)))
    assert readable(plots.walk(table))
    hollow = build_snapshot([(VA, 77)], [])
    hollow.host.entries[hollow.host.level == 1] = 0
    assert readable(plots.walk(walked(hollow, VA)))
    huge = plots.walk(walked(build_snapshot([Page(VA & -(1 << 21), 512 * 9, 2)], []), VA))
    assert [label.get_text() for label in huge.axes[0].get_xticklabels()] == ["L4", "L3", "L2", "page"]


def test_walks_of_sixteen_nodes_and_of_unknown_ones_are_readable(made):
    table = ptanalyze.page_tables(made["wide"])
    leaf = table[(table["dimension"] == "gPT") & (table["level"] == 1)]["base"].iloc[3]
    found = ptanalyze.walk(made["wide"], int(leaf))
    assert readable(plots.walk(found)) and len(plots.walk(found).axes[1].get_yticks()) == 16
    unknown = found.assign(node=[-1, *found["node"][1:]])
    unknown.attrs = found.attrs
    assert "1: unknown" in texts(plots.walk(unknown)) and readable(plots.walk(unknown))


@pytest.mark.parametrize("name", ["vm", "wide"])
def test_bars_of_table_pages_are_each_levels_shares_by_node(made, name):
    table = ptanalyze.page_tables(made[name])
    figure = plots.table_pages(table)
    assert readable(figure) and readable(plots.page_table_map(table))
    axes, numbers = figure.axes
    keys = [label.get_text() for label in axes.get_yticklabels()]
    assert keys == [f"{tree} L{level}" for tree in ("gPT", "ePT") for level in (4, 3, 2, 1)]
    counts = table.groupby(["dimension", "level"], observed=True)["node"].value_counts(normalize=True)
    for bars in axes.containers:
        node = int(bars.get_label().removeprefix("node "))
        for key, bar in zip(keys, bars, strict=True):
            tree, level = key.split(" L")
            assert bar.get_width() == pytest.approx(100 * counts.get((tree, int(level), node), 0))
    total = table.groupby(["dimension", "level"], observed=True).size()
    assert numbers.get_yticklabels()[3].get_text() == f"{total['gPT', 1]:,}"


def test_changes_are_shares_of_each_level_and_moves_from_node_to_node(made):
    found = diff(made["vm"], made["later"])
    table = frames.changes_frame(found)
    for tree in found:
        of = table[table["dimension"] == tree.dimension].groupby(["level", "what"])["table_pages"].sum()
        assert of[of > 0].to_dict() == {key: n for key, n in tree.pages.items() if n}
    figure = plots.changes(table)
    assert readable(figure)
    bars, _, *maps = figure.axes
    assert np.allclose(sum(np.array([bar.get_width() for bar in of]) for of in bars.containers), 100)
    moves = {"other node", "created", "gone"}
    shown = sum(axes.collections[0].get_array().sum() for axes in maps)
    assert shown == table.loc[table["what"].isin(moves), "table_pages"].sum() > 0


def test_two_equal_captures_have_no_moves_to_draw(made):
    figure = plots.changes(frames.changes_frame(diff(made["vm"], made["vm"])))
    assert readable(figure) and len(figure.axes) == 2
    assert any(text.startswith("None of ") for text in texts(figure))


def test_checks_that_are_ok_share_a_line_and_others_show_their_share(made):
    table = frames.findings_frame(list(check_capture(made["vm"])))
    assert set(table["verdict"]) <= {"ok", "note"} and readable(plots.checks(table))
    subject = table["check"].str.partition(":")[0]
    bad = table.assign(verdict=["failed", *table["verdict"][1:]])
    bad.loc[0, ["wrong", "share"]] = [3, 0.25]
    figure = plots.checks(bad)
    assert readable(figure)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert (
        names[0] == table["check"][0]
        and len(names) <= subject.nunique() + 1 + (table["verdict"] != "ok").sum()
    )
    (failed,) = (line for line in figure.axes[0].lines if line.get_label() == "failed")
    assert failed.get_data()[0].tolist() == [25.0]


def test_a_fit_shows_how_much_the_host_maps():
    table = frames.fit_frame(Fit(Share(100, 90, 10, 0), Share(1000, 500, 300, 200), 4, 4))
    figure = plots.fit(table)
    widths = {of.get_label(): [bar.get_width() for bar in of] for of in figure.axes[0].containers}
    assert widths == {
        "mapped by the host": [90.0, 50.0],
        "not faulted in": [10.0, 30.0],
        "outside every slot": [0.0, 20.0],
    }
    assert readable(figure)


def test_nodes_have_looks_that_differ_and_ink_that_can_be_read():
    for count in (4, 8, 16, 64):
        looks = node_looks(range(count))
        assert len(set(looks.values())) == count
    assert node_looks([-1, 0])[-1][0] == "#666666"
    assert ink("#000000") == "#ffffff" and ink("#F0E442") == "#000000"


def test_empty_tables_are_one_line(made):
    walk = walked(build_snapshot([(VA, 77)]), VA)
    for draw, table in (
        (plots.walk, walk.iloc[:0]),
        (plots.table_pages, ptanalyze.page_tables(made["vm"]).assign(tracers=True)),
        (plots.changes, frames.changes_frame([])),
        (plots.checks, frames.findings_frame([])),
        (plots.fit, frames.fit_frame(Fit(Share(0, 0, 0, 0), Share(0, 0, 0, 0), 0, 0))),
    ):
        with pytest.raises(UsageError, match="nothing to draw: "):
            draw(table)
    assert isinstance(walk, pd.DataFrame)


# Plots of policies that come out alike: each is named, and a title calls none of them the fastest alone.

BARS = "0.5 to 0.9 of walk cycles stall the program; idle latencies"
LAW = {"code": ASSUMED, "text": BARS}
FASTER = {"first-touch": 0.0, "hydra": 0.1, "mitosis": 0.1, "interleave": 0.04}


def swept(faster=FASTER, nodes=(2, 4, 8)):
    """A sweep's table: a policy's speed-up rises by so much per node."""
    rows = [
        {
            "nodes": str(n), "policy": policy, "params": "", "baseline": "first-touch", "walks": 10,
            "machine": "fast-machine" if n == 4 else f"fast-machine, {n} nodes",
            "placement": f"round-robin over {n} nodes", "walk_cycles": 1.0, "management_cycles": 0.0,
            "once_cycles": 0.0, "pt_bytes_peak": 4096, "ept_bytes": 0, "aside_bytes": 0, "held_bytes": 0,
            "speedup_low": 1 + more * n / 2, "speedup": 1 + more * n, "speedup_high": 1 + more * n * 2,
        }
        for n in nodes
        for policy, more in faster.items()
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    table.attrs = {"swept": ["nodes"], "findings": [LAW], "provenance": {"capture": "app"}}
    return table


def at(table, findings=(LAW,)):
    """One point of a sweep as whatif's table."""
    found = table[table["nodes"] == "4"].drop(columns="nodes").reset_index(drop=True)
    found.attrs = {"findings": list(findings), "provenance": {"machine": "fast-machine"}}
    return found


def test_policies_whose_curves_lie_on_each_other_are_one_line_and_win_together():
    figure = plots.curve(swept())
    labels = {line.get_label() for line in figure.axes[0].lines}
    assert labels == {"first-touch", "hydra, mitosis", "interleave"}
    assert len(figure.axes[0].collections) == 2  # bands of those two
    assert figure.get_suptitle() == "hydra and mitosis are fastest at nodes = 8: 1.80x over first-touch"
    assert readable(figure)


def test_one_that_is_fastest_is_named_alone():
    figure = plots.curve(swept({**FASTER, "mitosis": 0.11}))
    assert figure.get_suptitle().startswith("mitosis is fastest at nodes = 8: 1.88")


def test_without_a_trace_a_sweep_is_of_bounds():
    table = swept()
    untimed = table.assign(speedup=None, speedup_low=None, speedup_high=None)
    untimed["walk_cycles"] = 1 / table["speedup"]
    untimed.attrs = {**table.attrs, "findings": []}
    figure = plots.curve(untimed)
    assert " ".join(figure.get_suptitle().split()) == (
        "No trace, so a bound: cycles of first-touch / those of hydra, mitosis at nodes = 8 are at most 1.80"
    )
    assert "faster" not in figure.axes[0].get_ylabel() and readable(figure)


def test_differences_of_less_than_a_percent_do_not_fill_a_plot():
    figure = plots.curve(swept({"first-touch": 0.0, "hydra": 0.00001}))
    low, high = figure.axes[0].get_ylim()
    assert low <= 0.99 and high >= 1.01
    assert not any(axis.get_offset_text().get_text() for axis in (figure.axes[0].yaxis, figure.axes[0].xaxis))


def test_below_a_sweep_stand_machine_threads_and_what_the_bands_are():
    (below,) = (text for text in words(plots.curve(swept())) if text.startswith("app"))
    told = " ".join(below.split())
    assert told == f"app; fast-machine; threads round-robin; bands: {BARS}"


def test_when_all_are_as_fast_each_has_its_row_and_the_title_says_so():
    names = ("first-touch", "hydra", "mitosis", "interleave", "bind")
    figure = plots.speedup(at(swept(dict.fromkeys(names, 0.0))))
    assert figure.get_suptitle() == "All are as fast as first-touch"
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == list(names)
    low, high = figure.axes[0].get_xlim()
    assert low <= 0.9 and high >= 1.1 and readable(figure)


# A plot as a file: the same bytes each time, its texts printable and no formulas.


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_files_are_the_same_bytes_each_time(few, tmp_path, ending):
    before = dict(rcParams)
    paths = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for path in paths:
        plots.save(plots.speedup(few.frame), path)
    a, b = (path.read_bytes() for path in paths)
    assert a == b and len(a) > 1000
    assert ending != "svg" or b">mitosis</text>" in a
    assert sorted(tmp_path.iterdir()) == paths and dict(rcParams) == before and pyplot.get_fignums() == []


@pytest.mark.parametrize("name", ["a.gif", "a", "png"])
def test_another_ending_names_those_there_are(few, tmp_path, name):
    with pytest.raises(UsageError, match=r"FILE\.png, FILE\.svg or FILE\.pdf"):
        plots.save(plots.speedup(few.frame), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_texts_are_printable_and_no_formulas():
    table = pd.DataFrame({"policy": ["a$b", "c\x1bd"], "walks": [1, 2]})
    table.attrs = given = {"machine": {"name": "a$b", "latency": [[1.0, 2.0]]}, "notes": ["x\ny"]}
    shown = literal_table(table)
    assert list(shown["policy"]) == [r"a\$b", r"c\x1bd"] and list(shown["walks"]) == [1, 2]
    assert shown.attrs["machine"] == {"name": r"a\$b", "latency": [[1.0, 2.0]]}
    assert "\n" not in shown.attrs["notes"][0] and given["machine"]["name"] == "a$b"
    assert shown[shown["walks"] > 1].attrs["machine"] is shown.attrs["machine"]
