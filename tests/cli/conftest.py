import shutil
from collections import namedtuple

import pytest

from ptanalyze.bundled import bundled
from ptanalyze.cli import run

Ran = namedtuple("Ran", "code out err")


@pytest.fixture
def pt(capfd, monkeypatch):
    """Run the command line in this process; returns exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments):
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        return Ran(code, *capfd.readouterr())

    return call


@pytest.fixture(scope="session")
def sample(tmp_path_factory):
    """A copy of the bundled capture, so that its cache is the tests' own."""
    copy = tmp_path_factory.mktemp("captures") / "sample"
    shutil.copytree(bundled("samples") / "sysbench-memory", copy)
    return copy


@pytest.fixture
def own_sample(sample, tmp_path):
    """A copy to damage."""
    return shutil.copytree(sample, tmp_path / "damaged")


def is_one_line(ran, code):
    """The command failed as a command should: this exit code, one line, nothing else."""
    assert ran.code == code, ran
    assert ran.err.startswith("ptanalyze: ") and ran.err.count("\n") == 1, ran.err
    assert "Traceback" not in ran.err
    return True
