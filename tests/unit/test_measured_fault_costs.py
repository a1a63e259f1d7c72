"""The prices of faults and copied entries are those of the histories that their sources name."""

import pandas as pd
import pytest

from ptanalyze.core.errors import bundled
from ptanalyze.core.machine import load_costs

XEON, EPYC = (4, 2.2), (16, 2.8)  # nodes, GHz of the cycles counted


def histories(nodes):
    rows = pd.read_csv(bundled("models") / "reference" / "hydra-histories.csv")
    rows = rows[(rows.nodes == nodes) & (rows.remote_fault_cycles > 0)]
    return rows.assign(interleaved=rows.path.str.contains("history_ri"))


def costs_of(name):
    return load_costs(None, str(bundled("models") / "costs" / f"{name}.toml"))


def per_entry(rows, ghz, fixed):
    """ns per copied entry: what a fault takes beyond `fixed` ns, over the entries that it copies."""
    each = (rows.entries_copied / rows.events).median()
    return (rows.remote_fault_cycles.median() / ghz - fixed) / each


@pytest.mark.parametrize(
    "name, machine, count",
    [("server-2020", XEON, 18), ("hydra-haswell", XEON, 18), ("epyc-7543", EPYC, 66)],
)
def test_a_copied_entry_costs_what_is_left_of_a_replica_fault(name, machine, count):
    nodes, ghz = machine
    rows, costs = histories(nodes), costs_of(name)
    assert len(rows) == count and f"{count} histories" in costs.sources["pte_copy_ns"]
    assert costs.pte_copy_ns == pytest.approx(per_entry(rows, ghz, costs.replica_fault_ns), abs=0.1)
    ends = [per_entry(rows[rows.interleaved == yes], ghz, costs.replica_fault_ns) for yes in (False, True)]
    assert "Between {:.0f} ns (first touch) and {:.0f}".format(*ends) in costs.sources["pte_copy_ns"]


def test_the_histories_copy_whole_table_pages_so_they_tell_no_entry_from_a_fault():
    rows = pd.concat([histories(4), histories(16)])
    each = rows.entries_copied / rows.events
    assert each.between(510, 512).all() and set(rows.replication_order) == {9}


def test_machines_of_two_makers_and_generations_agree_on_the_entry():
    prices = [per_entry(histories(nodes), ghz, 600) for nodes, ghz in (XEON, EPYC)]
    assert max(prices) / min(prices) < 1.15


def test_a_local_fault_on_the_epyc_takes_as_long_as_in_its_histories():
    nodes, ghz = EPYC
    rows, costs = histories(nodes), costs_of("epyc-7543")
    measured = rows[~rows.interleaved].local_fault_cycles.median() / ghz
    assert costs.fault_ns + costs.entry.fill.first + costs.zero_ns == pytest.approx(measured, abs=0.1)


def test_most_entries_that_hydra_propagates_are_never_used():
    rows = pd.concat([histories(4), histories(16)])
    unused = 1 - rows.entries_ever_accessed / rows.entries_propagated
    assert unused.median() == pytest.approx(0.9, abs=0.02)
