"""How many system calls a trace made, who had TLBs to flush, and what is said about it."""

import os
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings

from ptanalyze.analysis.frames import calls_frame
from ptanalyze.analysis.replay import replay_walks, start, system_calls
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot, replay_world
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import Event
from ptanalyze.kernels.replay import IPI, IPI_SAVED, PTE_WRITE
from ptanalyze.kernels.steps import CALLS
from ptanalyze.policies import plan_for
from ptanalyze.show.terminal import print_view
from ptanalyze.show.whatif import view
from replay_cases import HEAP, case, cases, world_of
from strategies import PAGE, build_snapshot, build_trace

pytestmark = pytest.mark.twin

EXAMPLES = 10 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 40
MACHINE = load_machine("vmitosis-cascade-lake")
COSTS = load_costs(MACHINE)
NAMES = ("linux", "mitosis", "hydra")


def made_and_run(world, name):
    done = start(plan_for(name), world)
    return system_calls(world, replay_walks([done], world, world.reads())), done.counters.events


def cells(table):
    """{(call, node): count} of what is there."""
    return {(CALLS[c], int(n)): int(table[c, n]) for c, n in np.argwhere(table)}


def by_hand(case):
    """{(call, node): count}, event by event."""
    found, rows = Counter(), list(zip(case.trace.events, case.placement.event_cpu, strict=True))
    begins, ends = (
        [k for k, (event, _) in enumerate(rows) if event["kind"] == kind]
        for kind in (Event.ROI_START, Event.ROI_END)
    )
    last = ends[-1] if ends and ends[-1] > max(begins, default=-1) else len(rows)
    for event, cpu in rows[begins[0] if begins else 0 : last]:
        name = Event(event["kind"]).name.lower()
        if name in ("mmap", "munmap", "mprotect", "mremap", "madvise", "brk") and event["result"] >= 0:
            found[name, int(case.placement.cpu_node[cpu])] += 1
    return dict(found)


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=True))
def test_calls_are_those_that_succeeded_and_only_what_changes_flushes(case):
    world = world_of(case)
    made, events = made_and_run(world, "linux")
    assert cells(made.calls) == by_hand(case)
    written, interrupted = events[:, PTE_WRITE].sum(axis=2), events[:, IPI].sum(axis=2)
    assert (made.flushes[1:] <= written[1:]).all()
    assert ((made.flushes[1:] > 0) == (written[1:] > 0)).all()
    assert (made.shootdowns <= made.flushes).all()
    assert ((made.shootdowns > 0) == (interrupted > 0)).all()
    assert (made.shootdowns <= interrupted).all()


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=True))
def test_hydra_interrupts_nobody_whom_linux_does_not(case):
    world = world_of(case)
    (linux_made, linux), (hydra_made, hydra) = (made_and_run(world, name) for name in ("linux", "hydra"))
    assert (hydra[:, IPI] <= linux[:, IPI]).all()
    assert (hydra[:, IPI] + hydra[:, IPI_SAVED] == linux[:, IPI]).all()
    assert all((a == b).all() for a, b in zip(linux_made, hydra_made, strict=True))


def unmapping(events):
    """Two threads on two nodes touch three pages of their own each; then the first one calls."""
    own = [HEAP + k * PAGE for k in range(3)], [HEAP + (1 << 39) + k * PAGE for k in range(3)]
    snapshot = build_snapshot([(va, 1000 + k) for k, va in enumerate(own[0] + own[1])], nodes=4)
    return world_of(case(snapshot, build_trace([(0, own[0]), (1, own[1])], events, 2), 4, machine=MACHINE))


def test_a_call_that_changes_nothing_or_failed_flushes_nothing():
    nowhere = HEAP + (1 << 41)
    world = unmapping(
        [
            (2, 0, Event.MUNMAP, (nowhere, PAGE), 0),
            (2, 0, Event.MUNMAP, (HEAP, PAGE), -22),
            (2, 0, Event.MUNMAP, (HEAP, 2 * PAGE), 0),
        ]
    )
    made, _ = made_and_run(world, "linux")
    assert cells(made.calls) == {("munmap", 0): 2}
    assert cells(made.flushes) == cells(made.shootdowns) == {("munmap", 0): 1}


def test_who_is_alone_interrupts_nobody():
    world = unmapping([(2, 1, Event.THREAD_EXIT, (), 0), (2, 0, Event.MUNMAP, (HEAP, PAGE), 0)])
    made, _ = made_and_run(world, "linux")
    assert (cells(made.flushes), cells(made.shootdowns)) == ({("munmap", 0): 1}, {})


def results_of(events):
    return replay_world(
        unmapping(events),
        [plan_for(name) for name in NAMES],
        Setup.of(machine=unmapping(events).machine, costs=COSTS),
    )


def test_each_result_says_what_its_calls_cost_beside_the_baselines():
    linux, mitosis, hydra = results_of([(2, 0, Event.MUNMAP, (HEAP, 3 * PAGE), 0)])
    (one,), (two,), (three,) = (r.price.system_calls for r in (linux, mitosis, hydra))
    assert (one.call, one.calls, one.entries, one.ipis_remote) == ("munmap", 1, 3, 1)
    assert one.slowdown == 1 and two.slowdown > 1 > three.slowdown
    assert (two.copies, three.ipis_remote, three.saved_remote) == (9, 0, 1)
    row, whole = mitosis.row(), mitosis.to_json()
    assert (row["system_calls"], row["system_call_ns"]) == (1, two.ns)
    assert row["system_call_stolen_ns"] == COSTS.ipi_handler_ns
    assert whole["system_calls_by_kind"] == [two._asdict()]


def test_the_terminal_says_what_calls_cost_only_where_there_are_some(capsys):
    found = results_of([(2, 0, Event.MPROTECT, (HEAP, PAGE, 1), 0)])
    print_view(view(found))
    shown = capsys.readouterr().out
    assert shown.count("System call mprotect") == 1
    [times] = [line.split() for line in shown.splitlines() if line.startswith("  ns per call")]
    assert len(times) == 3 + len(NAMES) == 3 + len(found)
    print_view(view(results_of([])))
    assert "System call" not in capsys.readouterr().out


def test_without_calls_the_table_of_calls_is_empty_with_its_columns():
    snapshot = build_snapshot([(HEAP, 1)], vmas=[(HEAP, HEAP + PAGE, "h")])
    setup = Setup.of(machine=MACHINE, costs="server-2020")
    table = calls_frame(replay_snapshot(snapshot, build_trace([(0, [HEAP]), (1, [HEAP])]), [], setup))
    assert {"policy", "call", "ns"} <= set(table.columns) and not len(table)
