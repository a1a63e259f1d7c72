"""Plots show what their tables say, can be read, and need no more than the columns that they name."""

import inspect
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot, rcParams
from matplotlib.colors import to_rgb

import ptanalyze
from plot_texts import readable, words
from ptanalyze.analysis.walk import explain
from ptanalyze.core import interval
from ptanalyze.core.columns import ASSUMED
from ptanalyze.core.errors import UsageError, size_in_words
from ptanalyze.show import plots
from ptanalyze.show.plots import PIXELS, coinciding, extents, gains, pixels, vma_name
from ptanalyze.show.style import CLASSES, NODES, SERIES, broken, node_colours, policy_labels
from ptanalyze_law.prediction_plot import prediction_plot
from ptanalyze_papers.run import validate
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
    return validate(("vmitosis",), "Figure 1", quick=True)


def title(figure):
    return " ".join(figure.get_suptitle().replace("\N{NO-BREAK SPACE}", " ").split())


def texts(figure):
    return [text.replace("\N{NO-BREAK SPACE}", " ").replace("\n", " ") for text in words(figure)]


def lines_of(axes):
    return {line.get_label().replace("\n", " "): line for line in axes.lines}


# Policies: speed-ups, the front, memory, sweeps, differences, rooflines.


def test_speedups_are_dots_in_bars(few):
    axes, _, numbers, _ = plots.speedup(few.frame).axes
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
        figure = plots.speedup(table)
        assert figure.axes[0].get_xscale() == scale and readable(figure)


def test_walk_cycles_stand_for_run_time(untraced):
    figure = plots.speedup(untraced)
    assert readable(figure)
    ratio = untraced["walk_cycles"][0] / untraced["walk_cycles"]
    (dots,) = (line for line in figure.axes[0].lines if line.get_marker() == "o")
    assert sorted(dots.get_xdata()) == pytest.approx(sorted(ratio))
    assert "placement can gain next to nothing" in title(figure)
    bare = untraced.copy()
    bare.attrs = {**untraced.attrs, "findings": []}
    most = 100 * (1 - 1 / ratio.max())
    assert f"No trace, so no run time: with mitosis at most {most:.1f} %" in title(plots.speedup(bare))


def test_memory_stands_beside_speedups(many):
    rows = gains(many.frame).set_index("label")
    pages = many.frame.set_index("policy")[["pt_bytes_peak", "ept_bytes"]].sum(axis=1)
    linux, mitosis = pages["linux"], pages["mitosis"]
    assert rows["bytes"]["mitosis"] == mitosis - linux > 0 == rows["bytes"]["linux"]
    figure = plots.speedup(many.frame)
    bars = [bar.get_width() for bar in figure.axes[1].containers[0]]
    assert bars == pytest.approx(rows["bytes"].tolist(), rel=0.06) and readable(figure)
    at = rows.index.get_loc("mitosis")
    assert figure.axes[3].get_yticklabels()[at].get_text() == f"+{size_in_words(mitosis - linux)}"


def test_a_sweep_is_a_curve(native):
    table = ptanalyze.sweep(native, ["mitosis", "hydra"], {"prefetch": [0, 4, 9]})
    figure = plots.curve(table)
    hydra, (bars,) = table[table["policy"] == "hydra"], figure.axes[0].containers
    assert bars.get_label() == "hydra" and bars[0].get_xdata().tolist() == [0, 4, 9]
    assert np.allclose(bars[0].get_ydata(), hydra["speedup"])
    ends = np.array([path[:, 1] for path in bars[2][0].get_segments()])
    assert np.allclose(ends, hydra[["speedup_low", "speedup_high"]])
    lines = lines_of(figure.axes[0])
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
        for n in (2.0, 4.0, 8.0)
        for policy, more in faster.items()
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    law = {"code": ASSUMED, "text": "idle latencies"}
    table.attrs = {"swept": ["nodes"], "findings": [law], "provenance": {"capture": "app"}}
    return table


def test_equally_fast_policies_win_together():
    table = swept({"linux": 0.0, "hydra": 0.1, "mitosis": 0.1})
    figure = plots.curve(table)
    assert title(figure) == "hydra and mitosis are best at nodes = 8: 1.80x over linux"
    assert "app; bars: idle latencies" in texts(figure)
    larger = table.rename(columns={"nodes": "stands_for"})
    law = {"code": ASSUMED, "text": "idle to loaded latencies"}
    larger.attrs = {"swept": ["stands_for"], "findings": [*table.attrs["findings"], law]}
    assert "bars: idle to loaded latencies" in texts(plots.curve(larger)), "of the largest run"
    untimed = table.assign(speedup=None, speedup_low=None, speedup_high=None)
    untimed.attrs = table.attrs
    assert title(plots.curve(untimed)).endswith("of hydra and mitosis at nodes = 8: 1.80 at most")


# Who reads whose memory.


def test_stacked_bars_are_as_high_as_the_shares(many):
    table = many.leaves[many.leaves["policy"].isin(["linux", "mitosis"])]
    for axes, policy in zip(plots.locality(table).axes, ["linux", "mitosis"], strict=True):
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
    groups = (("p", native), ("v", vm))
    mixed = pd.concat([ptanalyze.classify(one).assign(group=name) for name, one in groups])
    figure = plots.locality(mixed)
    legend = {text.get_text() for text in figure.axes[-1].get_legend().get_texts()}
    assert legend == set(mixed["class"]) and {"Local", "Local-Local"} <= legend and readable(figure)


def test_the_heat_map_shows_shares_of_reads(few):
    figure = plots.reads(few.reads)
    dram = few.reads[(few.reads["policy"] == "linux") & (few.reads["from"] == "DRAM")]
    counts = dram.pivot_table(index="reader", columns="server", values="count", aggfunc="sum").to_numpy()
    assert np.allclose(figure.axes[0].collections[0].get_array().reshape(4, 4), 100 * counts / counts.sum())
    assert f"linux {100 * (1 - np.trace(counts) / counts.sum()):.0f} % remote" in texts(figure)


def test_timeline_has_gaps_without_walks(few):
    table = few.timeline.copy()
    table.loc[1, ["leaf_LL_share"]] = np.nan
    lines = lines_of(plots.timeline(table).axes[0])
    of_policy = {policy: line for names, line in lines.items() for policy in names.split(", ")}
    for policy in ("mitosis", "hydra", "linux"):
        wanted = 100 * table.loc[table["policy"] == policy, "leaf_LL_share"]
        assert np.allclose(of_policy[policy].get_ydata(), wanted, atol=1, equal_nan=True)
    assert np.isnan(of_policy["linux"].get_ydata()).sum() == 1


def test_lines_that_coincide_are_one_with_all_names():
    gap = np.array([10.0, np.nan, 100.0])
    shares = {"a": gap, "b": gap + 0.4, "c": gap + 0.6, "d": np.array([10.0, 10.0, 100.0]), "e": gap}
    assert coinciding(shares) == [["a", "b", "e"], ["c"], ["d"]]


def test_fragmentation_bars_are_shares(vm):
    table = ptanalyze.fragmentation(vm, after=True)
    figure = plots.fragmentation(table)
    for axes, lines in zip(figure.axes, ("all", "full"), strict=True):
        for bars, state in zip(axes.containers, ("before", "after"), strict=True):
            of = table[(table["lines"] == lines) & (table["state"] == state)]
            assert np.allclose([bar.get_height() for bar in bars], 100 * of["share"])
    assert readable(figure) and readable(plots.fragmentation(ptanalyze.fragmentation(vm)))
    assert words(plots.fragmentation(ptanalyze.fragmentation(vm, by="vma", after=True))) == words(figure)


# Page tables.


def test_each_lowest_table_of_the_map_has_a_slot():
    start, end = extents(np.array([4, 3, 2, 1, 1, 2, 3, 2, 1]))
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
    level = np.concatenate([[4, 3], np.tile(np.r_[2, np.ones(per, int)], -(-leaves // per))]).astype(np.uint8)
    node = np.arange(len(level)) % 4
    base = np.maximum(np.cumsum(level == 1) - 1, 0).astype(np.uint64) << np.uint64(21)
    table = pd.DataFrame({"dimension": "PT", "level": level, "base": base, "node": node, "tracers": False})
    table.attrs["nodes"] = 4
    image = plots.page_table_map(table).axes[0].images[0].get_array()
    assert image.shape[1] == PIXELS
    band = image[-30:].filled(-1)
    assert [(band == n).mean() for n in range(4)] == pytest.approx([0.25] * 4, abs=0.03)


def walked(snapshot, address):
    path = explain(snapshot, address)
    table = pd.DataFrame([vars(step) for step in path.steps])
    page = {"frame": path.page_frame, "bytes": path.page_bytes, "node": path.page_node}
    page["stopped"] = path.stopped
    table.attrs = {"address": address, "nodes": [node.id for node in snapshot.topology.nodes], "page": page}
    return table


@pytest.mark.parametrize(
    ("levels", "host_levels", "rows"), [(4, None, 1), (5, None, 1), (4, 4, 5), (5, 5, 6)]
)
def test_a_walk_has_a_numbered_cell_per_read(levels, host_levels, rows):
    host = None if host_levels is None else []
    table = walked(build_snapshot([(VA, 77)], host, levels=levels, host_levels=host_levels or 4), VA)
    figure = plots.walk(table)
    assert readable(figure)
    cells = [text.get_text() for text in figure.axes[0].texts if text.get_text()]
    cells.sort(key=lambda text: int(text.partition(":")[0]))
    assert cells == [f"{k}: node {node}" for k, node in enumerate(table["node"], 1)]
    assert len(figure.axes[0].get_yticks()) == rows
    heads = [f"L{level}" for level in range(levels, 0, -1)] + ["page"] * (host is not None)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == heads


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


# What holds of all.


@pytest.fixture(scope="module")
def tables(vm, many, few):
    """{plot: a table for it}"""
    pages = ptanalyze.page_tables(vm)
    return {
        "curve": ptanalyze.sweep(vm, ["hydra"], {"prefetch": [0, 9]}),
        "speedup": many.frame,
        "fragmentation": ptanalyze.fragmentation(vm, after=True),
        "locality": ptanalyze.classify(vm),
        "page_table_map": pages,
        "reads": many.reads,
        "timeline": many.timeline,
        "walk": ptanalyze.walk(vm, int(pages["base"].iloc[-1])),
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
    with pytest.raises(UsageError, match="nothing to draw: "):
        getattr(plots, name)(tables[name].iloc[:0])


def test_colours_differ_in_hatching_and_grey():
    four = list(CLASSES.values())[:4]
    assert len({hatch for _, hatch in four}) == 4
    assert len({colour for colour, _ in four}) == 4 and len(set(NODES)) == 8 and len(set(SERIES)) == 7
    greys = sorted(np.dot(to_rgb(colour), [0.299, 0.587, 0.114]) for colour in NODES[:4])
    assert min(np.diff(greys)) > 0.1 and max(greys) < 0.9
    for count in (4, 8, 16, 64):
        assert len(set(node_colours(range(count)).values())) == count


def test_labels_tell_equal_policies_and_vmas_apart():
    table = pd.DataFrame({"policy": ["a", "b", "b"], "params": ["x=1", "x=1 y=2", "x=1 y=3"]})
    assert policy_labels(table).tolist() == ["a", "b:y=2", "b:y=3"]
    assert broken("ptemagnet+vmitosis-replicate") == "ptemagnet+\nvmitosis-replicate"
    assert broken("a+b") == "a+b"
    names = map(vma_name, ["1000-3000 /usr/lib/libc.so.6", "5000-7000", "b000-c000 [heap]", "thread 7"])
    assert list(names) == ["libc.so.6 at 1000", "anonymous at 5000", "[heap] at b000", "thread 7"]


def test_texts_are_printable_and_no_formulas(few):
    table = few.frame.replace({"policy": {"mitosis": "a$b\x1b$_2"}})
    table.attrs = few.frame.attrs | {"provenance": {"capture": "$x_1$\n"}}
    figure = plots.speedup(table)
    assert r"a$b\x1b$_2" in texts(figure) and r"$x_1$\n" in texts(figure)[-1] + texts(figure)[-2]
    assert not any(text.get_parse_math() for text in figure.axes[0].get_yticklabels())


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
