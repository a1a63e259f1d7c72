"""PTEMagnet's rows: the modelled graph analysis against closed forms, and what is fitted is called so."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.capture.synth.process import START, new_group
from ptanalyze.validate import ptemagnet
from ptanalyze.validate.bench import bench
from ptanalyze.validate.row import FITTED, NOT_REPRODUCIBLE
from ptanalyze.validate.wide import PAGE, THREADS, corunner, streams, unused_bytes


@pytest.fixture(scope="module")
def workshop():
    with bench(quick=True) as made:
        yield made


@given(st.floats(1.9, 7.99))
def test_the_co_runner_is_the_one_whose_expected_fragmentation_is_asked_for(lines):
    assert 1 + 7 * new_group(corunner(lines)) == pytest.approx(lines, abs=1e-6)


@given(st.integers(1, 20))
def test_streams_read_neighbours_and_stay_in_the_dataset(run):
    pages, trace = 1 << 10, streams(1 << 10, 1, run).trace()
    (touches,) = trace.batches(1 << 20)
    page = (trace.regions[touches.page >> 9].astype(np.int64) << 9) + (touches.page & 511) - START // PAGE
    assert page.min() >= 0 and page.max() < pages
    for turn in page.reshape(8, -1):
        inside = np.arange(1, len(turn)) % run != 0
        assert ((np.diff(turn) % pages == 1) | ~inside).all()


def test_a_co_runner_scatters_as_asked_and_ptemagnet_gathers_all(workshop):
    rows = {row.figure.name: row for row in ptemagnet.section_3(workshop)}
    assert rows["scattered-alone"].error == pytest.approx(0, abs=0.01)
    assert rows["scattered-stress"].error == pytest.approx(0, abs=0.01)
    at_8 = corunner(6.8) ** 7  # a co-runner after each of the first seven pages
    assert rows["regions-at-8"].ours.middle == pytest.approx(100 * at_8, rel=0.2)  # of 1,024 lines
    assert ptemagnet.repaired(workshop) == 1.0


def test_what_was_chosen_to_meet_a_number_is_called_fitted(workshop):
    figures = (ptemagnet.section_3, ptemagnet.table_1, ptemagnet.table_4)
    fitted = {row.figure.name for figure in figures for row in figure(workshop) if row.kind == FITTED}
    chosen = {"scattered-alone", "scattered-stress", "host-over-guest", "time", "objdet-scattered"}
    assert fitted == chosen | {"objdet-time"}, "the run time comes from published walk cycles"


def test_scattering_costs_reads_of_the_ept_and_hardly_any_of_the_gpt(workshop):
    alone, stress = (ptemagnet.counts(workshop, lines) for lines in (2.8, 6.8))
    assert stress["walks"] == alone["walks"]
    assert stress["host_dram_reads"] > 1.5 * alone["host_dram_reads"]
    assert stress["guest_dram_reads"] < 1.2 * alone["guest_dram_reads"]
    assert stress["guest_reads_per_walk"] == alone["guest_reads_per_walk"]


def test_threads_that_fill_groups_in_turn_leave_at_most_seven_pages_each_unused(workshop):
    assert unused_bytes(workshop) == 7 * THREADS * PAGE


def test_time_follows_the_published_walk_cycles_and_their_exposure(workshop):
    assert ptemagnet.exposed() == pytest.approx(0.11 / 0.61)
    (time,) = (row for row in ptemagnet.table_4(workshop) if row.figure.name == "objdet-time")
    assert 1 - 0.17 * 0.11 / 0.61 > time.ours.middle > 1 - 0.17 * 0.11 / 0.61 * 1.5


def test_programs_without_counters_are_not_reproduced(workshop):
    rows = [*ptemagnet.figure_6(workshop), *ptemagnet.figure_7(workshop)]
    assert {row.kind for row in rows} == {NOT_REPRODUCIBLE}
    assert all(row.ours is None and row.error is None for row in rows)
