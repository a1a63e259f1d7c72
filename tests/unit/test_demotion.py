"""Data pages that nobody uses go to slower memory: what that writes and whom it interrupts, by policy."""

import msgspec
import numpy as np
import pytest

from ptanalyze.analysis.answers import calls_frame
from ptanalyze.analysis.runs import replay_walks, start
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.system_calls import system_calls
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import Latency, load_costs
from ptanalyze.core.walks import Placement
from ptanalyze.cost.calls import SystemCalls
from ptanalyze.cost.price import call_costs, management_cycles
from ptanalyze.kernels.replay import IPI, IPI_SAVED, PTE_FANOUT, PTE_WRITE, counters
from ptanalyze.kernels.steps import BALANCING, CALLS, DATA, DEMOTION, FLUSH, HINT, node_now
from ptanalyze.policies import plan_for
from ptanalyze.world.demotion import demotion, demotion_notes
from ptanalyze.world.moves import Moves
from replay_cases import HEAP, case, world_of
from strategies import FRAMES_PER_NODE, PAGE, REGION, Page, build_snapshot, build_trace, small_machine

pytestmark = pytest.mark.twin

HOT = HEAP + 4 * REGION
IDLE = 0.003  # ms: three chunks
MATRIX = (
    (100.0, 200.0, 400.0, 300.0),
    (200.0, 100.0, 250.0, 300.0),
    (400.0, 250.0, 250.0, 400.0),
    (300.0, 300.0, 400.0, 250.0),
)


def tiered(cpu_nodes, slow=1):
    """A machine whose last `slow` nodes have no CPUs."""
    nodes = cpu_nodes + slow
    return msgspec.structs.replace(small_machine(nodes), memory_nodes=tuple(range(cpu_nodes, nodes)))


def world(pages, threads, cpu_nodes, moves, also=(), rounds=3, first=0):
    """Thread 0 touches `pages` of 4 KiB from HEAP on and then nobody does, but thread t those in also[t];
    all threads touch HOT, a chunk each, again and again. Thread t runs on CPU t, on node t % cpu_nodes."""
    cold = [HEAP + (first + k) * PAGE for k in range(pages)]
    snapshot = build_snapshot(
        [(va, k) for k, va in enumerate(cold)] + [(HOT, 1 << 10)],
        nodes=cpu_nodes,
        vmas=[(HEAP, HOT + REGION, "h")],
    )
    chunks = [(0, [*cold, HOT])] + [(thread, [HEAP + k * PAGE for k in ks]) for thread, ks in also]
    chunks += [(k % threads, [HOT]) for k in range(rounds * 6)]
    return placed(case(snapshot, build_trace(chunks, threads=threads), machine=tiered(cpu_nodes)), moves)


def placed(one, moves):
    machine, threads = one.machine, len(one.trace.threads)
    node = (np.arange(threads) % len(machine.cpu_nodes)).astype(np.int16)
    cpu = [one.trace.chunks["thread"].astype(np.int32), one.trace.events["thread"].astype(np.int32)]
    found = world_of(one._replace(placement=Placement(cpu[0], node, cpu[1], "by thread")))
    vars(found)["moves"] = moves
    return found


def counts(world, policy, params=None):
    """int64[kinds, from, to] of demotion."""
    run = start(plan_for(policy, params), world)
    replay_walks([run], world, world.reads())
    return run.counters.events[DEMOTION]


@pytest.mark.parametrize("batch", [1, 32, 512])
@pytest.mark.parametrize(("pages", "threads", "cpu_nodes"), [(1, 2, 2), (100, 6, 2), (64, 6, 3)])
def test_a_page_is_written_twice_in_every_copy_and_a_batch_interrupts_every_cpu(
    pages, threads, cpu_nodes, batch
):
    asked = world(pages, threads, cpu_nodes, Moves(demote_idle_ms=IDLE, demote_batch=batch))
    batches = -(-pages // batch)
    linux, mitosis, hydra = (counts(asked, name) for name in ("linux", "mitosis", "hydra"))
    for found in (linux, mitosis, hydra):
        assert found[PTE_WRITE].sum() == 2 * pages
        assert found[IPI].sum() + found[IPI_SAVED].sum() == batches * threads
        assert found[:, 1:].sum() == 0, "kswapd of the node that has the pages does it"
    assert linux[PTE_FANOUT].sum() == 0 == linux[IPI_SAVED].sum() == mitosis[IPI_SAVED].sum()
    assert mitosis[PTE_FANOUT].sum() == 2 * pages * (cpu_nodes - 1), "no replica on the slow node"
    assert hydra[PTE_FANOUT].sum() == 0, "nobody else has used the pages: one node has their table"
    assert hydra[IPI].sum() == batches * threads // cpu_nodes == hydra[IPI, 0, 0]


def test_under_hydra_a_node_that_used_one_page_gets_the_writes_and_interrupts_of_its_leaf_table():
    moves = Moves(demote_idle_ms=IDLE)
    found = counts(world(100, 6, 3, moves, also=[(1, [7])]), "hydra", {"prefetch": 0})
    assert found[PTE_FANOUT, 0].tolist() == [0, 2 * 100, 0, 0]
    assert found[IPI, 0].tolist() == [4 * 2, 4 * 2, 0, 0] and found[IPI_SAVED, 0].tolist() == [0, 0, 4 * 2, 0]


def test_the_paper_s_hydra_spares_nobody_where_a_batch_spans_leaf_tables():
    """Its kernel filters other ranges than munmap's within one leaf table only (tlbflush = munmap-all)."""
    asked = world(32, 6, 3, Moves(demote_idle_ms=IDLE), first=496)
    assert counts(asked, "hydra")[IPI_SAVED].sum() == 0
    assert counts(asked, "hydra", {"tlbflush": "all"})[IPI_SAVED].sum() == 4


def test_what_a_walk_uses_between_two_looks_stays():
    asked = world(8, 2, 2, Moves(demote_idle_ms=IDLE), also=[(1, [])] * 4 + [(1, [3])])
    steps = asked.history.steps
    demoted = steps.lo[steps.kind == DATA].tolist()
    assert 3 in demoted and demoted.index(3) == 7, "one interval later than the others"
    assert len(set(steps.at[steps.kind == DATA].tolist())) == 2
    at_first = Moves(demote_idle_ms=100.0)
    assert not len(world(8, 2, 2, at_first).history.steps.at), "the trace is over before anything is idle"


def test_pages_go_to_the_nearest_slow_node_and_walks_find_them_there():
    machine = msgspec.structs.replace(
        tiered(2, slow=2),
        latency=Latency(idle=MATRIX),
    )
    regions = [HEAP, HEAP + REGION]
    snapshot = build_snapshot(
        [(regions[0], 1), (regions[1], FRAMES_PER_NODE), (HOT, 9)], vmas=[(HEAP, HOT + REGION, "h")]
    )
    chunks = [(0, [*regions, HOT])] + [(k % 2, [HOT]) for k in range(9)] + [(0, regions)]
    asked = placed(case(snapshot, build_trace(chunks), machine=machine), Moves(demote_idle_ms=IDLE))
    assert demotion(asked).target.tolist() == [3, 2, -1, -1]
    run = start(plan_for("linux"), asked)
    replay_walks([run], asked, asked.reads(), windows=1)
    assert run.series.data_moved.tolist() == [2]
    assert run.series.data[0, 0].tolist() == [6 + 1, 1, 1, 1], "at first where they were, at last slow"


def test_a_huge_page_ends_its_batch_and_is_shot_down_alone():
    next_one = HEAP + (1 << 30)  # each table of a higher level comes before those that it points to
    pages = [Page(HEAP, 0), Page(HEAP + PAGE, 1), Page(next_one, 512, 2), Page(next_one + REGION, 1024)]
    snapshot = build_snapshot([*pages, Page(HOT, 2000)], vmas=[(HEAP, next_one + 2 * REGION, "h")])
    chunks = [(0, [*(page.va for page in pages), HOT])] + [(k % 2, [HOT]) for k in range(9)]
    asked = placed(
        case(snapshot, build_trace(chunks), machine=tiered(2)),
        Moves(demote_idle_ms=IDLE, demote_batch=512),
    )
    kind = asked.history.steps.kind.tolist()
    small = [HINT, DATA]
    assert kind == [*small, *small, FLUSH, *small, FLUSH, *small, FLUSH]
    assert counts(asked, "linux")[IPI].sum() == 3 * 2


def test_balancing_brings_back_what_is_walked_to_again():
    moves = Moves(demote_idle_ms=IDLE, autonuma=True, delay_ms=0.01, scan_period_ms=0.004)
    cold = [HEAP + k * PAGE for k in range(4)]
    snapshot = build_snapshot(
        [(va, k) for k, va in enumerate(cold)] + [(HOT, 9)], vmas=[(HEAP, HOT + REGION, "h")]
    )
    chunks = [(0, [*cold, HOT])] + [(k % 2, [HOT]) for k in range(12)] + [(0, cold)]
    asked = placed(case(snapshot, build_trace(chunks), machine=tiered(2)), moves)
    steps = asked.history.steps
    there, back = (
        (steps.kind == DATA) & (steps.call == call) & (steps.row == 0) for call in (DEMOTION, BALANCING)
    )
    assert set(node_now(steps, there).tolist()) == {2} and set(node_now(steps, back).tolist()) == {0}
    assert steps.lo[there].tolist() == steps.lo[back].tolist() == [0, 1, 2, 3]


def test_the_note_says_how_much_was_demoted():
    asked = world(100, 6, 3, Moves(demote_idle_ms=IDLE))
    (note,) = demotion_notes(asked, asked.history)
    assert note.startswith("demotion: 100 pages that no walk used for 3e-06 s") and "4 shootdowns" in note


def refused(one, moves):
    with pytest.raises(UsageError) as error:
        placed(one, moves).history  # noqa: B018
    return str(error.value)


def test_a_time_that_is_no_number_is_refused_in_one_line():
    with pytest.raises(UsageError, match="demote-idle = 5s: write seconds as a number, such as 5"):
        Setup.of(demote_idle="5s")


def test_what_cannot_be_demoted_is_refused_with_the_way_out():
    moves = Moves(demote_idle_ms=1.0)
    chunks = [(0, [HEAP]), (1, [HEAP])]
    native, vm = (build_snapshot([(HEAP, 1)], host) for host in (None, []))
    flat = small_machine(2)
    assert "memory_nodes = [2]" in refused(case(native, build_trace(chunks), machine=flat), moves)
    assert "native captures" in refused(case(vm, build_trace(chunks), machine=tiered(2)), moves)
    timeless = build_trace(chunks)
    timeless.chunks["time"] = 0
    assert "no times" in refused(case(native, timeless, machine=tiered(2)), moves)


def test_a_run_is_only_interrupted_and_its_batches_are_priced_beside_it():
    """Two CPUs of one node, four batches: what kswapd writes takes none of the program's time."""
    count, costs = counters(3), load_costs(None, "server-2020")
    count.events[DEMOTION, PTE_WRITE, 0, 0], count.events[DEMOTION, IPI, 0, 0] = 200, 8
    calls, busy = (
        made_of(4),
        200 * costs.entry.rewrite.first + 8 * costs.ipi_local_ns + 4 * costs.ipi_first_ns,
    )
    machine = tiered(2)
    assert management_cycles(count, machine, costs, calls) == pytest.approx(
        8 * costs.ipi_handler_ns * machine.ghz
    )
    (cost,) = call_costs(count, machine, costs, calls)
    assert (cost.call, cost.calls, cost.entries, cost.ipis_local) == ("demotion", 4, 200, 8)
    assert cost.ns == pytest.approx(busy / 4) and cost.stolen_ns == 2 * costs.ipi_handler_ns


def made_of(batches):
    """SystemCalls of demotion on node 0."""
    found = SystemCalls(*(np.zeros((len(CALLS), 3), np.int64) for _ in range(3)))
    for table in found:
        table[DEMOTION, 0] = batches
    return found


def test_batches_are_counted_beside_system_calls():
    asked = world(100, 6, 3, Moves(demote_idle_ms=IDLE))
    run = start(plan_for("linux"), asked)
    mapped = replay_walks([run], asked, asked.reads())
    found = system_calls(asked, mapped)
    assert all(table[DEMOTION].tolist() == [4, 0, 0, 0] and table.sum() == 4 for table in found)


def test_where_nothing_is_idle_for_so_long_the_table_of_calls_is_empty_with_its_columns():
    snapshot = build_snapshot([(HEAP, 1)], vmas=[(HEAP, HEAP + PAGE, "h")])
    setup = Setup.of(machine=tiered(2), costs="server-2020", demote_idle=1.0)
    results = replay_snapshot(snapshot, build_trace([(0, [HEAP]), (1, [HEAP])]), [], setup)
    table = calls_frame(results)
    assert {"policy", "call", "ns"} <= set(table.columns) and not len(table)
    assert any(note.startswith("demotion: 0 pages") for note in results[0].notes)
