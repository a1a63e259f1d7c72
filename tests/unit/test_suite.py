"""What holds a kernel to its twin runs in both modes, compiled and as plain Python; all else runs once."""

import ast
import re
from pathlib import Path

import pytest

from house import ARROWS, file_of, room

UNIT = Path(__file__).parent
FILES = sorted(UNIT.glob("test_*.py"))
TWIN = re.compile(r"^(from|import) naive\b", re.M)
MARK = "\npytestmark = pytest.mark.twin\n"


def imported(path):
    """Files of the package that a file of the tests imports, itself or through another file of the tests."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import) and "ptanalyze" in (alias.name for alias in node.names):
            yield "analysis.whatif"  # the whole API
        if not isinstance(node, ast.ImportFrom) or node.level:
            continue
        if node.module.split(".")[0] == "ptanalyze":
            for alias in node.names:
                yield file_of([*node.module.split("."), alias.name][1:])
        elif (beside := UNIT.parent / f"{node.module.replace('.', '/')}.py").exists():
            yield from imported(beside)


def reaches_a_kernel(path):
    """Whether anything that the file imports is in kernels/, or imports it in turn."""
    seen, left = set(), [*imported(path)]
    while left:
        file = left.pop()
        if file not in seen:
            seen.add(file)
            left += ARROWS[file]
    return "kernels" in map(room, seen)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_has_a_naive_twin_and_reaches_a_kernel_runs_in_both_modes_and_what_reaches_none_does_not(file):
    text = file.read_text("utf-8")
    if not reaches_a_kernel(file):
        assert MARK not in text, f"{file.name}: reaches no kernel"
    elif TWIN.search(text):
        assert MARK in text, f"{file.name}: pytestmark = pytest.mark.twin"
