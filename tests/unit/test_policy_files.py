"""Policies stand in one file each, whose functions have types, except for the hooks that Numba compiles."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from ptanalyze import policies

FILES = sorted(Path(policies.__file__).parent.glob("*.py"))
COMPILED = {"hook", "called_hook", "kernel"}


def without_types(text):
    """Names of a file's functions that lack a type and are not compiled."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and not COMPILED & set(map(ast.unparse, node.decorator_list)):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            if node.returns is None or any(a.annotation is None for a in arguments if a.arg != "self"):
                yield node.name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_only_hooks_lack_types(path):
    assert not list(without_types(path.read_text("utf-8")))


def test_a_function_without_types_is_seen():
    functions = [
        "def bare(x): ...",
        "def half(x: int, y) -> int: ...",
        "@hook\ndef on_walk(x): ...",
        "def whole() -> int: ...",
    ]
    text = "\n".join(functions)
    assert list(without_types(text)) == ["bare", "half"]


def test_each_policy_is_in_the_file_of_its_name():
    together = dict.fromkeys(("first-touch", "interleave", "bind", "tables-in-dram"), "baselines")
    together |= {"ideal": "linux", "steering": "wasp", "domains": "five_level"}
    for name, place in policies.POLICIES.items():
        assert place.partition(".")[0] == together.get(name, name.replace("-", "_"))
        assert policies.find(name).name == name


def test_a_policy_is_imported_when_its_name_is_looked_up():
    code = "import sys; from ptanalyze import policies; policies.{}; print(*sys.modules)"
    nothing, hydra = (modules(code.format(call)) for call in ("names()", "find('hydra')"))
    assert not {"numba", "ptanalyze.policies.contract", "ptanalyze.policies.hydra"} & nothing
    assert "ptanalyze.policies.hydra" in hydra
    assert not {"ptanalyze.policies.mitosis", "ptanalyze.policies.thp"} & hydra


def modules(code):
    """Names that another process prints."""
    return set(subprocess.check_output([sys.executable, "-c", code], text=True).split())


@pytest.mark.parametrize(
    "name", [name for name in policies.POLICIES if policies.availability(name).startswith("today")]
)
def test_a_line_to_type_comes_with_whom_it_touches(name):
    if "nothing to do" not in policies.availability(name):
        assert policies.caveat(name).startswith(("This program alone", "The whole host", "The whole machine"))
