"""Build packages as `make wheels` does, and use them away from the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from ptanalyze import __version__

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "analyzer" / "ptanalyze"


def build(place, out, *what):
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", out, *what], cwd=place, check=True)


def build_wheel(out):
    build(ROOT, out, "-t", "wheel")
    return out / f"ptanalyze-{__version__}-py3-none-any.whl"


def build_native_wheel(out):
    build(ROOT / "dumps" / "wheel", out, "-t", "wheel")
    (wheel,) = out.glob(f"ptanalyze_native-{__version__}-py3-none-manylinux_2_*_x86_64.whl")
    return wheel


def install(wheel):
    """A directory with what `pip install .` puts into site-packages."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(wheel.parent / "site")
    for code in PACKAGE.rglob("*.ptcode"):  # what this checkout compiled; of code that differs, none is taken
        there = wheel.parent / "site/ptanalyze" / code.relative_to(PACKAGE)
        there.parent.mkdir(exist_ok=True)
        shutil.copy(code, there)
    return wheel.parent / "site"


def pip_install(wheel):
    """A directory with what pip makes of a wheel."""
    site = wheel.parent / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*pip, "--disable-pip-version-check", "--target", site, wheel], check=True)
    return site


def ptanalyze(where, arguments, *sites, path="/usr/bin:/bin"):
    environment = {"PATH": path, "PYTHONPATH": ":".join(map(str, sites)), "HOME": str(where)}
    environment |= {key: value for key, value in os.environ.items() if key.startswith("NUMBA")}
    command = [sys.executable, "-m", "ptanalyze", *arguments.split()]
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)
