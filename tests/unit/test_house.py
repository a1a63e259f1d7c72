"""Seven floors, arrows only downward: the table of rooms in data-path.md, and who may import whom."""

import ast
import re
from collections import Counter
from graphlib import TopologicalSorter
from types import ModuleType

import house
import ptanalyze

PAGE = house.PACKAGE.parent / "docs" / "data-path.md"
ROW = re.compile(r"^\| (\d) \| (.+?) \| .+ \|$", re.MULTILINE)
FLOOR = {
    name.strip(" `/"): int(floor)
    for floor, rooms in ROW.findall(PAGE.read_text("utf-8"))
    for name in rooms.split(",")
}
# of house.measures(): lowered in each commit that makes room, never raised
LIMITS = {
    "core package: files": 118,
    "core package: lines": 29_794,
    "satellites: lines": 16_799,
    "satellites: lines of the largest": 3_300,
    "satellites: names of the core": 65,
    "satellites: names of the core, and members of its namespaces": 320,
    "tests: files": 152,
    "tests: lines": 37_737,
    "whatif: calls into another file": 1_305,
    "whatif: files executed": 54,
    "whatif: functions executed": 870,
    "walk: lines reached by import": 6_660,
}


def test_house_stays_within_its_limits():
    assert not {what: n for what, n in house.measures().items() if n > LIMITS[what]}


def test_every_room_stands_on_a_floor_and_nothing_lies_loose():
    assert {house.room(module) for module in house.FILES} == set(FLOOR)
    assert sorted(set(FLOOR.values())) == list(range(1, 8))
    assert {path.name for path in house.PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_imports_point_downward():
    wrong = [
        f"{module} -> {target}"
        for module, targets in house.arrows().items()
        for target in targets
        if house.room(module) != house.room(target) and FLOOR[house.room(target)] >= FLOOR[house.room(module)]
    ]
    assert not wrong


def test_the_core_imports_no_satellite():
    """Commands are found by entry points, names of the API by the stub, when they are asked for."""
    names = {name.split(".")[0] for path in house.FILES.values() for name in house.names_in(path, [])}
    assert not {name for name in names if name.startswith("ptanalyze_")}


def test_satellites_take_documented_names_of_the_api():
    """`import ptanalyze as pt`, and of its namespaces members that say what they are."""
    by_contract = {"ptanalyze_policies"}  # compiled hooks name modules: add-a-policy.md
    names = set().union(*(house.taken(path) for path in house.SATELLITES if path.name not in by_contract))
    assert {name.split(".")[1] for name in names} - set(ptanalyze.API) <= {"show"}
    deep = {name for name in names if name.count(".") > 1}
    assert not {name for name in deep if not name.startswith("ptanalyze.show.")}
    page = (PAGE.parent / "reference" / "namespaces.md").read_text("utf-8")
    modules = {name for name in ptanalyze.API if isinstance(getattr(ptanalyze, name), ModuleType)}
    assert not {name for name in modules - {"plots"} if f"`pt.{name}`" not in page}
    for part in (ptanalyze, *(getattr(ptanalyze, name) for name in modules)):
        api = {name: getattr(part, name) for name in getattr(part, "API", ())}
        assert not {name for name, value in api.items() if callable(value) and not value.__doc__}


def test_no_files_import_each_other_in_a_circle():
    TopologicalSorter(house.arrows()).prepare()


def test_no_file_is_a_drawer_for_everything():
    assert not {"utils", "helpers", "misc", "common"} & {module.split(".")[-1] for module in house.FILES}
    assert not {module: n for module in house.FILES if (n := house.lines(module)) > 900}


def test_rooms_hold_few_deep_modules():
    """What a reader must find a way through; cli/ has a file for each command."""
    rooms = Counter(house.folder(module) for module in house.FILES)
    assert not {name: n for name, n in rooms.items() if n > (36 if name == "cli" else 23)}
    assert max(map(house.inner_floor, house.FILES)) <= 5
    assert not house.with_one_importer()


def test_tests_lie_by_the_subject_that_they_test():
    """A new test goes into the file of its subject: every process imports all files that it is given."""
    sizes = {path: len(path.read_text("utf-8").splitlines()) for path in house.TESTS.rglob("*.py")}
    assert not {path: n for path, n in sizes.items() if n > 900}


def test_lines_for_a_terminal_go_through_one_place():
    """Each of these makes what it prints printable."""
    outlets = {"__main__", "cli.__init__", "cli", "cli.options", "kernels.jit", "show.terminal"}
    prints = re.compile(r"\bclick\.echo\(|(?<![\w.\"])print\(|sys\.std(?:out|err)\.write|\.secho\(")
    others = {module for module, path in house.FILES.items() if prints.search(path.read_text("utf-8"))}
    assert others - outlets <= {"capture.live.process"}


def docstrings():
    """(where, docstring) of each module, class and function of the package, its satellites and tests."""
    for base in (house.PACKAGE, *house.SATELLITES, house.TESTS):
        for path in base.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
                    text = ast.get_docstring(node)
                    if text:
                        yield f"{path.name}: {getattr(node, 'name', 'module')}", text


def test_docstrings_begin_with_a_noun_or_a_verb():
    assert not [where for where, text in docstrings() if re.match(r"(Of|That|As|The same)\b", text)]


def test_what_docstrings_name_is_there():
    """Files as `show/whatif.py`, and modules and their names as `policies.contract.Policy`."""
    rooms = "|".join({house.room(module) for module in house.FILES} - {"__init__", "__main__"})
    file = re.compile(rf"(?<![\w/.-])(?:{rooms}|tests|docs|dumps|pintool)/[a-z][\w/.-]*\.[a-z]{{1,4}}\b")
    name = re.compile(rf"(?<![\w/.-])(?:ptanalyze\.)?((?:{rooms})(?:\.(?!json)\w+)+)\b(?!/)")
    places = (house.PACKAGE, house.PACKAGE.parent, house.PACKAGE.parent.parent)
    gone = set()
    for where, text in docstrings():
        paths = set(file.findall(text))
        gone |= {(where, path) for path in paths if not any((place / path).exists() for place in places)}
        for parts in (dotted.split(".") for dotted in name.findall(text)):
            known = house.file_of(parts)
            rest = parts[len(known.removesuffix(".__init__").split(".")) :]
            if rest and not re.search(rf"\b{rest[0]}\b", house.FILES[known].read_text("utf-8")):
                gone.add((where, ".".join(parts)))
    assert not gone
