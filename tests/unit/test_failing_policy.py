"""Policies from outside that fail, each in its own way: one line says which and where, and harms no other."""

import subprocess
import sys
from pathlib import Path

import pytest

import ptanalyze

MINE = '''"""Policies that fail, each in its own way."""

from ptanalyze.policies import static_replicas
from ptanalyze.policies.contract import GuestHooks, PolicySide, Policy, hook


@hook
def away(state, tables, leaf, row, slot, node, fault, counters):
    return node + 7  # of on_walk


@hook
def below(state, table, node):
    return -1  # of server_of


@hook
def beside(state, tables, leaf, row, slot, node, fault, counters):
    counters.events[0, node + 7, 0] += 1  # of an index
    return node


@hook
def misspelt(state, tables, leaf, row, slot, node, fault, counters):
    return nod


@hook
def untyped(state, tables, leaf, row, slot, node, fault, counters):
    return state.nothing[leaf]  # of a type


def early(world, params):
    return [0][world.nodes], 1  # of start


def far(world, params):
    home = static_replicas.nowhere(world)
    home[:] = 9
    return (static_replicas.captured_guest(world), static_replicas.one_copy(world, home)), 1


def untaken(world, params):
    return {"home": 0}, 1


def plain(world, params):
    return static_replicas.captured_guest(world), 1


def policy(name, on_walk=static_replicas.on_walk, start=plain, server_of=static_replicas.server_of):
    hooks = GuestHooks(server_of, on_walk, static_replicas.on_step)
    return Policy(name, name, guest=PolicySide(hooks, start), source="mine", needs=("trace",))


AWAY, MISSPELT, UNTYPED = policy("away", away), policy("misspelt", misspelt), policy("untyped", untyped)
EARLY, FAR, BELOW = policy("early", start=early), policy("far", start=far), policy("below", server_of=below)
BESIDE, FINE = policy("beside", beside), policy("fine")
UNTAKEN = policy("untaken", start=untaken)
'''
SOUND = ("AWAY", "BELOW", "BESIDE", "MISSPELT", "UNTYPED", "EARLY", "FAR", "UNTAKEN", "FINE")


def installed(where, points):
    """A directory that is, put on PYTHONPATH, an installed distribution my-pol 0.1 with entry points."""
    (where / "my_package").mkdir()
    (where / "my_package" / "__init__.py").touch()
    (where / "my_package" / "mine.py").write_text(MINE)
    about = where / "my_pol-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-pol\nVersion: 0.1\n")
    lines = [f"{name} = {place}" for name, place in points.items()]
    (about / "entry_points.txt").write_text("\n".join(["[ptanalyze.policies]", *lines, ""]))
    return where


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    points = {name.lower(): f"my_package.mine:{name}" for name in SOUND}
    points |= {"nope": "my_package.mine:NOPE", "lost": "my_package.lost:LOST"}
    points |= {"no-policy": "my_package.mine:policy"}
    return installed(tmp_path_factory.mktemp("failing"), points)


@pytest.fixture(scope="module")
def sample(package):
    asked(package, "synth", "-o", "made", "--size", "16M", "--accesses", "4000")
    return "made"


def asked(package, *arguments):
    paths = f"{package}:{Path(ptanalyze.__file__).parents[1]}"
    command = [sys.executable, "-m", "ptanalyze", *arguments]
    environment = {"PYTHONPATH": paths, "PATH": "/usr/bin:/bin", "HOME": str(package)}
    return subprocess.run(command, env=environment, cwd=package, capture_output=True, text=True)


def line_of(text, after=0):
    """Where MINE has it: "mine.py:N"."""
    return f"mine.py:{1 + after + next(k for k, line in enumerate(MINE.splitlines()) if text in line)}"


FAILURES = {
    "away": ("a hook returned node 7, machine", "has nodes 0..3"),
    "below": ("a hook returned node -1, machine", "has nodes 0..3"),
    "beside": ("IndexError",),
    "far": ("start placed a table on node 9, machine", "has nodes 0..3"),
    "misspelt": ("NameError: name 'nod' is not defined", line_of("def misspelt", -1)),
    "untyped": ("Unknown attribute 'nothing'", line_of("# of a type")),
    "untaken": ("Cannot determine Numba type of <class 'dict'>",),
    "early": ("IndexError: list index out of range", line_of("# of start")),
    "nope": ("cannot be loaded", "(package my-pol 0.1)", "no attribute 'NOPE'", "my_package.mine"),
    "lost": ("cannot be loaded", "(package my-pol 0.1)", "No module named 'my_package.lost'"),
    "no-policy": ("(package my-pol 0.1)", "not a ptanalyze.policies.Policy"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_asked_for_by_name_it_fails_in_one_line(package, sample, name):
    done = asked(package, "whatif", sample, "-p", f"fine,{name}")
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"ptanalyze: policy {name}")
    assert all(part in said for part in FAILURES[name]), said


@pytest.mark.parametrize("names", ["mitosis", "fine", "five-level+fine"])
def test_what_nobody_asked_for_is_not_loaded(package, sample, names):
    done = asked(package, "whatif", sample, "-p", names)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_list_leaves_out_what_cannot_be_loaded(package):
    done = asked(package, "policies")
    assert done.returncode == 0
    left_out = done.stderr.splitlines()
    assert len(left_out) == 3 and all(line.endswith("; left out") for line in left_out)
    assert " fine " in done.stdout and " nope " not in done.stdout
    assert asked(package, "policies", "mitosis").stderr == ""


def test_advise_ranks_the_others(package, sample):
    done = asked(package, "advise", sample, "--full")
    assert done.returncode == 0, done.stderr
    assert " fine " in done.stdout and " mitosis " in done.stdout
    said = " ".join(done.stdout.split())
    for name in ("away", "far", "misspelt", "untyped", "early"):
        assert f"- left out: {name}: " in said and FAILURES[name][0] in said
    assert len(done.stderr.splitlines()) == 3


def test_python_shows_the_whole_traceback(package, sample):
    code = f"import ptanalyze; ptanalyze.replay({sample!r}, 'early')"
    paths = f"{package}:{Path(ptanalyze.__file__).parents[1]}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": paths, "PATH": "/usr/bin:/bin", "HOME": str(package)},
        cwd=package,
        capture_output=True,
        text=True,
    )
    assert "return [0][world.nodes], 1" in done.stderr
