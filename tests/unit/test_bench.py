"""`make bench` is not part of the suite: what its modules import from the package is there all the same."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "analyzer" / "bench"


def imports(path):
    """(module, name) that a file imports from the package, within functions, too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ptanalyze":
            yield from ((node.module, alias.name) for alias in node.names)


def is_there(module, name):
    if hasattr(import_module(module), name):
        return True
    try:
        return bool(import_module(f"{module}.{name}"))
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("path", sorted(BENCH.glob("*.py")), ids=lambda path: path.stem)
def test_what_a_bench_imports_is_there(path):
    assert [asked for asked in imports(path) if not is_there(*asked)] == []
