"""The wheel works away from the checkout: machines, costs and the sample travel with it."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "analyzer" / "ptanalyze"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A directory with what `pip install .` puts into site-packages."""
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", out, ROOT], check=True)
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out / "site")
    for code in PACKAGE.rglob("*.nb[ic]"):  # what this checkout compiled; of code that differs, none is taken
        there = out / "site" / "ptanalyze" / code.relative_to(PACKAGE)
        there.parent.mkdir(exist_ok=True)
        shutil.copy(code, there)
    return out / "site"


def ptanalyze(site, where, *arguments):
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(site), "HOME": str(where)}
    environment |= {key: value for key, value in os.environ.items() if key.startswith("NUMBA")}
    command = [sys.executable, "-m", "ptanalyze", *arguments]
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_answers_the_main_question_on_the_bundled_sample(installed, tmp_path):
    done = ptanalyze(installed, tmp_path, "whatif", "--policy", "hydra")
    assert done.returncode == 0, done.stderr
    assert "no capture here, so the bundled sample: lookup" in done.stderr
    assert "hydra" in done.stdout and "first-touch" in done.stdout


def test_the_wheel_says_how_to_build_the_native_tools_it_lacks(installed, tmp_path):
    done = ptanalyze(installed, tmp_path, "record", "-o", "x", "--", "/bin/true")
    assert done.returncode == 2
    assert (
        "`make native`" in done.stderr
        and "set PTANALYZE_NATIVE to that checkout" in done.stderr
        and done.stderr.count("\n") == 1
    )
    assert list(tmp_path.glob("*x*")) == []


def test_the_wheel_has_a_version(installed, tmp_path):
    assert ptanalyze(installed, tmp_path, "--version").stdout.startswith("ptanalyze, version 0.")
