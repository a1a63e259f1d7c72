import os
import shutil
import sys
from collections import namedtuple

import pytest

from captures import TOUCHES, shorter
from ptanalyze.cli import run
from ptanalyze.core.errors import bundled

Ran = namedtuple("Ran", "code out err")


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.setenv("PATH", f"{sys.prefix}/bin{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def pt(capfd, monkeypatch):
    """Run the command line in this process; returns exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments):
        capfd.readouterr()
        return Ran(run([str(argument) for argument in arguments]), *capfd.readouterr())

    return call


@pytest.fixture(scope="session")
def answered():
    return {}


@pytest.fixture
def once(pt, answered):
    """`pt` for commands that answer the same each time: the same words, in the same place, run once."""

    def call(*arguments):
        asked = os.getcwd(), os.environ["COLUMNS"], *map(str, arguments)
        if asked not in answered:
            answered[asked] = pt(*arguments)
        return answered[asked]

    return call


@pytest.fixture
def nowhere(tmp_path_factory, monkeypatch):
    """A working directory that has no capture, the same for all tests."""
    place = tmp_path_factory.getbasetemp() / "nowhere"
    place.mkdir(exist_ok=True)
    monkeypatch.chdir(place)


@pytest.fixture(scope="session")
def sample(tmp_path_factory):
    """The beginning of the bundled capture, a copy: its cache is the tests' own."""
    place = tmp_path_factory.mktemp("captures")
    return shorter(bundled("samples") / "sysbench-memory", place / "sample", TOUCHES["sysbench-memory"])


@pytest.fixture(scope="session")
def vm_sample(tmp_path_factory):
    """Sample of the bundled capture of a NUMA-visible VM."""
    place = tmp_path_factory.mktemp("captures")
    return shorter(bundled("samples") / "vm-numa-visible", place / "vm", TOUCHES["vm-numa-visible"])


@pytest.fixture
def own_sample(sample, tmp_path):
    """A copy to damage."""
    return shutil.copytree(sample, tmp_path / "damaged")
