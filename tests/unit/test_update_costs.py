"""What system calls cost, in closed forms: every constant of machine.Costs, once, where it belongs."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.core.machine import Latency, load_costs, load_machine
from ptanalyze.cost import price as cost
from ptanalyze.cost.result import SystemCalls
from ptanalyze.kernels.replay import EVENT_KINDS, counters
from ptanalyze.kernels.steps import CALLS
from strategies import small_machine

pytestmark = pytest.mark.twin

COSTS = load_costs(load_machine("vmitosis-cascade-lake"))
SMALL = small_machine(2)  # 2 GHz


def counted(call="walk", host=False, **kinds):
    count = counters(2)
    for kind, cell in kinds.items():
        events = count.host_events if host else count.events
        events[CALLS.index(call), EVENT_KINDS.index(kind)] = cell
    return count


def made(call, calls, flushes=0, shootdowns=0, nodes=2):
    """SystemCalls of one kind, all from node 0."""
    found = SystemCalls(*(np.zeros((len(CALLS), nodes), np.int64) for _ in range(3)))
    for table, n in zip(found, (calls, flushes, shootdowns), strict=True):
        table[CALLS.index(call), 0] = n
    return found


def busy(count, made=None, call=None, machine=SMALL, costs=COSTS):
    ns = cost.busy_ns(count, machine, costs, made)
    return ns.sum() if call is None else ns[CALLS.index(call)]


LOCAL, REMOTE = np.array([[1, 0], [0, 0]]), np.array([[0, 1], [0, 0]])


def test_nothing_happened_costs_nothing():
    count = counters(2)
    assert cost.management_cycles(count, SMALL, COSTS, made("mmap", 0)) == 0
    assert cost.call_costs(count, SMALL, COSTS, made("mmap", 0)) == ()


def test_a_call_that_changes_nothing_costs_itself():
    for call in ("mmap", "munmap", "mprotect", "mremap", "madvise", "brk"):
        found = busy(counters(2), made(call, 3), call)
        assert found == 3 * getattr(COSTS.call, call)


@pytest.mark.parametrize(
    ("call", "what"),
    [("mprotect", "rewrite"), ("mremap", "rewrite"), ("numa_balancing", "rewrite"),
     ("munmap", "clear"), ("mmap", "clear"), ("madvise", "clear"), ("brk", "clear")],
)  # fmt: skip
def test_an_entry_costs_what_the_call_does_to_it_and_more_on_another_socket(call, what):
    """mprotect stores twice what it changes, which its measured price includes."""
    entry, stores = getattr(COSTS.entry, what), 2 if call == "mprotect" else 1
    assert busy(counted(call, pte_writes=stores * LOCAL)) == entry.first
    assert busy(counted(call, pte_writes=stores * REMOTE)) == entry.first + COSTS.remote_entry_ns
    assert busy(counted(call, pte_fanout=stores * REMOTE)) == pytest.approx(entry.copy + COSTS.copies_ns)


def test_a_fault_costs_itself_and_the_filling_of_its_entry_in_every_copy():
    entry, fault = COSTS.entry.fill, {"faults": LOCAL, "pages_zeroed": LOCAL}
    one = counted(**fault, pte_writes=LOCAL)
    assert busy(one) == COSTS.fault_ns + COSTS.zero_ns + entry.first
    replicated = counted(**fault, pte_writes=LOCAL, pte_fanout=REMOTE)
    assert busy(replicated) == pytest.approx(busy(one) + entry.copy + COSTS.copies_ns)
    relinked = counted(**fault, pte_writes=2 * LOCAL)
    assert busy(relinked) == pytest.approx(busy(one) + COSTS.entry.rewrite.first)


def test_a_further_copy_is_begun_once_a_call_however_many_entries_it_gets():
    fanned = counted("mprotect", pte_fanout=2 * 100 * REMOTE)
    copy = 100 * COSTS.entry.rewrite.copy
    base = 4 * COSTS.call.mprotect
    assert busy(fanned, made("mprotect", 4, flushes=3)) == pytest.approx(base + copy + 3 * COSTS.copies_ns)
    assert busy(fanned, made("mprotect", 4, flushes=200)) == pytest.approx(
        base + copy + 100 * COSTS.copies_ns
    )


def test_a_shootdown_costs_its_initiator_once_and_by_cpu_and_every_interrupted_cpu_its_handler():
    both = counted("munmap", ipis=np.array([[5, 7], [0, 0]]))
    by_cpu = 5 * COSTS.ipi_local_ns + 7 * COSTS.ipi_remote_ns
    asked = made("munmap", 3, flushes=3, shootdowns=2)
    assert busy(both, asked) == pytest.approx(3 * COSTS.call.munmap + by_cpu + 2 * COSTS.ipi_first_ns)
    assert cost.stolen_ns(both, COSTS).sum() == 12 * COSTS.ipi_handler_ns
    (found,) = cost.call_costs(both, SMALL, COSTS, asked)
    assert (found.ipis_local, found.ipis_remote) == (5, 7)
    assert found.stolen_ns == 4 * COSTS.ipi_handler_ns


def test_management_cycles_are_what_callers_wait_and_what_others_lose():
    count = counted("munmap", ipis=LOCAL, pte_writes=LOCAL)
    asked = made("munmap", 1, 1, 1)
    ns = busy(count, asked) + COSTS.ipi_handler_ns
    assert cost.management_cycles(count, SMALL, COSTS, asked) == pytest.approx(2 * ns)


def test_saved_ipis_cost_nothing():
    assert cost.management_cycles(counted(ipis_saved=np.full((2, 2), 9)), SMALL, COSTS) == 0


@pytest.mark.parametrize(
    ("kind", "field"),
    [("replica_faults", "replica_fault_ns"), ("pte_copies", "pte_copy_ns"),
     ("tables_new", "table_ns"), ("tables_freed", "table_ns"), ("tables_moved", "table_move_ns"),
     ("vm_exits", "vm_exit_ns"), ("pages_zeroed", "zero_ns")],
)  # fmt: skip
def test_every_other_event_costs_its_constant(kind, field):
    assert busy(counted(**{kind: REMOTE})) == getattr(COSTS, field)


def test_an_entry_of_the_host_costs_a_vm_exit_and_its_further_copies_do_not():
    write = busy(counted("move_pages", host=True, pte_writes=REMOTE))
    assert write == COSTS.vm_exit_ns + COSTS.entry.rewrite.first
    assert busy(counted(host=True, replica_faults=REMOTE)) == COSTS.vm_exit_ns
    assert busy(counted(host=True, pte_fanout=REMOTE)) == COSTS.entry.rewrite.copy


def test_nodes_with_one_memory_are_one_socket():
    pairs = tuple(tuple(100.0 if a // 2 == b // 2 else 200.0 for b in range(4)) for a in range(4))
    halves = msgspec.structs.replace(small_machine(4), latency=Latency(idle=pairs))
    same = [[a // 2 == b // 2 for b in range(4)] for a in range(4)]
    assert cost.same_socket(halves).tolist() == same
    assert cost.same_socket(small_machine(4)).tolist() == np.eye(4, dtype=bool).tolist()


NODE = st.integers(0, 1)
ONE_MORE = st.tuples(st.integers(0, len(CALLS) - 1), st.integers(0, len(EVENT_KINDS) - 1), NODE, NODE)


@given(st.lists(ONE_MORE, max_size=20), ONE_MORE, st.integers(0, 9), st.integers(0, 9))
def test_whatever_happens_more_never_costs_less(before, more, flushes, shootdowns):
    count, asked = counters(2), made("munmap", 9, flushes, shootdowns)
    for cell in before:
        count.events[cell] += 1
    was = cost.management_cycles(count, SMALL, COSTS, asked)
    count.events[more] += 1
    assert cost.management_cycles(count, SMALL, COSTS, asked) >= was - 1e-6
