"""The package works away from the checkout, and anybody who builds it gets the same bytes."""

import tarfile

from native.packages import ROOT, build, ptanalyze
from ptanalyze import __version__


def test_the_wheel_answers_the_main_question_on_the_bundled_sample(installed, tmp_path):
    done = ptanalyze(tmp_path, "whatif --policy hydra", installed)
    assert done.returncode == 0, done.stderr
    assert "no capture here, so the bundled sample: lookup" in done.stderr
    assert "hydra" in done.stdout and "first-touch" in done.stdout


def test_the_wheel_says_how_to_get_the_native_tools_it_lacks(installed, tmp_path):
    done = ptanalyze(tmp_path, "record -o x -- /bin/true", installed)
    assert done.returncode == 2
    assert "`pip install 'ptanalyze[native]'`" in done.stderr and done.stderr.count("\n") == 1
    assert list(tmp_path.glob("*x*")) == []


def test_the_wheel_has_the_version(installed, tmp_path):
    assert ptanalyze(tmp_path, "--version", installed).stdout == f"ptanalyze, version {__version__}\n"


def test_the_source_at_another_place_and_time_makes_the_same_wheel(wheel, tmp_path):
    build(ROOT, tmp_path, "-t", "sdist")
    (source,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    build(tmp_path / source.name.removesuffix(".tar.gz"), tmp_path, "-t", "wheel")
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()
