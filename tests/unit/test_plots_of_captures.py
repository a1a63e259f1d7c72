"""Plots of what a capture holds: a walk, table pages by level and node, changes, checks, a fit."""

import numpy as np
import pandas as pd
import pytest

import ptanalyze
from plot_texts import readable, words
from ptanalyze.analysis import frames
from ptanalyze.analysis.walk import explain
from ptanalyze.capture.check import check_capture
from ptanalyze.capture.vm.diff import diff
from ptanalyze.capture.vm.join import Fit, Share
from ptanalyze.core.errors import UsageError
from ptanalyze.show import plots
from ptanalyze.show.plots.style import ink, node_looks
from strategies import Page, build_snapshot

VA = 0x7F12_3456_7000


def texts(figure):
    return [text.replace("\N{NO-BREAK SPACE}", " ").replace("\n", " ") for text in words(figure)]


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
