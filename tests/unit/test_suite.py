"""What runs: twins in both modes, compiled and as plain Python; all else once; benches are importable."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from changed import nearest
from house import PACKAGE, arrows, file_of, room

UNIT = Path(__file__).parent
FILES = sorted(UNIT.glob("test_*.py"))
MARK = re.compile(r"^(pytestmark = |@)pytest\.mark\.twin$", re.MULTILINE)  # by it, make finds the files
NAIVE = "naive"


@cache
def imported(path):
    """{name: files of the package behind it, and NAIVE for a twin}, through other files of the tests."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import) and "ptanalyze" in (alias.name for alias in node.names):
            found["ptanalyze"] = {"analysis.whatif"}  # the whole API
        if not isinstance(node, ast.ImportFrom) or node.level:
            continue
        parts = node.module.split(".")
        beside = UNIT.parent / f"{node.module.replace('.', '/')}.py"
        for alias in node.names:
            behind = set()
            if parts[0] == "ptanalyze":
                behind = {file_of([*parts, alias.name][1:])}
            elif parts[0].startswith("ptanalyze_") and "kernels" in (*parts, alias.name):
                behind = {"kernels.jit"}  # a satellite's kernels
            elif parts[0] == NAIVE:
                behind = {NAIVE}
            elif beside.exists():
                behind = set().union(*imported(beside).values()) - {NAIVE}
            found[alias.asname or alias.name] = behind
    return found


def reaches_a_kernel(files):
    """Whether any of the files is in kernels/, or imports what is, in turn."""
    seen, left = set(), [*files - {NAIVE}]
    while left:
        file = left.pop()
        if file not in seen:
            seen.add(file)
            left += arrows()[file]
    return "kernels" in map(room, seen)


def names_of(node):
    """Names that a statement takes from around it, also as fixtures."""
    names = [x for x in ast.walk(node) if isinstance(x, ast.Name)]
    local = {x.id for x in names if isinstance(x.ctx, ast.Store)}
    return {x.id for x in names} - local | {x.arg for x in ast.walk(node) if isinstance(x, ast.arg)}


def unmarked(path):
    """[(test without the mark, files behind all that it names, through functions of its own file)]."""
    tree, behind = ast.parse(path.read_text("utf-8")), imported(path)
    named = {}
    for node in tree.body:
        stored = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
        stored += [x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]
        if "pytestmark" in stored:
            return
        for name in stored if isinstance(node, ast.Assign) else stored[:1]:
            named[name] = names_of(node)
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
            continue
        if "pytest.mark.twin" in map(ast.unparse, node.decorator_list):
            continue
        seen, left = set(), [node.name]
        while left:
            name = left.pop()
            if name not in seen:
                seen.add(name)
                left += named.get(name, ())
        yield node.name, set().union(*(behind.get(name, ()) for name in seen))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_has_a_naive_twin_and_reaches_a_kernel_runs_in_both_modes_and_what_reaches_none_does_not(file):
    if not reaches_a_kernel(set().union(*imported(file).values())):
        assert not MARK.search(file.read_text("utf-8")), f"{file.name}: reaches no kernel"
    once = [name for name, files in unmarked(file) if NAIVE in files and reaches_a_kernel(files)]
    assert not once, f"{file.name}: @pytest.mark.twin"


def test_check_runs_what_reaches_a_change():
    assert UNIT / "test_cost.py" in nearest({PACKAGE / "cost/price.py"})
    assert nearest({PACKAGE / "kernels/walker.py"})[0] == UNIT / "test_walker.py"


def test_check_runs_tests_that_were_edited():
    edited = {UNIT / "test_plots.py", UNIT.parent / "cli/test_output.py"}
    assert {*nearest(edited)} == edited
    assert nearest({UNIT.parent / "native/test_pin.py"}) == []


# `make bench` is not part of the suite: that its modules can be imported, and name what they run, is.

BENCH = Path(__file__).parents[2] / "analyzer" / "bench"


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCH.glob("bench_*.py")))
def test_benches_are_imported(name, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH.parents[1]))
    module = import_module(f"analyzer.bench.{name}")
    assert callable(module.run) and all(hasattr(module, size) for size in module.SMALLEST)
