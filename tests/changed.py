"""Test files that reach what was changed since a commit, nearest first: what `make check` runs.

python tests/changed.py [COMMIT]
"""

import subprocess
import sys
from functools import cache

from house import FILES, PACKAGE, TESTS, arrows, file_of, names_in

ROOT = TESTS.parent
FAR, MOST = 2, 12  # imports between a test file and a changed one; files that a minute holds


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
            beside = (
                TESTS.joinpath(*words).with_suffix(".py") for words in ([first, *rest], [first, *rest[:-1]])
            )
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


if __name__ == "__main__":
    to = {path for path in changed(sys.argv[1] if len(sys.argv) > 1 else "HEAD") if path.suffix == ".py"}
    tests = TESTS.glob("unit/test_*.py")
    found = {path: steps for path in tests if (steps := distance(path, to)) is not None}
    print(*(path.relative_to(ROOT) for path in sorted(found, key=lambda path: (found[path], path))[:MOST]))
