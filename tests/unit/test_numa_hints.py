"""Marking pages for NUMA hints rewrites entries: in every replica, by a VM exit each under shadow paging."""

import numpy as np
import pytest

from ptanalyze.analysis.replay import replay_walks, start
from ptanalyze.core.machine import load_costs
from ptanalyze.cost.price import busy_ns
from ptanalyze.kernels.replay import IPI, PTE_FANOUT, PTE_WRITE, VM_EXIT
from ptanalyze.kernels.steps import BALANCING, DATA, FLUSH, HINT
from ptanalyze.policies import plan_for
from ptanalyze.world.data_migration import moves_notes
from ptanalyze.world.moves import Moves
from replay_cases import HEAP, case, world_of
from strategies import PAGE, build_snapshot, build_trace

PAGES, NODES = 8, 2
ONCE = Moves(autonuma=True, delay_ms=0.002, scan_period_ms=1.0)  # in the third chunk, then no more


def balanced(policy, moves=ONCE, thread=0, passes=5, native=True):
    """(World, Counters): a thread of node `thread` goes through 8 pages on node 0, again and again."""
    vas = [HEAP + k * PAGE for k in range(PAGES)]
    entries = [(va, 1 + k) for k, va in enumerate(vas)]
    vmas = [(HEAP, HEAP + PAGES * PAGE, "h")]
    snapshot = build_snapshot(entries, vmas=vmas) if native else build_snapshot(entries, [], vmas=vmas)
    world = world_of(case(snapshot, build_trace([(thread, vas)] * passes), NODES))
    vars(world)["moves"] = moves
    plan = plan_for(policy)
    shaped = plan.reshape(world)
    run = start(plan, shaped)
    replay_walks([run], shaped, shaped.reads())
    return shaped, run.counters


def of(counters, kind):
    return int(counters.events[BALANCING, kind].sum())


def test_a_page_that_stays_is_marked_and_restored():
    world, count = balanced("linux")
    steps = world.history.steps
    assert np.count_nonzero(steps.kind == HINT) == 2 * PAGES and not (steps.kind == DATA).any()
    assert (of(count, PTE_WRITE), of(count, PTE_FANOUT)) == (2 * PAGES, 0)


def test_a_mark_goes_to_every_replica():
    _, count = balanced("mitosis")
    assert (of(count, PTE_WRITE), of(count, PTE_FANOUT)) == (2 * PAGES, 2 * PAGES * (NODES - 1))


def test_what_is_marked_already_is_not_marked_again():
    every = Moves(autonuma=True, delay_ms=0.002, scan_period_ms=0.000_2, scan_size_mb=1)
    vas = [HEAP + k * PAGE for k in range(PAGES)]
    snapshot = build_snapshot(
        [(va, 1 + k) for k, va in enumerate(vas)], vmas=[(HEAP, HEAP + PAGES * PAGE, "h")]
    )
    world = world_of(case(snapshot, build_trace([(0, vas)] + [(0, [HEAP] * 40)] * 5), NODES))
    vars(world)["moves"] = every
    steps = world.history.steps
    counts = np.bincount(steps.lo[steps.kind == HINT], minlength=PAGES)
    assert counts[1:].tolist() == [1] * (PAGES - 1), "pages that nobody walks to stay marked"
    assert counts[0] > 2


def test_a_page_that_moves_is_written_once_more():
    world, count = balanced("linux", thread=1)
    kind = world.history.steps.kind
    assert (np.count_nonzero(kind == HINT), np.count_nonzero(kind == DATA)) == (PAGES, PAGES)
    assert of(count, PTE_WRITE) == 2 * PAGES


def test_a_page_that_moves_is_shot_down_alone_and_marks_together():
    """Linux: change_prot_numa flushes a scan's range, ptep_clear_flush in try_to_unmap_one each page."""
    world, _ = balanced("linux", thread=1)
    steps, shootdowns = world.history.steps, world.history.shootdowns
    flushes = steps.kind == FLUSH
    before = steps.kind[np.flatnonzero(flushes) - 1].tolist()
    assert before == [HINT] + [DATA] * PAGES
    assert shootdowns.single[-PAGES - 1 :].tolist() == [False] + [True] * PAGES
    stay, _ = balanced("linux")
    assert np.count_nonzero(stay.history.steps.kind == FLUSH) == 1


def test_each_page_that_moves_interrupts_who_else_runs():
    vas = [HEAP + k * PAGE for k in range(PAGES)]
    snapshot = build_snapshot(
        [(va, 1 + k) for k, va in enumerate(vas)], vmas=[(HEAP, HEAP + PAGES * PAGE, "h")]
    )
    threads = [(0, vas[:1]), (1, vas), (1, vas), (1, vas), (1, vas), (0, vas[:1])]
    world = world_of(case(snapshot, build_trace(threads), NODES))
    vars(world)["moves"] = ONCE
    run = start(plan_for("linux"), world)
    replay_walks([run], world, world.reads())
    assert of(run.counters, IPI) == 1 + np.count_nonzero(world.history.steps.kind == DATA) == 1 + PAGES


def test_without_balancing_nothing_is_marked():
    world, count = balanced("mitosis", Moves())
    assert not (world.history.steps.kind == HINT).any() and of(count, PTE_WRITE) == 0


def test_under_shadow_paging_every_mark_and_every_restored_entry_is_an_exit():
    _, count = balanced("shadow", native=False)
    assert of(count, VM_EXIT) == 2 * PAGES


def test_a_hypervisor_s_marks_are_not_counted_and_the_note_says_so():
    by_host = Moves(autonuma=True, delay_ms=0.002, scan_period_ms=1.0, by="host")
    world, count = balanced("linux", by_host, native=False)
    assert not (world.history.steps.kind == HINT).any() and of(count, PTE_WRITE) == 0
    assert "its marks cost nothing" in moves_notes(world)[0]
    assert "a mark rewrites an entry in every copy" in moves_notes(balanced("linux")[0])[0]


def test_marks_have_the_price_of_a_rewritten_entry_and_their_shootdowns():
    costs = load_costs(None, "server-2020")
    (world, linux), (_, mitosis) = balanced("linux"), balanced("mitosis")
    ns = [busy_ns(count, world.machine, costs)[BALANCING] for count in (linux, mitosis)]
    assert of(linux, IPI) == 0, "nobody else runs"
    assert ns[0] == pytest.approx(2 * PAGES * costs.entry.rewrite.first)
    copies = 2 * PAGES * (NODES - 1) * (costs.entry.rewrite.copy + costs.copies_ns)
    assert ns[1] - ns[0] == pytest.approx(copies)
