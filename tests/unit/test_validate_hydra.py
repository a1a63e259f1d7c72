"""Hydra's rows: the modelled workloads against closed forms, and what is fitted is called so."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import Event
from ptanalyze.validate import hydra
from ptanalyze.validate.bench import DESIGNS, HYDRA, LINUX, bench
from ptanalyze.validate.row import DEFINITION, FITTED
from ptanalyze.validate.script import TOP, Holes, Script, Work, allocations, calls, guarded_store, web_server
from ptanalyze.validate.wide import DEGREES, alone, footprint, loading, sharing, traversal

PAGES = st.lists(st.integers(0, 1 << 35), min_size=1, max_size=6)


@given(st.lists(st.tuples(st.integers(0, 3), PAGES), min_size=1, max_size=8), st.integers(1, 20))
def test_a_script_is_decoded_to_the_pages_it_touches_in_order(turns, least):
    script = Script([0, 1, 0, 1])
    for thread, pages in turns:
        script.touch(thread, pages)
    trace = script.trace()
    parts = list(trace.batches(least))
    dense = np.concatenate([part.page for part in parts]).astype(np.int64)
    found = (trace.regions[dense >> 9].astype(np.int64) << 9) + (dense & 511)
    assert found.tolist() == [page for _, pages in turns for page in pages]
    assert trace.regions.tolist() == list(dict.fromkeys(p >> 9 for _, pages in turns for p in pages))
    assert [part.chunks.stop for part in parts[:-1]] == [part.chunks.start for part in parts[1:]]
    assert all(len(part.page) >= least for part in parts[:-1])
    assert trace.chunks["thread"].tolist() == [thread for thread, _ in turns]


def test_calls_of_a_script_come_before_what_follows_them():
    script = Script([0, 2])
    script.mmap(1, 512, 4)
    script.touch(1, 513)
    script.mprotect(1, 512, 4)
    script.munmap(0, 512, 4)
    events = script.trace().events
    assert events["kind"].tolist() == [Event.MMAP, Event.MPROTECT, Event.MUNMAP]
    assert events["chunk"].tolist() == [0, 1, 1]
    assert (events["result"][0], events["b"][0], events["thread"][0]) == (512 << 12, 4 << 12, 1)
    assert script.placement == "0,2"


def test_what_came_before_the_mark_is_told_apart():
    script = Script([0])
    script.mmap(0, 512, 512)
    script.touch(0, 512)
    script.mark()
    script.touch(0, 512 + np.arange(1, 5))
    before, after = script.before_and_after({"linux": LINUX})["linux"]
    assert (before.count("faults"), after.count("faults")) == (1, 5)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 600)), max_size=30))
def test_holes_give_the_highest_room_and_never_what_is_taken(turns):
    holes, held = Holes(), []
    for take, pages in turns:
        if take or not held:
            at = holes.take(pages)
            assert all(at + pages <= start or start + size <= at for start, size in held)
            above = sorted(start for start, _ in held if start >= at + pages)
            assert at + pages == (above[0] if above else TOP)
            held.append((at, pages))
        else:
            holes.give(*held.pop(0))
    for one in held:
        holes.give(*one)
    assert holes.holes == [(0, TOP)]


def test_threads_work_side_by_side_until_the_lock_is_always_held():
    assert Work(100, 10).ns(1) == 100
    assert Work(100, 10).ns(8, own=60) == 20
    assert Work(100, 10).ns(1000) == 10


@pytest.mark.parametrize("call", ["mprotect", "munmap"])
def test_hydras_call_does_not_depend_on_remote_spinning_threads_linuxs_does(call):
    few, many = calls(call, 1, (2, 1)), calls(call, 1, (2, 3))
    assert few["hydra"] == many["hydra"] < few["linux"] < many["linux"]
    assert few["unfiltered"] == few["linux"] < few["mitosis"]


def test_what_the_cost_file_is_derived_from_is_called_fitted_and_met():
    rows = [row for figure in (hydra.figure_1, hydra.figure_10) for row in figure(None)]
    fitted = {row.figure.name: row for row in rows if row.kind == FITTED}
    assert set(fitted) == {
        "mprotect-linux", "mprotect-mitosis-alone", "munmap-mitosis-crowded", "munmap-hydra-crowded",
    }  # fmt: skip
    assert all(abs(row.error) < 0.01 for row in fitted.values())
    granted = {row.figure.name for row in rows if row.kind == DEFINITION}
    assert granted == {"mprotect-hydra-alone", "munmap-hydra-alone"}


@pytest.mark.parametrize("shared", [0.25, 1.0])
def test_hydras_footprint_is_the_shared_leaf_tables_and_what_leads_to_them(shared):
    found, leaves = footprint(2, shared), 2 * 512
    upper = 2 + 1 + 1  # of 2 GiB, aligned; each socket has a root and shares of both GiB
    assert found["linux"].table_pages == leaves + upper
    assert found["mitosis"].table_pages == 8 * (leaves + upper)
    assert found["hydra"].table_pages == leaves * (1 + 7 * shared) + 8 * upper


def test_the_sharing_is_what_a_footprint_was_made_with():
    found = footprint(2, 0.5)
    tables = {name: result.table_pages for name, result in found.items()}
    assert sharing(tables["linux"], tables["hydra"]) == pytest.approx(0.5, rel=0.01)


def test_only_what_a_paper_says_of_its_sharing_is_modelled():
    assert {"XSBench"} == hydra.EVERYTHING
    assert hydra.PAPER["xsbench-hydra"].value == 1.32


def test_the_prefetch_curve_falls_and_ends_within_5_percent_of_mitosis():
    """For a lone thread, as in the paper's figure: its copies cost what the link takes."""
    with bench(quick=True) as workshop:
        found, pages = traversal(workshop, costs=alone())
    curve = [found[degree] for degree in DEGREES]
    assert curve == sorted(curve, reverse=True)
    assert found[9] == pytest.approx(found["mitosis"], rel=0.05)
    spared = pages - pages // 512  # faults that only copy an entry, of 600 ns and the reading of its line
    assert 600 * spared < curve[0] - curve[9] < (600 + 320) * spared


def test_at_the_measured_price_of_many_threads_what_is_left_is_the_copying_of_every_entry():
    with bench(quick=True) as workshop:
        (many, pages), (lone, _) = traversal(workshop), traversal(workshop, costs=alone())
    costs = load_costs(load_machine("hydra-haswell"))
    for degree in DEGREES:
        assert many[degree] - lone[degree] == pytest.approx(pages * (costs.pte_copy_ns - 1.5))
    assert many["mitosis"] == lone["mitosis"]


def test_a_server_of_n_threads_interrupts_all_others_or_those_of_its_socket():
    for threads in (4, 8):
        found = web_server(threads)
        assert found["linux"][1] == found["unfiltered"][1] == found["mitosis"][1] == threads - 1
        assert found["hydra"][1] == threads // 4 - 1
        assert found["hydra"][0].locked < found["linux"][0].locked < found["mitosis"][0].locked


def test_a_store_saves_its_shootdowns_only_where_threads_do_not_share_leaf_tables():
    private, shared = guarded_store(False), guarded_store(True)
    assert private["hydra"].busy < private["linux"].busy == shared["linux"].busy
    assert shared["hydra"].busy >= shared["linux"].busy


@pytest.mark.parametrize("stateful", [False, True])
def test_segments_on_one_socket_cost_mitosis_its_copies_and_hydra_nothing(stateful):
    found = allocations(1, stateful, touched=False, live=3, units=4)
    assert set(found) == set(DESIGNS)
    assert found["hydra"] == found["linux"]
    assert found["mitosis"].busy > found["linux"].busy > found["linux"].locked


def test_loading_costs_mitosis_seven_more_copies_of_every_entry():
    found = loading(pages=512)
    more = 7 * (25.4 + 13.2 + 3 * 500 / 512)  # hydra-haswell: an entry, beginning a copy, share of 3 tables
    assert found["mitosis"] - found["linux"] == pytest.approx(more, rel=0.01)
    assert found["hydra"] == found["linux"]


def test_a_speed_up_carries_over_by_remote_share_and_distance():
    canneal = hydra.runs("native-wide", use=("fit",))["Canneal"]
    added = canneal["I"].cycles / canneal["I+M"].cycles - 1
    far = (3 * 230 + 4 * 320) / 7 / 110
    expected = 1 + added * (7 / 8 * (far - 1)) / (3 / 4 * (580 / 280 - 1))
    assert hydra.eight_sockets("I") == pytest.approx(expected)


def test_hydra_replays_with_filters_as_named():
    assert DESIGNS["hydra"] == HYDRA == ("hydra", {})
    assert DESIGNS["unfiltered"][1] == {"tlbflush": "off"}
