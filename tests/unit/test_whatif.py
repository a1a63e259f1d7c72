"""`whatif` end to end, with a trace and without one, at its size and at a larger one."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from captures import evenly
from naive import classify as naive
from ptanalyze import analysis, cost, policies, show
from ptanalyze.analysis.advise import advise_scenario
from ptanalyze.analysis.frames import whatif_frame
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.verdict import NONE, UNTIMED, answer, cautions
from ptanalyze.analysis.whatif import replay
from ptanalyze.core.columns import CACHED, Column, Finding, noted
from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.core.interval import Interval, less_sure
from ptanalyze.core.machine import Moves
from ptanalyze.core.trace import Event
from ptanalyze.cost.result import COLUMNS, UPDATES, owned
from ptanalyze.cost.throughput import WINDOW_COLUMNS
from ptanalyze.formats.capture import bundled_samples
from ptanalyze.formats.snapshot import read_snapshot, write_snapshot
from ptanalyze.show.whatif import about, everything
from ptanalyze.world.mm_events import within_region
from ptanalyze_synth.capture import synth
from replay_cases import COSTS, HEAP, answered, cases
from strategies import PAGE, REGION, Page, build_snapshot, build_trace, small_machine, snapshots

pytestmark = pytest.mark.twin

PAGES = [HEAP + k * PAGE for k in range(40)]


def process(nodes=2):
    pages, vmas = [(va, k) for k, va in enumerate(PAGES)], [(HEAP, HEAP + (1 << 21), "h")]
    snapshot = build_snapshot(pages, nodes=nodes, vmas=vmas)
    unmap = [(3, 1, Event.MUNMAP, (HEAP, 4 * PAGE), 0)]
    return snapshot, build_trace([(0, PAGES), (1, PAGES), (0, PAGES)], unmap)


def ask(snapshot, trace, policies, machine=None, **options):
    return answered(snapshot, policies, trace, machine=machine or small_machine(2), **options)


@pytest.mark.parametrize(("nodes", "order"), [(2, "linux hydra"), (1, "first-touch hydra linux")])
def test_the_baseline_comes_first_and_is_linux_if_the_capture_has_nodes(nodes, order):
    found = ask(*process(nodes), [("hydra", {}), ("linux", {})])
    assert [r.policy for r in found] == order.split()
    assert found[0].speedup.low == found[0].speedup.high == 1
    assert any("recorded on one node" in note for note in found[0].notes) is (nodes == 1)


def test_a_policy_that_is_the_baseline_is_not_run_twice():
    found = ask(*process(2), [("hydra", {"prefetch": 0}), ("hydra", {"prefetch": 9})], baseline="hydra")
    assert [(r.policy, r.params["prefetch"]) for r in found] == [("hydra", 0), ("hydra", 9)]


def test_a_baseline_is_written_as_policies_are():
    for one in ("bind:node=1", ("bind", {"node": 1}), ["bind:node=1"]):
        assert ask(*process(2), [("hydra", {})], baseline=one)[0].params == {"node": 1}
    assert ask(*process(2), [("hydra", {})], baseline=policies.find("bind"))[0].policy == "bind"
    setup = Setup.of(machine=small_machine(2), costs=COSTS, baseline=("bind", {"node": 1}))
    assert advise_scenario(setup.scenario(*process(2)), math.inf, setup).base.params == {"node": 1}
    for wrong in (5, None, [], ["bind", "hydra"], ("bind", 1)):
        with pytest.raises(UsageError, match=r"baseline = .*: name one policy"):
            ask(*process(2), [("hydra", {})], baseline=wrong)


def test_copies_on_nodes_where_no_walk_reads_them_are_found_and_the_way_to_spare_them():
    """Two threads on two nodes of four; what hydra copies is read."""
    asked = [("mitosis", {}), ("mitosis", {"nodes": "0,1"}), ("hydra", {}), ("mitosis", {"nodes": "0,2"})]
    linux, *found = ask(*process(2), asked, small_machine(4), threads_on="0,1")
    eager, fewer, lazy, away = (one.finding("unread-copies") for one in found)
    assert eager.numbers == {"count": 2, "nodes": "2, 3", "way": "; nodes=0,1 makes none there"}
    assert fewer is lazy is linux.finding("unread-copies") is None
    assert away.numbers == {"count": 1, "nodes": "2", "way": ""}
    assert [one for one in cautions(linux, linux, found) if one.code == "unread-copies"] == [eager, away]


def test_rows_are_flat_and_results_survive_json():
    found = ask(*process(), [("hydra", {"prefetch": "3"}), ("mitosis", {})])
    table = whatif_frame(found)
    assert list(table["policy"]) == ["linux", "hydra", "mitosis"]
    assert table["params"][1] == "prefetch=3 prefetch_on=first tlbflush=munmap-all"
    for result in found:
        assert all(value is None or isinstance(value, str | int | float) for value in result.row().values())
        again = json.loads(json.dumps(result.to_json()))
        assert again["walks"] == result.walks
        assert np.array(again["reads_by_bit_reader_server_from"]).sum() == result.reads.sum()


@settings(max_examples=10, deadline=None)
@given(cases())
def test_results_do_not_depend_on_threads(case):
    if len(case.snapshot.topology) == 1 or not len(case.trace.chunks):
        return
    try:
        within_region(case.trace)
    except CaptureError:
        reject()
    one, two = (
        ask(case.snapshot, case.trace, [("hydra", {}), ("interleave", {})], case.machine, jobs=n,
            threads_on="round-robin")
        for n in (1, 2)
    )  # fmt: skip
    assert [r.to_json() for r in one] == [r.to_json() for r in two]


def test_a_new_column_is_in_json_frame_and_full_table_from_its_one_place(monkeypatch):
    column = Column("walks_twice", "", lambda c: 2 * c.walks, UPDATES, "twice", unit="walks")
    for module in (cost.result, analysis.frames, show.whatif):
        monkeypatch.setattr(module, "COLUMNS", (*COLUMNS, column))
    found = ask(*process(), [("hydra", {})])
    frame = whatif_frame(found)
    assert found[0].to_json()["walks_twice"] == 2 * found[0].walks == frame["walks_twice"][0]
    assert frame.attrs["units"]["walks_twice"] == "walks"
    (shown,) = [row for row in everything(found) if row[""] == "  twice"]
    assert list(shown.values())[1:] == [f"{2 * r.walks:,}" for r in found]
    larger = replace(found[0], facts={"bloat_bytes": 1, "x": 2}, findings=(noted("scale", scale=16),))
    [heading, row] = [line[""] for line in everything([larger])][-2:]
    assert "captured" in heading and "x" in row  # as counted; held memory is of the larger run, above


@given(st.floats(0.01, 100), st.floats(0, 1))
def test_what_is_less_sure_is_above_zero(ratio, part):
    assert 0 < less_sure(Interval.exactly(ratio), part).low <= ratio


def test_columns_have_one_name_each():
    for columns in (COLUMNS, WINDOW_COLUMNS):
        keys = [one.key for one in columns]
        assert len({*keys}) == len(keys)


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


@pytest.mark.parametrize("name", ["hydra", "first-touch"])
def test_without_a_trace_policies_that_depend_on_order_say_what_is_missing(name):
    with pytest.raises(UsageError, match=f"policy {name}: needs the order of accesses, so it needs a trace"):
        ask(process()[0], None, [(name, {})])


def test_linux_refuses_a_machine_with_fewer_nodes_than_the_capture():
    snapshot = build_snapshot([(va, k) for k, va in enumerate(PAGES)], nodes=4, table_nodes=(3,))
    with pytest.raises(UsageError, match=r"gpt.tables: node = 3: machine small has nodes 0\.\.1"):
        ask(snapshot, process()[1], [("linux", {})], threads_on="round-robin")


def test_the_tracers_own_tables_are_no_part_of_the_price(tmp_path):
    vmas = [(HEAP, HEAP + REGION, "heap"), (HEAP + (1 << 40), HEAP + (1 << 40) + REGION, "qemu")]
    snapshot = build_snapshot([(HEAP, 1), (HEAP + (1 << 40), 2)], nodes=2, vmas=vmas)
    write_snapshot(tmp_path, replace(snapshot, facts={"emulator": [vmas[1][:2]]}))
    whole, program = snapshot, read_snapshot(tmp_path)
    trace = build_trace([(0, [HEAP]), (1, [HEAP])])
    for seen, tables in ((whole, 7), (program, 4)):
        first, mitosis = ask(seen, trace, [("first-touch", {}), ("mitosis", {})], baseline="first-touch")
        assert (first.pages["guest"], mitosis.pages["guest"]) == (tables, 2 * tables)


# What-if without a trace, native and in two dimensions, against its twin and in closed form.

NODES = 3
SERVERS = {  # policy: node that serves (tree, table) to a reader
    "linux": lambda tree, table, reader: int(tree.node[table]),
    "interleave": lambda tree, table, reader: table % NODES,
    "interleave after the guest's": lambda tree, table, reader: (table + table // NODES) % NODES,
    "bind": lambda tree, table, reader: 0,
    "ideal": lambda tree, table, reader: reader,
    "vmitosis-replicate": lambda tree, table, reader: reader,
}
POLICIES = ["linux", "interleave", "bind", "ideal", "vmitosis-replicate", "mitosis"]


def servers(snapshot, name):
    """(guest_server, host_server) for the twin; mitosis acts on the guest only."""
    outer = {"mitosis": "linux", "interleave": "interleave after the guest's"}.get(name, name)
    inner = "ideal" if name == "mitosis" else name
    return (
        lambda table, reader: SERVERS[inner](snapshot.guest, table, reader),
        lambda table, reader: SERVERS[outer](snapshot.host, table, reader),
    )


@settings(max_examples=60, deadline=None)
@given(snapshots(nodes=NODES), st.sampled_from(POLICIES))
def test_every_mapped_page_is_counted_once_for_each_node_as_the_twin_counts_it(snapshot, name):
    if snapshot.native and name == "vmitosis-replicate":
        return
    found = answered(snapshot, [(name, {})], nodes=NODES, cold=True)[-1]
    reads, classes, left_out = naive.count(snapshot, NODES, *servers(snapshot, name))
    assert {tuple(at[:3].tolist()): int(found.reads[tuple(at)]) for at in np.argwhere(found.reads)} == +reads
    assert {tuple(at.tolist()): int(found.classes[tuple(at)]) for at in np.argwhere(found.classes)} == classes
    assert found.walks == sum(classes.values())
    assert sum(one.numbers["pages"] for one in found.findings if one.code == "pages-left-out") == left_out


# What is claimed without a trace: bounds in closed form, and nothing where the caches hold the entries.

LOW_HEAP = 1 << 30
LINE = 8 * PAGE  # bytes mapped by a line of entries


def bounds(snapshot, lines, nodes=2, shares=None, policies=("mitosis",)):
    """[Result], of a machine whose LLC has so many lines, a multiple of 4."""
    machine = small_machine(nodes, cache_lines=(4, lines))
    machine = msgspec.structs.replace(machine, llc=msgspec.structs.replace(machine.llc, shares=shares))
    return answered(snapshot, [(name, {}) for name in policies], cold=True, machine=machine)


def native(pages=128, apart=PAGE, nodes=2):
    return build_snapshot([(LOW_HEAP + k * apart, k) for k in range(pages)], nodes=nodes, table_nodes=[0])


@pytest.mark.compiled
@pytest.mark.parametrize(("nodes", "least"), [(2, 0.333), (4, 0.429)])
def test_the_bound_is_that_of_reads_of_dram_from_every_node_alike(nodes, least):
    """Local 100 ns, remote 200: of tables on one node, 1 - 100 / (100 / n + 200 (n - 1) / n)."""
    base, mitosis = bounds(native(nodes=nodes), 12, nodes)
    found = answer(mitosis, base)
    assert found.kind == UNTIMED and found.message.numbers["fewer"] == pytest.approx(least)
    assert f" from each of {nodes} nodes" in about(base)
    assert base.finding("bound").numbers["nodes"] == nodes


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("snapshot", "lines"),
    [
        (native(128), 16),
        (native(16, apart=LINE), 16),
        (native(16, apart=1 << 21), 16),  # a leaf table each
        (build_snapshot([Page(k << 21, k << 9, level=2) for k in range(128)], table_nodes=[0]), 16),
        (build_snapshot([Page(k << 30, k << 18, level=3) for k in range(32)], table_nodes=[0]), 4),
    ],
    ids=["full lines", "a page a line", "a page a table", "2 MiB", "1 GiB"],
)
def test_the_caches_hold_what_has_as_many_lines_and_not_one_set_more(snapshot, lines):
    base, mitosis = bounds(snapshot, lines)
    assert base.finding(CACHED).numbers["size"] == 1024 and answer(mitosis, base).kind == NONE
    if lines > 4:
        few, other = bounds(snapshot, lines - 4)
        assert few.finding(CACHED) is None and answer(other, few).kind == UNTIMED
        assert few.row() == base.row()


@pytest.mark.compiled
def test_the_least_that_may_be_left_to_page_tables_must_hold_them():
    held, not_held = (bounds(native(), lines, shares=(0.5, 1.0))[0] for lines in (32, 28))
    assert held.finding(CACHED) and not not_held.finding(CACHED)


@pytest.mark.compiled
def test_of_heat_the_lines_of_used_pages_count():
    heat = evenly({(LOW_HEAP + k * PAGE, 1): 1 for k in range(64)})
    assert bounds(replace(native(), heat=heat), 8)[0].finding(CACHED)
    assert not bounds(native(), 8)[0].finding(CACHED)


@pytest.mark.compiled
def test_of_a_vm_the_lines_of_both_tables_count():
    pages = [(LOW_HEAP + k * PAGE, 512 + k) for k in range(128)]
    both = build_snapshot(pages, [], nodes=2, table_nodes=[0], host_table_nodes=[0])
    assert not bounds(both, 16)[0].finding(CACHED) and bounds(both, 40)[0].finding(CACHED)


# Notes of several results: each once, and whose it is where not all have it.


def result(policy, *findings, assumptions="idle latencies"):
    said = [Finding("told", one) if isinstance(one, str) else one for one in findings]
    return SimpleNamespace(policy=policy, findings=said, assumptions=assumptions)


def owned_lines(results, **how):
    return [one.line for one in owned(results, **how)]


@pytest.mark.compiled
def test_a_finding_that_not_all_policies_have_names_those_that_have_it():
    results = [
        result("first-touch", "of all", "of most"),
        result("linux", "of all", "of most"),
        result("thp+hydra", "of all", "few reads from DRAM", Finding("told", "2 MiB stay", policy="thp")),
    ]
    said = (
        "of all; all but thp+hydra: of most; idle latencies; thp+hydra: few reads from DRAM; thp: 2 MiB stay"
    )
    assert "; ".join(owned_lines(results)) == said
    assert "idle latencies" not in owned_lines(results, assumptions=False)


@pytest.mark.compiled
@pytest.mark.parametrize("of", ["vm-numa-visible", "whole run", "moving data"])
def test_answers_do_not_depend_on_others_asked(of, tmp_path):
    """A whole run of one node has its data where they were first touched, before its steady part."""
    shape = {"nodes": 1, "threads": 4, "accesses": 60_000, "init": "single", "init_trace": True}
    known = bundled_samples().get(of) or synth(tmp_path / of, "24M", munmap_every=64, **shape)
    moves = Moves(autonuma=True, scan_period_ms=0.1, delay_ms=0) if of == "moving data" else None
    names = [name for name in policies.POLICIES if name not in ("bind", "linux")]
    together = {one.policy: one for one in replay(known, names, autonuma=moves).results}

    def numbers(result):
        return {key: value for key, value in result.to_json().items() if key not in ("findings", "notes")}

    for name in [*together][::3]:
        for alone in replay(known, name, autonuma=moves).results:
            assert numbers(alone) == numbers(together[alone.policy])
