"""vMitosis, Figure 6: the figures of a curve, of curves drawn by hand, of the paper's and of ours."""

import numpy as np
import pytest

from ptanalyze.cli import run
from ptanalyze.core.errors import UsageError
from ptanalyze.show import plots
from ptanalyze.validate import vmitosis_moved
from ptanalyze.validate.bench import bench
from ptanalyze.validate.row import DEFINITION, MODELLED, predictions
from ptanalyze.validate.vmitosis_moved import Curve, moved, published

DROP, LOW, END = 40.0, 30.0, 90.0


def drawn(dip=True, jump=300.0, last=1000.0):
    """100 before, DROP after the move at 100 s, LOW from 200 to 250 s, END from `jump` s on."""
    ends = np.arange(5.0, 100 + last, 5.0)
    since = ends - 100
    speed = np.where(since <= 0, 100.0, np.where(since <= jump, DROP, END))
    if dip:
        speed[(since > 200) & (since <= 250)] = LOW
    return Curve.of(ends, 7e5 * speed, 100.0)


def test_the_figures_of_a_curve_of_steps_are_its_steps():
    found = moved(drawn())
    assert found.drop == pytest.approx(DROP) and found.end == pytest.approx(END)
    assert found.dip == pytest.approx(100 * (1 - LOW / DROP))
    assert found.recover == pytest.approx(300, abs=5)


def test_a_curve_without_a_second_dip_has_none_and_one_that_stays_down_has_recovered_at_once():
    assert moved(drawn(dip=False)).dip == 0
    flat = moved(drawn(dip=False, jump=np.inf))
    assert flat.end == pytest.approx(DROP) and flat.recover == pytest.approx(70, abs=5)


def test_a_single_low_sample_is_no_dip():
    curve = drawn(dip=False)
    curve.share[60] = 0.01
    assert moved(curve).dip == 0


def test_a_slow_first_sample_before_the_move_does_not_count():
    ends = np.arange(5.0, 1000, 5.0)
    speed = np.where(ends <= 5, 1.0, 5.0)
    assert Curve.of(ends, speed, 10.0).share[5] == 1


def test_published_ends_are_those_of_the_text_and_of_the_rows_that_were_taken_from_the_artifact():
    for variant, name in (("RRI", "artifact-RRI"), ("RRIG", "artifact-RRIG"), ("RRIM", "artifact-RRIM")):
        assert moved(published(variant)).end == pytest.approx(vmitosis_moved.PAPER[name].value, abs=0.1)
    assert moved(published("RRI")).end == pytest.approx(50, abs=3)


def test_every_published_curve_drops_dips_and_recovers():
    for variant in vmitosis_moved.CURVES:
        found = moved(published(variant))
        assert 30 < found.drop < 45 and found.dip > 15 and 300 < found.recover < 500


@pytest.fixture(scope="module")
def rows():
    with bench() as workshop:
        return {one.figure.name: one for one in vmitosis_moved.figure_6_modelled(workshop)}


def test_quick_runs_leave_the_curves_out():
    with bench(quick=True) as workshop:
        assert not list(vmitosis_moved.figure_6_modelled(workshop))


def test_four_curves_have_four_rows_each_and_what_is_local_in_the_end_is_no_evidence(rows):
    curves = [one for name, one in rows.items() if name.startswith("moved-")]
    assert len(curves) == 16
    assert {name for name, one in rows.items() if one.kind == DEFINITION} == {
        "restored-both", "oblivious-restored", "moved-RRIM-end", "moved-O-IR-end",
    }  # fmt: skip
    assert all(one.kind in (MODELLED, DEFINITION) and one.note for one in rows.values())


def test_one_prediction_beside_several_figures_counts_once(rows):
    drops = [rows[f"moved-{name}-drop"] for name in ("RRI", "RRIG", "RRIM")]
    assert len({one.ours for one in drops}) == 1
    (judged,) = predictions(drops)
    assert abs(judged.error) == max(abs(one.error) for one in drops)


def test_the_note_names_the_paces_of_the_interval():
    middle, fastest, slowest = vmitosis_moved.PACES
    for pace in (fastest, slowest):
        said = f"{pace.learning:.0f} s, then every {pace.period / 1000:.3g} s"
        assert said in vmitosis_moved.NOTE
    assert (
        f"every {middle.period / 1000:.2g} s, after a pass of {middle.learning:.0f} s" in vmitosis_moved.NOTE
    )


def test_drops_and_ends_are_near_the_second_dip_is_in_its_interval_and_recovery_is_too_soon(rows):
    """What the model holds and what it does not: the row that says so must not turn into praise unseen."""
    for variant in vmitosis_moved.CURVES:
        of = {name: rows[f"moved-{variant}-{name}"] for name in vmitosis_moved.QUANTITIES}
        assert abs(of["drop"].error) < 0.13
        assert of["end"].kind == DEFINITION or abs(of["end"].error) < 0.10
        assert -0.5 < of["recover"].error < -0.1, "always too soon"
        guest = vmitosis_moved.VARIANTS[variant].guest == "visible"
        dip = of["dip"]
        assert (dip.ours.low > 6) == guest, "each page that a guest moves interrupts, with a VM exit each"
        held = dip.ours.low <= dip.figure.value <= dip.ours.high
        assert held == guest, "the hypervisor's gPT follows too soon to show a dip"


def test_the_faster_pages_move_the_deeper_and_the_earlier_the_dip(rows):
    for variant in vmitosis_moved.CURVES[:3]:
        middle, *_, fastest, slowest = map(moved, vmitosis_moved.predicted()[variant])
        assert fastest.dip > middle.dip > slowest.dip
        assert fastest.recover < middle.recover < slowest.recover


def test_the_command_draws_published_and_predicted_curves(rows, tmp_path, capfd):
    """Here, where they are made already: each process that asks for them makes them anew."""
    path = tmp_path / "curves.svg"
    asked = ["validate", "--paper", "vmitosis", "--row", "Table 4", "--plot-kind", "throughput", "--plot"]
    assert run([*asked, str(path)]) == 0 and f"wrote {path}" in capfd.readouterr().err
    drawn = path.read_text()
    assert all(name in drawn for name in ("published", "predicted", "RRI:", "RRIG:", "RRIM:", "O-IR:"))


def test_the_plot_draws_every_line_that_the_artifact_has_and_no_other(rows):
    table = vmitosis_moved.samples()
    figure = plots.throughput(table)
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert [title.partition(":")[0] for title in titles] == list(vmitosis_moved.CURVES)
    for axis, name in zip(figure.axes, vmitosis_moved.CURVES, strict=True):
        paper, ours = (line.get_ydata() for line in axis.get_lines())
        assert np.allclose(paper, 100 * published(name).share)
        assert np.allclose(ours, 100 * vmitosis_moved.predicted()[name][0].share)
    with pytest.raises(UsageError, match="no line is both published and predicted"):
        plots.throughput(table[table["source"] == "published"])
