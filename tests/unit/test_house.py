"""Seven floors, arrows only downward: the table of rooms in data-path.md, and who may import whom."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import ptanalyze

PACKAGE = Path(ptanalyze.__file__).parent
PAGE = PACKAGE.parent / "docs" / "data-path.md"
ROW = re.compile(r"^\| (\d) \| (.+?) \| .+ \|$", re.MULTILINE)
FLOOR = {
    name.strip(" `/"): int(floor)
    for floor, rooms in ROW.findall(PAGE.read_text("utf-8"))
    for name in rooms.split(",")
}
FILES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in sorted(PACKAGE.rglob("*.py"))
}


def imported(module):
    """Files that a file imports, relatively or absolutely, at its top or in a function, for types too."""
    here = module.split(".")
    for node in ast.walk(ast.parse(FILES[module].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ["ptanalyze", *here[: -node.level]] if node.level else []
            start = ".".join([*above, *filter(None, [node.module])])
            targets = [f"{start}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            parts = target.split(".")
            if parts[0] == "ptanalyze":
                yield file_of(parts[1:])


def file_of(parts):
    """The file behind a dotted name: a module, a package, or the one that defines the name."""
    for end in range(len(parts), -1, -1):
        for name in (".".join(parts[:end]), ".".join([*parts[:end], "__init__"])):
            if name in FILES:
                return name
    raise AssertionError(parts)


ARROWS = {module: {target for target in imported(module) if target != module} for module in FILES}


def room(module):
    return module.split(".")[0]


def test_every_room_stands_on_a_floor_and_nothing_lies_loose():
    assert {room(module) for module in FILES} == set(FLOOR)
    assert sorted(set(FLOOR.values())) == list(range(1, 8))
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_imports_point_downward():
    wrong = [
        f"{module} -> {target}"
        for module, targets in ARROWS.items()
        for target in targets
        if room(module) != room(target) and FLOOR[room(target)] >= FLOOR[room(module)]
    ]
    assert not wrong


def test_no_files_import_each_other_in_a_circle():
    TopologicalSorter(ARROWS).prepare()


def test_no_file_is_a_drawer_for_everything():
    assert not {"utils", "helpers", "misc", "common"} & {module.split(".")[-1] for module in FILES}
    long = {module: n for module in FILES if (n := len(FILES[module].read_text("utf-8").splitlines())) > 900}
    assert not long


def test_lines_for_a_terminal_go_through_one_place():
    """Each of these makes what it prints printable; validate/ and show.recording print figures alone."""
    outlets = {
        "__main__",
        "cli.__init__",
        "cli",
        "cli.output",
        "cli.complete",
        "kernels.code_cache",
        "show.terminal",
    }
    prints = re.compile(r"\bclick\.echo\(|(?<![\w.\"])print\(|sys\.std(?:out|err)\.write|\.secho\(")
    others = {module for module, path in FILES.items() if prints.search(path.read_text("utf-8"))}
    assert {module for module in others - outlets if room(module) != "validate"} <= {
        "capture.live.process",
        "show.progress",
    }
