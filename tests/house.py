"""Measures of the house: files, lines, floors inside rooms, importers, and what `whatif` runs through.

`python tests/house.py` prints the table; tests/unit/test_house.py holds its limits.
"""

import ast
import json
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import ptanalyze

PACKAGE = Path(ptanalyze.__file__).parent
TESTS = Path(__file__).parent
FILES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in sorted(PACKAGE.rglob("*.py"))
}
EXECUTED = """
import json, sys
from pathlib import Path
from click.testing import CliRunner
import ptanalyze.cli
seen, home = set(), str(Path(ptanalyze.__file__).parent)
def profile(frame, event, _):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(home):
        seen.add((name[len(home) + 1:], frame.f_code.co_name))
run = lambda: CliRunner().invoke(ptanalyze.cli.ptanalyze, ["whatif", "lookup", "-p", "hydra"])
run()
sys.setprofile(profile)
found = run()
sys.setprofile(None)
assert found.exit_code == 0, found.output
print(json.dumps(sorted({file for file, name in seen if name != "<module>"})))
"""


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


@cache
def arrows():
    """{file: files that it imports}, found when asked for: all processes of the suite import this one."""
    return {module: {target for target in imported(module) if target != module} for module in FILES}


def room(module):
    return module.split(".")[0]


def folder(module):
    """Room or sub-package that a file lies in."""
    return module.rpartition(".")[0]


def lines(module):
    return len(FILES[module].read_text("utf-8").splitlines())


def inner_floor(module):
    """Length of the longest chain of imports below a file, inside its room."""
    return _floor(module)


@cache
def _floor(module):
    below = [target for target in arrows()[module] if room(target) == room(module)]
    return 1 + max(map(_floor, below), default=0)


def by_name(module):
    """Whether its package imports the file by name, "module:function", when it is needed."""
    package = FILES.get(f"{folder(module)}.__init__")
    return package is not None and f'"{module.rpartition(".")[2]}:' in package.read_text("utf-8")


def with_one_importer():
    """{file of at most 150 lines: its only importer, which lies in the same room}."""
    importers = {module: [m for m in FILES if module in arrows()[m]] for module in FILES}
    return {
        module: users[0]
        for module, users in importers.items()
        if len(users) == 1
        and room(users[0]) == room(module)
        and lines(module) <= 150
        and not module.endswith("__init__")
        and not by_name(module)
    }


def executed():
    """Files of the package in which `whatif lookup -p hydra` calls a function, on its second run."""
    ran = subprocess.run([sys.executable, "-c", EXECUTED], capture_output=True, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def measures():
    """{what: number}, of the table in HOUSE.md."""
    tests = sorted(TESTS.rglob("*.py"))
    rooms = Counter(folder(module) for module in FILES)
    floors = Counter()
    for module in FILES:
        floors[room(module)] = max(floors[room(module)], inner_floor(module))
    return {
        "package: files": len(FILES),
        "package: lines": sum(map(lines, FILES)),
        "tests: files": len(tests),
        "tests: lines": sum(len(path.read_text("utf-8").splitlines()) for path in tests),
        "files executed by whatif": len(executed()),
        "most files in a room or sub-package": max(rooms.values()),
        "most inner floors of a room": max(floors.values()),
        "files of at most 150 lines with one importer in their room": len(with_one_importer()),
        **{
            f"  {name}: files, inner floors": (
                sum(n for f, n in rooms.items() if room(f) == name),
                floors[name],
            )
            for name in floors
        },
    }


if __name__ == "__main__":
    for what, number in measures().items():
        print(f"{what:60} {number}")
