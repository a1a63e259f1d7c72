"""whatif end to end on small processes: baseline, order, notes, rows, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from ptanalyze.analysis.frames import whatif_frame
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import Event
from ptanalyze.formats.snapshot import read_snapshot, write_snapshot
from replay_cases import HEAP, cases
from strategies import PAGE, REGION, build_snapshot, build_trace, small_machine

pytestmark = pytest.mark.twin

COSTS = load_costs(load_machine("sapphire-rapids"))
PAGES = [HEAP + k * PAGE for k in range(40)]


def process(nodes=2):
    snapshot = build_snapshot(
        [(va, k) for k, va in enumerate(PAGES)], nodes=nodes, vmas=[(HEAP, HEAP + (1 << 21), "h")]
    )
    unmap = [(3, 1, Event.MUNMAP, (HEAP, 4 * PAGE), 0)]
    return snapshot, build_trace([(0, PAGES), (1, PAGES), (0, PAGES)], unmap)


def ask(snapshot, trace, policies, machine=None, cache_dir=None, **options):
    setup = Setup.of(machine=machine or small_machine(2), costs=COSTS, **options)
    return replay_snapshot(snapshot, trace, policies, setup, cache_dir=cache_dir)


def test_the_baseline_comes_first_and_is_linux_when_the_capture_has_nodes():
    found = ask(*process(2), [("hydra", {}), ("mitosis", {})])
    assert [r.policy for r in found] == ["linux", "hydra", "mitosis"]
    assert found[0].price.speedup.low == found[0].price.speedup.high == 1


def test_the_baseline_is_first_touch_for_a_capture_of_one_node_and_says_why():
    found = ask(*process(1), [("hydra", {}), ("linux", {})])
    assert [r.policy for r in found] == ["first-touch", "hydra", "linux"]
    assert any("recorded on one node" in note for note in found[0].notes)


def test_a_policy_that_is_the_baseline_is_not_run_twice():
    found = ask(*process(2), [("hydra", {"prefetch": 0}), ("hydra", {"prefetch": 9})], baseline="hydra")
    assert [(r.policy, r.params["prefetch"]) for r in found] == [("hydra", 0), ("hydra", 9)]


def test_rows_are_flat_and_results_survive_json():
    found = ask(*process(), [("hydra", {"prefetch": "3"}), ("mitosis", {})])
    table = whatif_frame(found)
    assert list(table["policy"]) == ["linux", "hydra", "mitosis"]
    assert table["params"][1] == "prefetch=3 prefetch_on=first tlbflush=munmap-all"
    for result in found:
        assert all(value is None or isinstance(value, str | int | float) for value in result.row().values())
        again = json.loads(json.dumps(result.to_json()))
        assert again["walks"] == result.walks
        assert np.array(again["reads_by_bit_reader_server_dram"]).sum() == result.reads.sum()


def test_page_table_bytes_of_mitosis_are_a_copy_for_each_node_and_linux_takes_the_snapshots():
    linux, mitosis = (r.row() for r in ask(*process(), [("mitosis", {})]))
    assert linux["pt_bytes"] == 4 * 4096
    assert linux["pt_bytes_extra"] == 0
    assert (mitosis["pt_bytes"], mitosis["pt_bytes_extra"]) == (8 * 4096, 4 * 4096)
    assert mitosis["leaf_LL_share"] == 1


@settings(max_examples=10, deadline=None)
@given(cases())
def test_results_do_not_depend_on_threads(case):
    if len(case.snapshot.topology) == 1 or not len(case.trace.chunks):
        return
    one, two = (
        ask(case.snapshot, case.trace, [("hydra", {}), ("interleave", {})], case.machine, jobs=n,
            threads_on="round-robin")
        for n in (1, 2)
    )  # fmt: skip
    assert [r.to_json() for r in one] == [r.to_json() for r in two]


def test_a_stored_walk_stream_gives_the_same_results(tmp_path):
    found = [ask(*process(), [("hydra", {})], cache_dir=tmp_path) for _ in range(2)]
    assert [r.to_json() for r in found[0]] == [r.to_json() for r in found[1]]
    assert list(tmp_path.iterdir()), "the second came from it"


def test_a_name_that_is_no_option_is_refused():
    with pytest.raises(TypeError, match="placement: no such option; there are: machine, "):
        Setup.of(placement="block")


def test_progress_tells_of_the_filter_pass_then_of_the_replay_and_ends_at_their_numbers():
    ends, (snapshot, trace) = {}, process()
    found = ask(snapshot, trace, [("hydra", {})], progress=lambda *now: ends.update({now[2]: now[:2]}))
    touches, walks = trace.touches, found[0].walks
    assert list(ends.items()) == [
        ("filtering touches", (touches, touches)),
        ("replaying walks", (120, 120)),
        ("filtering touches again", (touches, touches)),
        ("replaying walks again", (walks, walks)),
    ]


def test_an_empty_trace_counts_nothing_and_fails_nowhere():
    found = ask(process()[0], build_trace([]), [("hydra", {}), ("mitosis", {})])
    assert [r.walks for r in found] == [0, 0, 0]
    assert found[0].row()["reads_per_walk"] == 0


def test_without_a_trace_every_mapped_page_counts_once_for_each_node():
    found = ask(
        process()[0], None, [("mitosis", {}), ("ideal", {}), ("interleave", {}), ("bind", {"node": 1})]
    )
    linux, mitosis, ideal, interleave, bind = found
    assert linux.classes.sum() == 2 * len(PAGES)
    assert (
        linux.row()["leaf_LL_share"]
        == interleave.row()["leaf_LL_share"]
        == bind.row()["leaf_LL_share"]
        == 0.5
    )
    assert mitosis.row()["leaf_LL_share"] == ideal.row()["leaf_LL_share"] == 1
    assert mitosis.row()["pt_bytes"] == 2 * linux.row()["pt_bytes"]
    assert all(r.price.speedup is None for r in found)


@pytest.mark.parametrize("name", ["hydra", "first-touch"])
def test_without_a_trace_policies_that_depend_on_order_say_what_is_missing(name):
    with pytest.raises(UsageError, match=f"policy {name}: depends on what threads touch, and no trace tells"):
        ask(process()[0], None, [(name, {})])


@pytest.mark.parametrize("name", ["hydra", "first-touch"])
def test_a_trace_that_is_left_out_as_asked_is_not_said_to_be_missing(name):
    with pytest.raises(UsageError) as refused:
        ask(*process(), [(name, {})], weigh="leaf")
    assert "the trace is left out, as asked: with --weight walks it is taken" in str(refused.value)
    assert "record" not in str(refused.value)
    notes = ask(*process(), [], weigh="leaf")[0].notes
    assert notes[0].startswith("the trace is left out: every mapped page counts once")


def test_linux_refuses_a_machine_with_fewer_nodes_than_the_capture():
    snapshot = build_snapshot([(va, k) for k, va in enumerate(PAGES)], nodes=4, table_nodes=(3,))
    with pytest.raises(UsageError, match=r"gpt.tables: node = 3: machine small has nodes 0\.\.1"):
        ask(snapshot, process()[1], [("linux", {})], threads_on="round-robin")


def test_a_trace_that_was_cut_short_is_said_to_be_a_part():
    snapshot, trace = process()
    whole = ask(snapshot, trace, [("ideal", {})])[0].notes
    cut = ask(snapshot, replace(trace, facts={"ended": "size limit"}), [("ideal", {})])[0].notes
    assert set(cut) - set(whole) == {"the trace may be only part of the run; it ended by: size limit"}


def test_a_sampled_trace_is_said_to_be_one():
    snapshot, trace = process()
    whole = ask(snapshot, trace, [("ideal", {})])[0].notes
    walks = replace(trace, facts={"sampled": True, "walks": True})
    sampled = ask(snapshot, walks, [("ideal", {})])[0].notes
    assert [note for note in sampled if note not in whole] == [
        "the trace holds samples of the accesses: shares mean more than numbers"
    ]


def test_the_tracers_own_tables_are_no_part_of_the_price(tmp_path):
    vmas = [(HEAP, HEAP + REGION, "heap"), (HEAP + (1 << 40), HEAP + (1 << 40) + REGION, "qemu")]
    pages = [(HEAP, 1), (HEAP + (1 << 40), 2)]
    snapshot = build_snapshot(pages, nodes=2, vmas=vmas)
    write_snapshot(tmp_path, snapshot, {"emulator": [vmas[1][:2]]})
    whole, program = snapshot, read_snapshot(tmp_path)
    trace = build_trace([(0, [HEAP]), (1, [HEAP])])
    for seen, tables in ((whole, 7), (program, 4)):
        first, mitosis = ask(seen, trace, [("first-touch", {}), ("mitosis", {})], baseline="first-touch")
        assert (first.table_pages, mitosis.table_pages) == (tables, 2 * tables)
