"""Trees of several nodes compared: equal, missing, stale, other frames, more and less permission, A and D."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import trees as naive
from ptanalyze.capture.check import check_capture, exit_code
from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.core.snapshot import Snapshot
from ptanalyze.formats.capture import load
from ptanalyze.formats.record import new_capture, seal
from ptanalyze.formats.snapshot import write_snapshot, write_tree
from strategies import PAGE, REGION, Page, build_snapshot, build_tree, frames_on

from .replicas import OWNER_DTYPE, Replicas, check_replicas, compare_trees, read_replicas

VA = 0x2000_0000_0000
QUIET = {"quiescence": {"quiet": True}}
WRITABLE, USERS, EXECUTABLE = np.uint64(2), np.uint64(4), np.uint64(1 << 63)
ACCESSED, DIRTY = np.uint64(0x20), np.uint64(0x40)
PAGES = [(VA + k * PAGE, 900 + k) for k in range(8)] + [Page(VA + REGION, 1024, 2)]


def trees(count=2, pages=PAGES):
    """Equal trees, that of node n on node n."""
    return [build_tree(pages, frames_on([n], 1 << 20)) for n in range(count)]


def owners(*rows):
    return np.array(list(rows), OWNER_DTYPE)


def replicas(*made, owned=None):
    return Replicas(tuple(made), tuple((n,) for n in range(len(made))), owned)


def counts(found):
    return {(one.tree, one.level): dict(one.counts) for one in compare_trees(found)}


def at(tree, address, level=1):
    """(table, slot) of an address."""
    (table,) = np.flatnonzero(
        (tree.level == level) & (tree.base == address >> 12 + 9 * level << 12 + 9 * level)
    )
    return int(table), address >> 3 + 9 * level & 511


def findings(found, facts=QUIET):
    return list(check_replicas(found, facts))


def test_equal_trees_pass_and_say_how_many_leaves_are_the_same():
    found = findings(replicas(*trees(3)))
    assert exit_code(found) == 0
    assert [(one.name, one.reason) for one in found] == [
        (f"node {n}: {size} leaves", f"{same} the same, 0 not filled in")
        for size, same in (("4 KiB", 8), ("2 MiB", 1))
        for n in (1, 2)
    ]


def test_a_replica_that_is_not_filled_in_is_not_wrong():
    owner, replica = trees()[0], build_tree(PAGES[2:5], frames_on([1], 1 << 20))
    assert counts(replicas(owner, replica)) == {(1, 1): {"same": 3, "missing": 5}, (1, 2): {"missing": 1}}
    assert exit_code(findings(replicas(owner, replica))) == 0


@pytest.mark.parametrize(
    ("change", "kind", "told"),
    [
        (lambda owner, replica, here: owner.__setitem__(here, 0), "stale", "node 0, has nothing"),
        (
            lambda owner, replica, here: replica.__setitem__(here, 5 << 12 | 0x67),
            "frame",
            "has frame 0x5 rwx",
        ),
        (lambda owner, replica, here: owner.__setitem__(here, owner[here] ^ WRITABLE), "more", "0x387 r-x"),
        (lambda owner, replica, here: owner.__setitem__(here, owner[here] ^ EXECUTABLE), "more", "0x387 rw-"),
        (lambda owner, replica, here: owner.__setitem__(here, owner[here] ^ USERS), "more", "rwx (kernel)"),
    ],
)
def test_a_change_that_did_not_reach_a_replica_fails_and_is_named(change, kind, told):
    owner, replica = trees()
    change(owner.entries, replica.entries, at(owner, VA + 3 * PAGE))
    found = findings(replicas(owner, replica))
    assert counts(replicas(owner, replica))[1, 1] == {"same": 7, kind: 1} and exit_code(found) == 1
    assert f"{VA + 3 * PAGE:#x} (level 1) has" in found[0].reason and told in found[0].reason


def test_a_shootdown_that_is_left_out_is_nothing_that_trees_show():
    """As recorded on Hydra's kernel 025c16d70, tlbflush_opt 3, before CPU 0 wrote to the read-only page."""
    pages = [(VA + k * PAGE, 5000 + k) for k in range(1024)]
    owner, others = (
        build_tree(pages, frames_on([0], 1 << 20)),
        [build_tree([], frames_on([n])) for n in (1, 2, 3)],
    )
    owner.entries[at(owner, VA + 600 * PAGE)] ^= WRITABLE
    found = findings(replicas(owner, *others))
    assert exit_code(found) == 0 and not any(one.wrong for one in found)


def test_permission_is_that_of_the_whole_way():
    owner, replica = trees()
    owner.entries[at(owner, VA, 2)] ^= WRITABLE
    replica.entries[at(replica, VA + PAGE)] ^= WRITABLE
    assert counts(replicas(owner, replica))[1, 1] == {"same": 1, "more": 7}


def test_a_replica_that_allows_less_is_worth_a_note():
    owner, replica = trees()
    replica.entries[at(replica, VA)] ^= WRITABLE
    (small, _) = findings(replicas(owner, replica))
    assert small.verdict == "note" and "1 that allow less" in small.reason


def test_accessed_and_dirty_bits_count_in_whichever_tree_they_are():
    owner, replica = trees()
    owner.entries[at(owner, VA)] &= ~(ACCESSED | DIRTY)
    replica.entries[at(replica, VA + PAGE)] &= ~(ACCESSED | DIRTY)
    assert counts(replicas(owner, replica))[1, 1] == {"same": 8, "marks": 1}
    assert exit_code(findings(replicas(owner, replica))) == 0


def test_each_area_is_judged_by_its_owner_and_where_none_is_nothing_may_be_mapped():
    first, second = trees()
    first.entries[at(first, VA)] = 0  # second's: a replica that lacks it
    second.entries[at(second, VA + 4 * PAGE)] = 0  # first's
    owned = owners(
        (VA, VA + 4 * PAGE, 1), (VA + 4 * PAGE, VA + 6 * PAGE, 0), (VA + REGION, VA + 2 * REGION, 0)
    )
    assert counts(replicas(first, second, owned=owned)) == {
        (0, 1): {"missing": 1, "same": 3, "stale": 2},
        (1, 1): {"missing": 1, "same": 1, "stale": 2},
        (1, 2): {"same": 1},
    }
    assert "the process has no area there" in findings(replicas(first, second, owned=owned))[0].reason


def test_a_page_of_another_size_is_stale():
    small, huge = build_tree([(VA, 1024)], frames_on([0])), build_tree([Page(VA, 1024, 2)], frames_on([1]))
    assert counts(replicas(small, huge)) == {(1, 1): {"missing": 1}, (1, 2): {"stale": 1}}


def test_what_differs_in_a_process_that_ran_meanwhile_is_partial():
    owner, replica = trees()
    owner.entries[at(owner, VA)] = 0
    found = findings(replicas(owner, replica), {"quiescence": {"quiet": False}})
    assert exit_code(found) == 3 and "dump it with --stop" in found[0].reason


def test_differences_are_counted_all_and_shown_a_few():
    owner = build_tree([(VA + (1 << 30), 7)], frames_on([0]))
    replica = build_tree([(VA + k * REGION, k) for k in range(400)], frames_on([1]))
    found = findings(replicas(owner, replica))
    assert found[0].wrong == 400 and found[0].reason.count("(level 1)") == 3


SLOTS = st.sampled_from([0, 1, 2, 511, 512, 513, 1024])
LEAF = st.tuples(
    SLOTS, st.integers(0, 3), st.sampled_from([0, 2, 4, 6, 0x20, 0x26, 0x66, 1 << 63 | 6, 1 << 63])
)


@st.composite
def some_trees(draw):
    made = []
    for node in range(draw(st.integers(2, 3))):
        rows = {slot: (frame, flags) for slot, frame, flags in draw(st.lists(LEAF, min_size=1, max_size=6))}
        pages = [Page(VA + slot * PAGE, frame) for slot, (frame, _) in rows.items()]
        huge = draw(st.booleans())
        tree = build_tree([*pages, *[Page(VA + 8 * REGION, 1024, 2)] * huge], frames_on([node]))
        for slot, (frame, flags) in rows.items():
            tree.entries[at(tree, VA + slot * PAGE)] = (
                frame << 12 | flags | draw(st.sampled_from([1, 1, 1, 0]))
            )
        tree.entries[at(tree, VA, 3)] &= ~np.uint64(draw(st.sampled_from([0, 0, 2, 4])))
        made.append(tree)
    areas = draw(
        st.none() | st.lists(st.tuples(st.integers(0, 9), st.integers(0, len(made) - 1)), max_size=4)
    )
    rows, start = [], VA
    for pages, tree in areas or ():
        if pages:
            rows.append((start, start + pages * PAGE, tree))
        start += pages * 100 * PAGE
    return made, None if areas is None else rows


@settings(max_examples=25)
@given(some_trees())
def test_it_agrees_with_a_comparison_leaf_by_leaf(drawn):
    made, rows = drawn
    owned = None if rows is None else owners(*rows)
    assert counts(replicas(*made, owned=owned)) == {k: dict(v) for k, v in naive.compare(made, rows).items()}


@pytest.fixture
def capture(tmp_path):
    """capture(facts, trees): a sealed capture of a process with a tree per node."""

    def make(owned=None, change=lambda facts: None, made=None):
        one, *others = made or trees()
        base = build_snapshot(PAGES)
        facts = {
            "quiescence": {side: {"minflt": 1, "majflt": 0} for side in ("before", "after")} | {"quiet": True}
        }
        names = ["gpt", *(f"gpt-node{n + 1}" for n in range(len(others)))]
        listed = [{"name": name, "nodes": [n]} for n, name in enumerate(names)]
        facts["replicas"] = {"trees": listed, "owners": owned}
        change(facts["replicas"])
        with new_capture(tmp_path / "c") as inside:
            write_snapshot(inside, Snapshot(one, base.vmas, base.vma_names, base.topology, None, facts))
            for name, tree in zip(names[1:], others, strict=True):
                write_tree(inside, name, tree)
            seal(inside, "process", {})
        return tmp_path / "c"

    return make


def test_a_stale_leaf_of_a_capture_fails_and_one_tree_for_all_is_refused(capture):
    owner, replica = trees()
    with pytest.raises(UsageError, match="one tree for all nodes"):
        read_replicas(load("lookup"))
    owned = [[VA, VA + PAGE, 0], [VA + REGION, VA + 2 * REGION, 1]]
    stale = load(capture(owned=owned, made=[owner, replica]))
    assert exit_code(list(check_capture(stale))) == 0
    found = findings(read_replicas(stale), stale.snapshot.facts)
    wrong = [(one.name, one.wrong) for one in found if one.wrong]
    assert exit_code(found) == 1 and wrong == [(f"node {n}: 4 KiB leaves", 7) for n in (0, 1)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda f: f["trees"][1].update(name="../gpt-node1"), "trees"),
        (lambda f: f["trees"][1].update(name="gpt"), "each other name"),
        (lambda f: f["trees"][1].update(nodes=[0]), "walks one tree"),
        (lambda f: f["trees"].pop(), "trees"),
        (lambda f: f.update(owners=[[8, 8, 0]]), "empty"),
        (lambda f: f.update(owners=[[8, 16, 0], [12, 20, 0]]), "overlapping"),
        (lambda f: f.update(owners=[[8, 16, 7]]), "no tree is of this node"),
        (lambda f: f.update(owners=[[-8, 16, 1]]), "order"),
        (lambda f: f.update(owners=[[8, 1 << 64, 1]]), "64 bits"),
        (lambda f: f.update(trees="gpt"), "trees"),
    ],
)
def test_trees_that_cannot_be_are_refused(capture, change, why):
    with pytest.raises(CaptureError, match=why):
        read_replicas(load(capture(change=change)))


def test_a_tree_that_is_missing_or_not_this_processs_is_refused(capture):
    with pytest.raises(UsageError, match=r"gpt-node7.tables: no such file"):
        read_replicas(load(capture(change=lambda f: f["trees"][1].update(name="gpt-node7"))))


def test_a_tree_of_other_levels_is_refused(capture):
    other = build_tree(PAGES, frames_on([1]), levels=5)
    with pytest.raises(CaptureError, match="5 levels"):
        read_replicas(load(capture(made=[trees()[0], other])))
