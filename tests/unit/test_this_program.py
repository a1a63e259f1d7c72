"""What to type after sudo, which searches no virtual environment."""

import os
import subprocess
import sys

import pytest

from ptanalyze.show.progress import this_program


@pytest.fixture
def program(tmp_path, monkeypatch):
    """The program in an environment, and that in the PATH."""
    path = tmp_path / "my env/bin/ptanalyze"
    path.parent.mkdir(parents=True)
    path.write_text('#!/bin/sh\necho "$0"\n')
    path.chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "my env"))
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    return path


@pytest.mark.parametrize("where", [".", "work"])
def test_a_shell_finds_the_program_of_an_environment_below_and_elsewhere(
    program, tmp_path, monkeypatch, where
):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / where)
    assert len(this_program()) < 25
    shell = ["sh", "-c", f"env PATH=/usr/bin:/bin {this_program()}"]
    said = subprocess.run(shell, capture_output=True, text=True, check=True).stdout
    assert (tmp_path / where / said.strip()).samefile(program)


def test_without_an_environment_the_path_has_it(monkeypatch):
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert this_program() == "ptanalyze"
