"""Where a trace's region of interest begins and ends, and that nothing after it is replayed or priced."""

import numpy as np
import pytest

from ptanalyze.analysis.replay import replay_world
from ptanalyze.analysis.setup import Setup
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import EVENT_DTYPE, Event
from ptanalyze.policies import plan_for
from ptanalyze.world.region_of_interest import region_of_interest
from replay_cases import HEAP, case, world_of
from strategies import PAGE, build_snapshot, build_trace, small_machine

COSTS = load_costs(load_machine("vmitosis-cascade-lake"))
BEGIN, END, CALL = Event.ROI_START, Event.ROI_END, Event.MUNMAP


def events_of(*kinds):
    events = np.zeros(len(kinds), EVENT_DTYPE)
    events["kind"] = kinds
    return events


@pytest.mark.parametrize(
    ("kinds", "begin", "end", "said"),
    [
        ((), None, 0, ""),
        ((CALL, CALL), None, 2, ""),
        ((CALL, BEGIN, CALL, END, CALL), 1, 3, ""),
        ((BEGIN, END, CALL, BEGIN, END, CALL), 0, 4, ""),
        ((CALL, BEGIN, CALL), 1, 3, "never ends"),
        ((BEGIN, END, BEGIN, CALL), 0, 4, "never ends"),
        ((END, CALL, BEGIN, CALL), 2, 4, "ends before it begins"),
        ((CALL, END, CALL), None, 1, "never begins"),
    ],
)
def test_the_region_is_from_its_first_start_to_its_last_end(kinds, begin, end, said):
    region = region_of_interest(events_of(*kinds))
    assert (region.begin, region.end) == (begin, end)
    assert len(region.notes) == bool(said) and said in "".join(region.notes)


def results(*events):
    """Of one thread that touches two mapped pages within its region, and of another on another node."""
    snapshot = build_snapshot([(HEAP + k * PAGE, 1000 + k) for k in range(2)], nodes=2)
    chunks = [(0, [HEAP, HEAP + PAGE]), (1, [HEAP])]
    world = world_of(case(snapshot, build_trace(chunks, [(0, 0, BEGIN, (), 0), *events], 2), 2))
    plans = [plan_for(name) for name in ("linux", "mitosis", "hydra")]
    return replay_world(world, plans, Setup.of(machine=small_machine(2), costs=COSTS))


def test_teardown_after_the_region_changes_no_count_and_no_price():
    end, teardown = (2, 0, END, (), 0), (2, 0, CALL, (HEAP, 2 * PAGE), 0)
    without, after, inside = results(end), results(end, teardown), results(teardown, end)
    for quiet, torn, priced in zip(without, after, inside, strict=True):
        assert (quiet.calls == torn.calls).all()
        assert quiet.price == torn.price and quiet.table_pages == torn.table_pages
        assert torn.price.system_calls == ()
        assert [call.call for call in priced.price.system_calls] == ["munmap"]
        assert priced.price.management_cycles > torn.price.management_cycles


def test_a_region_that_never_ends_is_said_to():
    assert any("never ends" in note for note in results()[0].notes)
    assert not any("never ends" in note for note in results((2, 0, END, (), 0))[0].notes)
