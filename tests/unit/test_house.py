"""Six floors, arrows only downward: who may import whom inside the package."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import ptanalyze

PACKAGE = Path(ptanalyze.__file__).parent

FLOORS = [
    {"__init__", "errors", "bundled"},
    {"trace", "machine", "kernels", "vcpu_groups", "law"},
    {"snapshot", "walks", "entries", "result"},
    {"formats", "world", "nested", "vm_fit", "tables", "progress", "units", "frames", "plots"},
    {"capture", "policies", "check", "cost", "whatif_tables", "classify", "fragmentation"},
    {"recording", "synth", "vm", "info", "walk", "replay", "static_whatif"},
    {"whatif", "locality", "compare"},
    {"sweep", "budget", "advise", "workload"},
    {"validate", "report"},
    {"api"},
    {"cli", "__main__"},
]


def modules():
    return sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def floor_of(module):
    top = module.split(".")[0] or "__init__"
    found = [number for number, names in enumerate(FLOORS) if top in names]
    assert found, f"{module} stands on no floor: give it one in FLOORS"
    return found[0]


def imported(path):
    """Modules of this package that a file imports, dotted and relative to the package."""
    here = list(path.with_suffix("").parts)
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = here[: len(here) - node.level]
            if node.module:
                yield ".".join([*base, node.module])
            else:
                yield from (".".join([*base, name.name]) for name in node.names)


@pytest.mark.parametrize("path", modules(), ids=str)
def test_imports_point_downward(path):
    own = floor_of(".".join(path.with_suffix("").parts))
    for target in imported(path):
        if target.split(".")[0] == path.with_suffix("").parts[0] or target in ("__version__", ""):
            continue
        assert floor_of(target) <= own, f"{path} imports {target} from a floor above"


def test_no_two_rooms_lean_on_each_other():
    rooms = {}
    for path in modules():
        own = path.with_suffix("").parts[0]
        targets = {target.split(".")[0] for target in imported(path)}
        rooms.setdefault(own, set()).update(targets - {own, "", "__version__"})
    TopologicalSorter(rooms).prepare()


@pytest.mark.parametrize("path", [p for p in modules() if p.parts[0] == "kernels"], ids=str)
def test_kernels_know_nothing_of_the_package(path):
    assert all(target.split(".")[0] == "kernels" for target in imported(path))


@pytest.mark.parametrize("path", modules(), ids=str)
def test_no_file_is_a_drawer_for_everything(path):
    assert path.stem not in ("utils", "helpers", "misc", "common")
    assert len((PACKAGE / path).read_text().splitlines()) <= 400
