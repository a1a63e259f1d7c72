"""`--plot FILE` and its kinds, and every plot of the bundled captures as a reader finds it."""

import shutil

import pandas as pd
import pytest

import ptanalyze
from one_line import is_one_line
from plot_texts import readable
from ptanalyze.core.errors import DEFAULT_SAMPLE, bundled
from ptanalyze.formats.manifest import seal
from ptanalyze.show import plots
from vm_samples import unpack

NATIVE = ["linux", "interleave", "mitosis", "hydra", ("hydra", {"prefetch": 0}), "thp", "ideal"]
NESTED = [
    "linux", "first-touch", "interleave", "ideal", "mitosis", "steering", "domains", "five-level", "thp",
    "hydra",
    "vmitosis-migrate", "vmitosis-replicate", "hydra-2d", "shadow", "ptemagnet", "ptemagnet+hydra",
    "ptemagnet+vmitosis-replicate", ("hydra+vmitosis-replicate", {"layers": "ept"}),
]  # fmt: skip
SAMPLES = {
    "lookup": ["linux", "mitosis", "hydra"],
    "sysbench-memory": NATIVE,
    "vm-numa-visible": NESTED,
    "vm-numa-oblivious": ["linux", "vmitosis-migrate", ("vmitosis-replicate", {"mode": "no-f"}), "shadow"],
}
BY_PREFETCH = ("mitosis", "hydra"), {"prefetch": [0, 3, 9], "nodes": [4, 8]}
SWEPT = {
    DEFAULT_SAMPLE: (("hydra",), {"nodes": [4, 8]}),
    "vm-numa-oblivious": (("interleave", "vmitosis-migrate"), {"nodes": [4, 8, 12]}),
}


@pytest.fixture(scope="module", params=SAMPLES)
def seen(request, tmp_path_factory):
    """(a copy of the capture, its replays): as traced, where all that is walked fits the caches."""
    copy = tmp_path_factory.mktemp("plots") / request.param
    shutil.copytree(bundled("samples") / request.param, copy)
    return copy, ptanalyze.replay(
        copy, SAMPLES[request.param], windows=20, cold=request.param != DEFAULT_SAMPLE
    )


def test_plots_of_replays_are_readable(seen):
    _, replayed = seen
    for draw in (plots.speedup, plots.pareto, plots.footprint, plots.roofline):
        assert readable(draw(replayed.frame)), draw
    assert readable(plots.reads(replayed.reads))
    assert readable(plots.locality(replayed.leaves))
    assert readable(plots.timeline(replayed.timeline))


def test_plots_of_a_capture_are_readable(seen):
    capture, _ = seen
    both = [ptanalyze.classify(capture), ptanalyze.classify(capture, weight="walks")]
    assert readable(plots.locality(pd.concat(both)))
    for by in ({"by": "vma"}, {"weight": "walks", "by": "thread"}):
        assert readable(plots.locality(ptanalyze.classify(capture, **by)))
    assert readable(plots.page_table_map(ptanalyze.page_tables(capture)))
    if capture.name.startswith("vm"):
        assert readable(plots.fragmentation(ptanalyze.fragmentation(capture, after=True)))
        assert readable(plots.fragmentation(ptanalyze.fragmentation(capture, by="vma")))


def test_curves_and_comparisons_are_readable(seen):
    capture, replayed = seen
    points = ptanalyze.sweep(capture, *SWEPT.get(capture.name, BY_PREFETCH), cold=True)
    assert readable(plots.curve(points)) and readable(plots.curve(points, "nodes"))
    frame = replayed.frame.set_index("policy", drop=False)
    other = replayed.results[-1].policy
    changed = ptanalyze.compare(frame.loc[[other]], frame.loc[["linux"]])
    assert readable(plots.comparison(changed, f"{capture.name}@{other}", f"{capture.name}@linux"))


def drawn(ran, path):
    assert ran.code == 0, ran.err
    assert f"wrote {path}" in ran.err
    starts = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    assert path.read_bytes().startswith(starts[path.suffix])
    return True


def test_every_kind_of_a_replays_plot_is_drawn(pt, vm_sample, tmp_path):
    for kind in ("speedup", "locality", "reads", "pareto", "footprint", "roofline"):
        path = tmp_path / f"{kind}.svg"
        asked = ("whatif", vm_sample, "-p", "mitosis", "--cold", "--plot", path, "--plot-kind", kind)
        assert drawn(pt(*asked), path)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 6


def test_another_ending_and_a_missing_directory_are_refused_before_any_work(pt, sample, tmp_path):
    for path, why in (
        (tmp_path / "a.gif", "FILE.png, FILE.svg or FILE.pdf"),
        (tmp_path / "no" / "a.png", "directory"),
    ):
        ran = pt("whatif", sample, "-p", "hydra", "--plot", path)
        assert is_one_line(ran, 2) and why in ran.err and not ran.out
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_drawn_is_one_line_after_the_table(pt, vm_sample, tmp_path):
    ran = pt("compare", f"{vm_sample}@mitosis", f"{vm_sample}@mitosis", "--plot", tmp_path / "a.svg")
    assert is_one_line(ran, 2) and "nothing to draw" in ran.err and "equal" in ran.out


def test_a_capture_without_a_trace_is_drawn(pt, tmp_path):
    capture = tmp_path / "untraced"
    assert pt("synth", "-o", capture, "--size", "64M", "--no-trace").code == 0
    for kind in ("speedup", "pareto"):
        path = tmp_path / f"{kind}.svg"
        asked = ("whatif", capture, "-p", "mitosis", "--cache-share", "0.0001")
        assert drawn(pt(*asked, "--plot", path, "--plot-kind", kind), path)
    assert "no run time" in (tmp_path / "speedup.svg").read_text()


@pytest.fixture
def saved(monkeypatch):
    """The figures that are saved, and readable."""
    found, save = [], plots.save

    def kept(figure, path):
        assert readable(figure)
        found.append(figure)
        save(figure, path)

    monkeypatch.setattr(plots, "save", kept)
    return found


def test_one_machine_is_drawn_as_its_matrix_and_one_policy_alone(pt, tmp_path, saved):
    assert pt("machines", "hydra-haswell", "--plot", tmp_path / "a.png").code == 0
    assert pt("policies", "hydra", "--plot", tmp_path / "b.png").code == 0
    assert len(saved[0].axes[0].get_xticks()) == 8 and len(saved[1].axes[0].get_yticks()) == 1


def test_the_map_of_a_capture_and_of_a_vms_host_side_is_drawn(pt, tmp_path, saved):
    host = unpack("visible-bound", tmp_path) / "host"
    seal(host, "vm-host", {})
    for kind in ("tables", "map"):
        ran = pt("info", host, "--plot", tmp_path / "a.svg", "--plot-kind", kind)
        assert ran.code == 0, ran.err
    assert all("ePT" in figure.get_suptitle() for figure in saved)


def test_a_walk_that_ends_nowhere_is_drawn_and_ends_with_1(pt, vm_sample, tmp_path, saved):
    ran = pt("walk", vm_sample, "0x7f0000000000", "--plot", tmp_path / "a.svg")
    assert ran.code == 1 and (tmp_path / "a.svg").exists() and "not mapped" in ran.out


def test_the_statistics_of_predictions_are_drawn_instead(pt, tmp_path, saved):
    ran = pt("predict", "--statistics", "--plot", tmp_path / "a.svg")
    assert ran.code == 0 and "mean error" in saved[0].get_suptitle()
