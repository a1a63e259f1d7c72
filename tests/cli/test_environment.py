"""Numbers in the environment that are none are as good as not set."""

import os
import subprocess
import sys

import pytest

NO_WIDTH = ["", "0", "-5", "x", "1e9", "\u00b2", "9" * 18, "9" * 5000]


@pytest.mark.parametrize("name", ["COLUMNS", "LINES"])
@pytest.mark.parametrize("value", NO_WIDTH, ids=lambda value: f"{value[:5]!a} {len(value)}")
def test_a_width_that_is_none_is_ignored(pt, monkeypatch, name, value):
    monkeypatch.delenv("COLUMNS")
    usual = pt("policies", "hydra")
    monkeypatch.setenv(name, value)
    assert pt("policies", "hydra") == usual and usual.code == 0


@pytest.mark.parametrize("value", ["0", "-5"])
def test_a_number_of_threads_that_is_none_is_ignored(value):
    command = [sys.executable, "-m", "ptanalyze", "policies", "hydra"]
    env = os.environ | {"NUMBA_NUM_THREADS": value}
    done = subprocess.run(command, env=env, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
