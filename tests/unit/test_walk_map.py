"""Walks by address and time: every walk once, in its VMA and its window; and names of VMAs."""

import numpy as np
import pytest
from pandas import DataFrame

import plot_texts
import ptanalyze
from ptanalyze.analysis.walk import rows_of
from ptanalyze.core.errors import UsageError
from ptanalyze.show import plots
from ptanalyze.show.plots.page_table_map import vma_names

SETUP = {"windows": 7, "cold": True}


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    place = tmp_path_factory.mktemp("map") / "app"
    return ptanalyze.synth(place, "16M", threads=4, accesses=4000, init_trace=False)


@pytest.mark.parametrize("rows", [1, 5, 48, 5000])
def test_each_walk_is_in_its_window_and_its_vma_once(capture, rows):
    table = ptanalyze.walk_map(capture, rows=rows, **SETUP)
    windows = table["walks"].to_numpy().reshape(-1, 7).sum(axis=0)
    known = ptanalyze.timeline(capture, ["linux"], **SETUP)
    known = known[known["policy"] == "linux"]
    assert table["time_ns"].tolist() == known["time_ns"].tolist() * table["start"].nunique()
    assert windows.tolist() == known["walks"].tolist() and windows.sum() > 1000
    by_vma = ptanalyze.classify(capture, weight="walks", by="vma").groupby("group")["count"].sum()
    if rows >= len(by_vma):
        assert table.groupby("vma")["walks"].sum().to_dict() == by_vma[by_vma > 0].to_dict()
    assert table["start"].nunique() <= rows and (table["start"] < table["end"]).all()


def test_rows_are_shared_by_the_size_of_vmas_and_none_crosses_one():
    vma = np.repeat([3, 5, 9], [100, 1, 20])
    row = rows_of(vma, 12)
    assert row.max() < 12 and (np.diff(row) >= 0).all() and set(np.diff(row)) <= {0, 1}
    assert all(len(set(vma[row == one])) == 1 for one in set(row.tolist()))
    assert rows_of(np.arange(50), 12).max() == 11, "more VMAs than rows share rows"


def test_without_a_trace_nothing_happens_over_time(tmp_path):
    with pytest.raises(UsageError, match="no trace"):
        ptanalyze.walk_map(ptanalyze.synth(tmp_path / "bare", "16M", trace=False))


def mapped(walks):
    """A table of walk_map with two windows, of {VMA: walks of each of its rows in the first window}."""
    rows = [(vma, count) for vma, counts in walks.items() for count in counts]
    return DataFrame(
        {
            "start": np.repeat(np.arange(len(rows), dtype=np.uint64) * 4096, 2),
            "vma": [vma for vma, _ in rows for _ in range(2)],
            "time_ns": [6_000_000_000, 12_000_000_000] * len(rows),
            "walks": [n for _, count in rows for n in (count, 0)],
        }
    )


def test_the_heat_map_names_what_walks_much_and_marks_where_it_begins():
    walks = {"0-2000 /bin/app": [1, 1], "2000-6000": [40, 30, 20, 8], "6000-7000 [heap]": [900]}
    figure = plots.walk_map(mapped(walks))
    texts = plot_texts.words(figure)
    assert any("90" in text and "[heap]" in text for text in texts)
    assert any("anonymous" in text for text in texts)
    assert not any("app" in text for text in texts), "two of a thousand walks"
    shown = {text for axis in figure.axes for text in (tick.get_text() for tick in axis.get_yticklabels())}
    assert {"2000", "6000"} <= shown, "first addresses of what is named, as /proc/PID/maps has them"
    assert "s since the trace began" in texts


def test_memory_that_was_freed_before_the_dump_is_called_so():
    figure = plots.walk_map(mapped({"0-1000 [heap]": [3], "no VMA": [97]}))
    assert repr(figure) == "97 % of walks go to memory not mapped at the dump"


def test_bars_of_scattered_vmas_have_the_names_of_the_heat_map():
    groups = ["1000-3000 /usr/lib/libc.so.6", "3000-5000 /usr/lib/libc.so.6", "100000-200000"]
    table = DataFrame(
        {"group": groups, "lines": "all", "ept_lines": 2, "count": 7, "share": 1.0, "state": "before"}
    )
    texts = " ".join(" ".join(text for text, _ in plot_texts.written(plots.fragmentation(table))).split())
    assert all(name in texts for name in ("libc.so.6 at 1000", "libc.so.6 at 3000", "anonymous 1 MiB"))


def test_vmas_are_named_by_file_or_size_and_by_address_only_where_that_is_not_enough():
    groups = [
        "1000-3000 /usr/lib/libc.so.6",
        "5000-7000",
        "7000-9000",
        "a000-2a000",
        "b000-c000 [heap]",
        "thread 7",
    ]
    names = [name.replace("\N{NO-BREAK SPACE}", " ") for name in vma_names(groups).values()]
    sizes = {f"0-{size:x}": size for size in (4096, 1020 << 10, 1 << 20, 3 << 29, 3 << 40, 1 << 52)}
    said = [name.replace("\N{NO-BREAK SPACE}", " ").partition(" ")[2] for name in vma_names(sizes).values()]
    assert said == ["4 KiB", "1020 KiB", "1 MiB", "1.5 GiB", "3 TiB", "4096 TiB"]
    alike = ["anonymous 8 KiB at 5000", "anonymous 8 KiB at 7000"]
    assert names == ["libc.so.6", *alike, "anonymous 128 KiB", "[heap]", "thread 7"]
