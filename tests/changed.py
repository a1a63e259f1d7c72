"""Test files that reach what was changed since a commit, nearest first: what `make check` runs.

python tests/changed.py [COMMIT]
"""

import subprocess
import sys
from functools import cache

from house import FILES, PACKAGE, TESTS, arrows, file_of, names_in

ROOT = TESTS.parent
FAR, MOST = 2, 8  # imports between a test file and a changed one; files that a minute holds
QUICK = ("unit", "cli", "docs", "fuzz")  # directories whose tests run when they were edited


def changed(commit):
    """Files that differ from a commit, and new ones."""
    asked = ["git", "diff", "--name-only", commit], ["git", "ls-files", "--others", "--exclude-standard"]
    listed = (subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True) for words in asked)
    return {ROOT / name for done in listed for name in done.stdout.splitlines()}


@cache
def imported(path):
    """Files that a file imports: of the core, of satellites, of the tests."""
    inside = path.relative_to(TESTS).parts[:-1] if TESTS in path.parents else [path.parent.name]
    found = set()
    for name in names_in(path, list(inside)):
        first, *rest = name.split(".")
        if first == "ptanalyze":
            found.add(FILES[file_of(rest)])
        elif first.startswith("ptanalyze_"):
            found |= set((PACKAGE.parent / first).rglob("*.py"))
        else:
            names = ([first, *rest], [first, *rest[:-1]])
            beside = (TESTS.joinpath(*words).with_suffix(".py") for words in names)
            found |= {file for file in beside if file.is_file()}
    return found - {path}


def distance(test, to):
    """Imports from a test file to the nearest changed one, or to its namesake; None beyond FAR."""
    if test.stem in {f"test_{path.stem}" for path in to}:
        return 0
    modules, reached = {file: name for name, file in FILES.items()}, {test}
    for steps in range(FAR + 1):
        if reached & to:
            return steps
        core = {FILES[target] for file in reached & modules.keys() for target in arrows()[modules[file]]}
        reached |= core.union(*map(imported, reached - modules.keys()))
    return None


def nearest(to):
    """Test files to run after a change of the files `to`: edited tests themselves, then by distance."""
    edited = (path for path in to if path.stem.startswith("test_") and path.is_file())
    found = {path: 0 for path in edited if directory(path) in QUICK}
    for path in TESTS.glob("unit/test_*.py"):
        if (steps := distance(path, to)) is not None:
            found[path] = steps
    return sorted(found, key=lambda path: (found[path], path))[:MOST]


def directory(path):
    return path.relative_to(TESTS).parts[0] if TESTS in path.parents else ""


if __name__ == "__main__":
    to = {path for path in changed(sys.argv[1] if len(sys.argv) > 1 else "HEAD") if path.suffix == ".py"}
    print(*(path.relative_to(ROOT) for path in nearest(to)))
