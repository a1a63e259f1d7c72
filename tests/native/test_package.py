"""The packages work away from the checkout, and anybody who builds them gets the same bytes."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from ptanalyze import __version__

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "analyzer" / "ptanalyze"


def build(place, out, *what):
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", out, *what], cwd=place, check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    build(ROOT, out, "-t", "wheel")
    return out / f"ptanalyze-{__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def installed(wheel):
    """A directory with what `pip install .` puts into site-packages."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(wheel.parent / "site")
    for code in PACKAGE.rglob("*.ptcode"):  # what this checkout compiled; of code that differs, none is taken
        there = wheel.parent / "site/ptanalyze" / code.relative_to(PACKAGE)
        there.parent.mkdir(exist_ok=True)
        shutil.copy(code, there)
    return wheel.parent / "site"


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """A directory with what pip makes of the wheel of the native tools."""
    out = tmp_path_factory.mktemp("tools")
    build(ROOT / "dumps" / "wheel", out, "-t", "wheel")
    (wheel,) = out.glob(f"ptanalyze_native-{__version__}-py3-none-manylinux_2_*_x86_64.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*pip, "--disable-pip-version-check", "--target", out / "site", wheel], check=True)
    return out / "site"


def ptanalyze(where, arguments, *sites):
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(map(str, sites)), "HOME": str(where)}
    environment |= {key: value for key, value in os.environ.items() if key.startswith("NUMBA")}
    command = [sys.executable, "-m", "ptanalyze", *arguments.split()]
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)


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


def test_with_the_wheel_of_the_native_tools_it_records_and_dumps(installed, tools, tmp_path):
    done = ptanalyze(tmp_path, "record -o x -- /bin/true", installed, tools)
    assert done.returncode == 0 and "x: recorded with its page tables" in done.stdout, done.stderr


def test_the_wheel_has_the_version(installed, tmp_path):
    assert ptanalyze(tmp_path, "--version", installed).stdout == f"ptanalyze, version {__version__}\n"


def test_the_source_at_another_place_and_time_makes_the_same_wheel(wheel, tmp_path):
    build(ROOT, tmp_path, "-t", "sdist")
    (source,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    build(tmp_path / source.name.removesuffix(".tar.gz"), tmp_path, "-t", "wheel")
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_the_native_tools_say_nothing_of_the_directory_that_they_were_built_in(tools):
    built = [path for path in tools.glob("ptanalyze_native/*") if path.is_file()]
    assert len(built) >= 7 and not any(bytes(ROOT) in path.read_bytes() for path in built)
