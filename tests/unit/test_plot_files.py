"""A plot as a file and in a notebook."""

import pytest
from matplotlib import pyplot, rcParams

import ptanalyze
from ptanalyze.core.errors import UsageError
from ptanalyze.show import plots


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    place = tmp_path_factory.mktemp("plots") / "native"
    return ptanalyze.replay(ptanalyze.synth(place, "16M", accesses=4000, init_trace=False), ["mitosis"])


def test_a_notebook_shows_a_plot_by_itself(few):
    assert plots.speedup(few.frame)._repr_png_().startswith(b"\x89PNG")


def test_plots_leave_pyplot_and_its_settings_alone(few):
    before = dict(rcParams)
    plots.speedup(few.frame)
    assert dict(rcParams) == before and pyplot.get_fignums() == []


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_files_are_the_same_bytes_each_time_and_readable_by_others(few, tmp_path, ending):
    paths = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for path in paths:
        plots.save(plots.speedup(few.frame), path)
    a, b = (path.read_bytes() for path in paths)
    assert a == b and len(a) > 1000
    assert paths[0].stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_svg_text_is_text(few, tmp_path):
    plots.save(plots.speedup(few.frame), tmp_path / "a.svg")
    assert ">mitosis</text>" in (tmp_path / "a.svg").read_text()


def test_another_ending_names_those_there_are(few, tmp_path):
    for name in ("a.gif", "a", "png"):
        with pytest.raises(UsageError, match=r"FILE\.png, FILE\.svg or FILE\.pdf"):
            plots.save(plots.speedup(few.frame), tmp_path / name)
    assert list(tmp_path.iterdir()) == []
