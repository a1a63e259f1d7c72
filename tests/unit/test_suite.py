"""Nothing that holds a kernel to its twin runs in one mode only."""

import re
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.glob("test_*.py"))
TWIN = re.compile(r"^(from|import) naive\b", re.M)


@pytest.mark.parametrize(
    "file", [file for file in FILES if TWIN.search(file.read_text())], ids=lambda file: file.stem
)
def test_what_has_a_naive_twin_runs_compiled_and_as_plain_python(file):
    assert "\npytestmark = pytest.mark.twin\n" in file.read_text(), (
        f"{file.name}: pytestmark = pytest.mark.twin"
    )
