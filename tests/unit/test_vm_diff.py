"""Two captures of a series compared, against a comparison entry by entry."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_vm_join import VA, two_roots, write_both

from naive.diff import diff as naive
from ptanalyze.capture.vm.diff import diff, diff_trees
from ptanalyze.capture.vm.join import join
from ptanalyze.cli import run
from ptanalyze.core.errors import UsageError
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.manifest import seal
from ptanalyze.formats.snapshot import write_snapshot
from strategies import PAGE, REGION, Page, build_snapshot, build_tree, frames_on, trees

pytestmark = pytest.mark.twin


def positive(counts):
    return {key: count for key, count in counts.items() if count}


def agree(one, other):
    found = diff_trees("PT", one, other)
    pages, moves, entries = naive(one, other)
    assert positive(found.pages) == pages and found.moves == moves and positive(found.entries) == entries


@settings(max_examples=80, deadline=None)
@given(st.data(), st.sampled_from(["x86", "ept", "kvm"]), st.sampled_from([4, 5]))
def test_every_page_and_entry_counts_as_the_naive_comparison_says(data, encoding, levels):
    pages = data.draw(trees(levels))
    kept = [page for page in pages if data.draw(st.integers(0, 3))]
    later = kept + [page for page in data.draw(trees(levels, max_pages=3)) if not clash(page, kept)]
    spread = st.lists(st.integers(0, 1), min_size=1, max_size=3)
    make = lambda what, first: build_tree(  # noqa: E731
        what, frames_on(data.draw(spread), first), levels=levels, encoding=encoding
    )
    one, other = make(pages, 1 << 22), make(later, data.draw(st.sampled_from([1 << 22, 1 << 23])))
    one.node[:: data.draw(st.sampled_from([2, 100]))] = -1
    for tree in (one, other):
        tree.entries[tree.entries != 0] |= np.uint64(data.draw(st.sampled_from([0, 0x60, 0x300, 1 << 58])))
    agree(one, other)


def clash(page, others):
    span = lambda p: (p.va, p.va + (1 << (3 + 9 * p.level)))  # noqa: E731
    return any(span(page)[0] < span(p)[1] and span(p)[0] < span(page)[1] for p in others)


def test_several_roots_are_compared_root_by_root():
    snapshot = build_snapshot([(VA, 9)], [])
    second = build_tree([Page(0, 5)], frames_on([1], 1 << 23), encoding="ept")
    tree = two_roots(snapshot, second)
    changed = replace(tree, frame=tree.frame.copy(), node=tree.node.copy())
    changed.frame[len(snapshot.host)] += 1
    agree(tree, changed)
    assert diff_trees("ePT", tree, changed).pages[4, "moved"] == 1


def capture(place, snapshot):
    place.mkdir()
    write_snapshot(place, snapshot)
    seal(place, "process", {})
    return open_capture(place)


def test_a_tree_compared_with_itself_is_the_same(tmp_path):
    one = capture(tmp_path / "a", build_snapshot([(VA, 9), Page(VA + REGION, 512, 2)]))
    (found,) = diff(one, one)
    assert found.changed == 0 and found.moves == {} and positive(found.entries) == {}
    assert [row["same"] for row in found.rows()] == [1, 1, 1, 1]


def test_both_dimensions_of_a_vm_and_a_hosts_side_alone_are_compared(tmp_path):
    snapshots = [build_snapshot([(VA, 9), (VA + PAGE, 10)], [], host_table_nodes=(node,)) for node in (0, 1)]
    for name, snapshot in zip("ab", snapshots, strict=True):
        (tmp_path / name).mkdir()
        host, guest = write_both(tmp_path / name, snapshot)
        join(host, guest, tmp_path / name / "vm")
        seal(host, "vm-host", {})
    one, other = (open_capture(tmp_path / name / "vm") for name in "ab")
    guest, host = diff(one, other)
    assert (guest.dimension, guest.changed, host.dimension) == ("gPT", 0, "ePT")
    assert host.changed == len(snapshots[0].host) and {key[1:] for key in host.moves} == {(0, 1)}
    (alone,) = diff(*(open_capture(tmp_path / name / "host") for name in "ab"))
    assert alone == host
    with pytest.raises(UsageError, match="vm and vm-host cannot be compared"):
        diff(one, open_capture(tmp_path / "a" / "host"))


def test_other_levels_are_not_of_one_series(tmp_path):
    one = capture(tmp_path / "a", build_snapshot([(VA, 9)]))
    other = capture(tmp_path / "b", build_snapshot([(VA, 9)], levels=5))
    with pytest.raises(UsageError, match="PT: levels 4 became 5"):
        diff(one, other)


def test_the_command_prints_tables_and_json(tmp_path, capsys):
    capture(tmp_path / "a", build_snapshot([(VA, 9)], table_nodes=(0,)))
    capture(tmp_path / "b", build_snapshot([(VA, 9), (VA + PAGE, 10)], table_nodes=(1,)))
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert run(["diff", *paths]) == 0
    assert "4 table pages changed" in capsys.readouterr().out
    assert run(["diff", *paths, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["tables"][-1]["leaves appeared"] == 1 and result["tables"][0]["other node"] == 1
    assert result["moves"][0] == {
        "tree": "PT",
        "level": 4,
        "from node": "0",
        "to node": "1",
        "table pages": 1,
    }
    assert run(["diff", *paths[:1], str(tmp_path / "none")]) == 2
