"""Measures of the house: files, lines, floors inside rooms, importers, and the trip of a `whatif`.

`python tests/house.py` prints the table; tests/unit/test_house.py holds its limits.
"""

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import ptanalyze

PACKAGE = Path(ptanalyze.__file__).parent
TESTS = Path(__file__).parent
SATELLITES = sorted(PACKAGE.parent.glob("ptanalyze_*"))
SOURCES = sorted(PACKAGE.rglob("*.py"))
FILES = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in SOURCES}
TRIP = """
import contextlib, io, json, sys, threading
from pathlib import Path
import ptanalyze
from ptanalyze.__main__ import main
from ptanalyze.show import terminal
from ptanalyze.world import history
terminal.show_duration = str  # in lines of progress, which a busy machine adds
history.WORTH_COMPILING = 0  # else Python takes steps until somebody has compiled what does
home = str(Path(ptanalyze.__file__).parent)
sys.argv = ["ptanalyze", "whatif", "lookup", "-p", "hydra"]
files, functions, moves = set(), set(), 0
def run():
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main()
def profile(frame, event, _):
    global moves
    name = frame.f_code.co_filename
    if event != "call" or not name.startswith(home):
        return
    if frame.f_code.co_name != "<module>":
        files.add(name), functions.add(frame.f_code)
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith(home):
        caller = caller.f_back
    moves += caller is not None and caller.f_code.co_filename != name
run(), run()  # the second loads what children of the first compiled
threading.setprofile(profile), sys.setprofile(profile)
run()
sys.setprofile(None)
print(json.dumps([moves, len(files), len(functions)]))
"""


def names_in(path, package):
    """Dotted names that a file of a package imports, at its top or in a function, for types too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            start = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{start}.{alias.name}" for alias in node.names)


def imported(module):
    """Files that a file imports."""
    for name in names_in(FILES[module], ["ptanalyze", *module.split(".")[:-1]]):
        parts = name.split(".")
        if parts[0] == "ptanalyze":
            yield file_of(parts[1:])


def taken(satellite, deep=False):
    """Names of the core that a satellite, a folder beside PACKAGE, takes, by import or as `pt.name`.

    deep  with `pt.namespace.member` for each member of a namespace of the API
    """
    names = {name for path in satellite.rglob("*.py") for name in names_in(path, [satellite.name])}
    names = {name for name in names if name.startswith("ptanalyze.")}
    for path in satellite.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute):
                start, *parts = re.match(r"[\w.]*", ast.unparse(node))[0].split(".")
                if start == "pt" and parts:
                    names.add(f"ptanalyze.{parts[0]}")
                    if deep and isinstance(getattr(ptanalyze, parts[0]), ModuleType):
                        names.add(".".join(["ptanalyze", *parts[:2]]))
    return names


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


@cache
def inner_floor(module):
    """Length of the longest chain of imports below a file, inside its room."""
    below = [target for target in arrows()[module] if room(target) == room(module)]
    return 1 + max(map(inner_floor, below), default=0)


def by_name(module):
    """Whether its package imports the file by name, "module:function" or ".module", when it is needed."""
    package, name = FILES.get(f"{folder(module)}.__init__"), module.rpartition(".")[2]
    text = package.read_text("utf-8") if package else ""
    return f'"{name}:' in text or f'".{name}"' in text


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


def reached(module):
    """Lines of all files that a file reaches by import."""
    seen, left = {module}, [module]
    while left:
        left += (new := arrows()[left.pop()] - seen)
        seen |= new
    return sum(map(lines, seen))


@cache
def trip():
    """Calls into another file, files and functions executed, of the second `whatif lookup -p hydra`."""
    ran = subprocess.run([sys.executable, "-c", TRIP], capture_output=True, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def length(paths):
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def measures():
    """{what: number}, which shrink from commit to commit: LIMITS of test_house."""
    tests = list(TESTS.rglob("*.py"))
    sizes = [length(satellite.rglob("*.py")) for satellite in SATELLITES]
    deep = (taken(satellite, deep=True) for satellite in SATELLITES)
    moves, files, functions = trip()
    return {
        "core package: files": len(FILES),
        "core package: lines": sum(map(lines, FILES)),
        "satellites: lines": sum(sizes),
        "satellites: lines of the largest": max(sizes),
        "satellites: names of the core": len(set().union(*map(taken, SATELLITES))),
        "satellites: names of the core, and members of its namespaces": len(set().union(*deep)),
        "tests: files": len(tests),
        "tests: lines": length(tests),
        "whatif: calls into another file": moves,
        "whatif: files executed": files,
        "whatif: functions executed": functions,
        "walk: lines reached by import": reached("cli.walk"),
    }


if __name__ == "__main__":
    for what, number in measures().items():
        print(f"{what:61} {number:6,}")
