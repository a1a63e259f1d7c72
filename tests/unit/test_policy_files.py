"""Policies in files: our own, and those from outside."""

import ast
import json
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pandas
import pytest

import ptanalyze
import ptanalyze_policies
from command_line import PROGRESS
from ptanalyze import policies
from ptanalyze.policies import label, plan_for

# Policies from outside that fail, each in its own way: one line says which and where, and harms no other.

MINE = '''"""Policies that fail, each in its own way."""

from ptanalyze.policies import static_replicas
from ptanalyze.policies.contract import GuestHooks, PolicySide, Policy, hook, tables_of


@hook
def away(state, tables, leaf, row, slot, node, fault, counters):
    return node + 7  # of on_walk


@hook
def misspelt(state, tables, leaf, row, slot, node, fault, counters):
    return nod


def early(scenario, params):
    return [0][scenario.nodes], 1  # of start


def far(scenario, params):
    home = static_replicas.nowhere(scenario)
    home[:] = 9
    return (static_replicas.captured_guest(scenario), static_replicas.one_copy(scenario, home)), 1


def array(scenario, params):
    return scenario.space.tables.level


def single(scenario, params):
    return tables_of(scenario, 0, 4096), 1


def plain(scenario, params):
    return static_replicas.captured_guest(scenario), 1


def policy(name, on_walk=static_replicas.on_walk, start=plain):
    hooks = GuestHooks(static_replicas.server_of, on_walk, static_replicas.on_step)
    return Policy(name, name, guest=PolicySide(hooks, start), source="mine", needs=("trace",))


AWAY, MISSPELT, FINE = policy("away", away), policy("misspelt", misspelt), policy("fine")
EARLY, FAR = policy("early", start=early), policy("far", start=far)
ARRAY, SINGLE = policy("array", start=array), policy("single", start=single)
NOTHING = Policy("nothing", "", guest=static_replicas.guest_part(lambda *_: None), source="mine")
'''
SOUND = ("AWAY", "MISSPELT", "EARLY", "FAR", "FINE", "ARRAY", "SINGLE", "NOTHING")


def installed(where, module, text, points):
    """`where` as a directory that is, put on PYTHONPATH, an installed distribution my-pol 0.1.

    points  lines of its entry points
    """
    (where / "my_package").mkdir()
    (where / "my_package" / "__init__.py").touch()
    (where / "my_package" / f"{module}.py").write_text(text)
    about = where / "my_pol-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-pol\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text("\n".join([*points, ""]))
    return where


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    points = {name.lower(): f"my_package.mine:{name}" for name in SOUND}
    points |= {"nope": "my_package.mine:NOPE", "lost": "my_package.lost:LOST"}
    points |= {"no-policy": "my_package.mine:policy"}
    lines = ["[ptanalyze.policies]", *(f"{name} = {place}" for name, place in points.items())]
    return installed(tmp_path_factory.mktemp("failing"), "mine", MINE, lines)


@pytest.fixture(scope="module")
def sample(package):
    asked(package, "synth", "-o", "made", "--size", "16M", "--accesses", "4000")
    return "made"


def asked(package, *arguments):
    return python(package, "-m", "ptanalyze", *map(str, arguments))


def python(package, *arguments):
    paths = f"{package}:{Path(ptanalyze.__file__).parents[1]}"
    environment = {"PYTHONPATH": paths, "PATH": "/usr/bin:/bin", "HOME": str(package)}
    environment["XDG_CACHE_HOME"] = os.environ["XDG_CACHE_HOME"]  # what is compiled
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, cwd=package, capture_output=True, text=True)


def line_of(text, module):
    """Number of the first line that has the text."""
    return next(k for k, line in enumerate(module.splitlines(), 1) if text in line)


FAILURES = {
    "away": ("a hook returned node 7, machine", "has nodes 0..3"),
    "far": ("start placed a table on node 9, machine", "has nodes 0..3"),
    "misspelt": ("NameError: name 'nod' is not defined",),
    "early": ("IndexError: list index out of range", f"mine.py:{line_of('# of start', MINE)}"),
    "array": ("array must return", "not ndarray", f"mine.py:{line_of('def array', MINE)}"),
    "nothing": ("must return a State", "not NoneType", f"mine.py:{line_of('NOTHING', MINE)}"),
    "single": ("tables_of: starts has shape []",),
    "nope": ("cannot be loaded", "(package my-pol 0.1)", "no attribute 'NOPE'", "my_package.mine"),
    "lost": ("cannot be loaded", "(package my-pol 0.1)", "No module named 'my_package.lost'"),
    "no-policy": ("(package my-pol 0.1)", "not a ptanalyze.policies.Policy"),
}


IN_TURN = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from ptanalyze.cli import run

said = {}
for name in sys.argv[2:]:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as error:
        code = run(["whatif", sys.argv[1], "-p", f"fine,{name}"])
    said[name] = code, error.getvalue()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def failed(package, sample):
    """{name: (exit code, stderr)} of all, one after the other in one process, which compiles `fine` once."""
    done = python(package, "-c", IN_TURN, sample, *FAILURES)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", FAILURES)
def test_asked_for_by_name_it_fails_in_one_line(failed, name):
    code, error = failed[name]
    assert code == 2
    (said,) = [line for line in error.splitlines() if not PROGRESS.search(line)]
    assert said.startswith(f"ptanalyze: policy {name}")
    assert all(part in said for part in FAILURES[name]), said


def test_what_nobody_asked_for_is_not_loaded(package, sample):
    done = asked(package, "whatif", sample, "-p", "thp+fine")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_list_leaves_out_what_cannot_be_loaded(package):
    done = asked(package, "policies")
    assert done.returncode == 0
    left_out = done.stderr.splitlines()
    assert len(left_out) == 3 and all(line.endswith("; left out") for line in left_out)
    assert " fine " in done.stdout and " nope " not in done.stdout
    assert asked(package, "policies", "mitosis").stderr == ""


# What fails and nobody asked for by name is left out of advise, whichever of its functions fails.

BROKEN = '''"""A policy for each function of the contract, which fails there."""

from ptanalyze.core.errors import UsageError
from ptanalyze.policies import static_replicas
from ptanalyze.policies.contract import Policy, called_hook, hook


def fails(*_):
    raise RuntimeError("broken")


def says(scenario, params):
    raise UsageError("a line of its own")


@hook
def server_of(state, table, node):
    return nod


@hook
def on_walk(state, tables, leaf, row, slot, node, fault, counters):
    if fault >= 0:
        raise ValueError("compiled")
    return node


@called_hook
def on_step(state, tables, rows, steps, shootdowns, mapped, counters, step):
    return counters.nothing


SIDE = static_replicas.guest_part(lambda scenario, params: static_replicas.captured_guest(scenario))
HOOKS = {hook.__name__: hook for hook in (server_of, on_walk, on_step)}
SIDES = {f: SIDE._replace(**{f: fails}) for f in SIDE._fields if f != "hooks"}
SIDES |= {f: SIDE._replace(hooks=SIDE.hooks._replace(**{f: hook})) for f, hook in HOOKS.items()}
SIDES["says"] = SIDE._replace(start=says)
MADE = {f: Policy(f, f, guest=side, source="a test") for f, side in SIDES.items()}
OWN = [f for f, kind in Policy.__annotations__.items() if "Callable" in str(kind)]
MADE |= {f: Policy(f, f, guest=SIDE, source="a test")._replace(**{f: fails}) for f in OWN}
globals().update(MADE)
'''


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    names = {}
    exec(compile(BROKEN, "broken.py", "exec"), names)
    lines = ["[ptanalyze.policies]", *(f"{name} = my_package.broken:{name}" for name in names["MADE"])]
    return installed(tmp_path_factory.mktemp("broken"), "broken", BROKEN, lines), set(names["MADE"])


WITH_A_TRACE = {"server_of", "on_walk", "on_step", "implicit_tables", "between_runs"}


@pytest.mark.parametrize("traced", [True, False])
def test_advise_goes_on_without_what_fails_in_any_of_its_functions(broken, traced):
    package, made = broken
    how = ["--accesses", "4000"] if traced else ["--no-trace"]
    assert asked(package, "synth", "-o", f"made-{traced}", "--size", "16M", *how).returncode == 0
    done = asked(package, "advise", f"made-{traced}", "--csv")
    said = {line.split()[2].rstrip(":"): line for line in done.stderr.splitlines() if "; left out" in line}
    assert done.returncode == 0 and set(said) == made - ({"initial_servers"} if traced else WITH_A_TRACE)
    at = f"broken.py:{line_of('RuntimeError', BROKEN)})"
    for name, line in said.items():
        assert at in line or name in ("says", "server_of", "on_walk", "on_step"), line
    assert said["says"] == "ptanalyze: policy says: a line of its own; left out"
    ranked = set(pandas.read_csv(StringIO(done.stdout))["policy"])
    assert ranked > {"linux", "mitosis", *(made - set(said))} and not ranked & set(said)
    one = asked(package, "advise", f"made-{traced}", "-p", "mitosis,start")
    assert one.returncode == 2 and at in one.stderr and one.stdout == ""


# A policy from outside, as analyzer/docs/add-a-policy.md shows it: it runs, and counts what it should.

PAGE = Path(ptanalyze.__file__).parents[1] / "docs" / "add-a-policy.md"


def on_the_page():
    """{name: its code} of the policies of the page, named by their docstrings."""
    found = re.findall(r"```python\n(\"\"\"(\S+): .*?)```", PAGE.read_text(), re.DOTALL)
    return {name: code for code, name in found}


@pytest.fixture(scope="module")
def documented(tmp_path_factory):
    page = PAGE.read_text()
    group, points = re.search(r"\n\[project\.entry-points\.\"(.*?)\"\]\n(.*?)\n```", page, re.DOTALL).groups()
    lines = [f"[{group}]", points.replace('"', "")]
    where = installed(tmp_path_factory.mktemp("outside"), "big_vmas", on_the_page()["big-vmas"], lines)
    (where / "my_package" / "leaf_moves.py").write_text(on_the_page()["leaf-moves"])
    return where


def answered(package, *arguments):
    done = asked(package, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_pages_policies_run_where_they_are_installed(documented):
    asked = "lookup", "-p", "big-vmas,leaf-moves,mitosis:nodes=0,2", "--csv"
    table = pandas.read_csv(StringIO(answered(documented, "whatif", *asked)))
    rows = {row["policy"]: row for row in table.to_dict("records")}
    base, ours, mitosis = rows["first-touch"], rows["big-vmas"], rows["mitosis"]
    assert 0 < ours["pt_bytes_extra"] < mitosis["pt_bytes_extra"]  # not those of small VMAs
    assert base["leaf_LL_share"] < ours["leaf_LL_share"] <= mitosis["leaf_LL_share"]
    assert rows["leaf-moves"]["pt_bytes_extra"] == 0


def test_the_page_shows_what_its_command_prints(documented):
    page = PAGE.read_text()
    (line,) = re.findall(r"^ptanalyze (whatif lookup .*)$", page, re.MULTILINE)
    (table,) = re.findall(r"```text\n( what .*?)```", page, re.DOTALL)
    printed = [line.rstrip() for line in answered(documented, *line.split()).splitlines()]
    at = printed.index(table.splitlines()[0])
    assert printed[at : at + len(table.splitlines())] == table.splitlines()


def test_copies_of_some_tables_take_thirty_lines():
    assert len(on_the_page()["big-vmas"].splitlines()) <= 30


# Policies stand in one file each, whose functions have types, except for the hooks that Numba compiles.

PLACES = [Path(package.__file__).parent for package in (policies, ptanalyze_policies)]
FILES = [path for place in PLACES for path in sorted(place.glob("*.py"))]
COMPILED = {"hook", "called_hook", "kernel"}


def without_types(text):
    """Names of a file's functions that lack a type and are not compiled."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and not COMPILED & {
            ast.unparse(of).rpartition(".")[2] for of in node.decorator_list
        }:
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            if node.returns is None or any(a.annotation is None for a in arguments if a.arg != "self"):
                yield node.name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_only_hooks_lack_types(path):
    assert not list(without_types(path.read_text("utf-8")))


def test_each_policy_is_in_the_file_of_its_name():
    baselines = ("linux", "first-touch", "interleave", "bind", "ept-reset", "ideal")
    together = dict.fromkeys(baselines, "baselines")
    for name, place in policies.POLICIES.items():
        assert place.partition(".")[0] == together.get(name, name.replace("-", "_"))
        assert policies.find(name).name == name


def test_a_list_says_how_to_have_a_policy_as_answers_do():
    """Once bind, which mainline has, was a research kernel's there."""
    listed = ptanalyze.list_policies().set_index("policy")["availability"].to_dict()
    assert listed == {name: str(policies.availability(name)) for name in policies.policies()}
    assert "numactl --membind=0" in listed["bind"]


# A policy's name in tables, sentences and plots: with the settings that are not the defaults.


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("mitosis", {}, "mitosis"),
        ("mitosis", {"nodes": ""}, "mitosis"),
        ("mitosis", {"nodes": "0,2"}, "mitosis:nodes=0,2"),
        ("mitosis", {"mode": "migrate"}, "mitosis:mode=migrate"),
        ("hydra", {"prefetch": "3", "tlbflush": "off"}, "hydra:prefetch=3:tlbflush=off"),
        ("ptemagnet+mitosis", {"nodes": "2"}, "ptemagnet+mitosis:nodes=2"),
        ("thp+vmitosis-replicate", {"thp.layers": "ept"}, "thp+vmitosis-replicate:thp.layers=ept"),
        ("bind", {"node": "0"}, "bind"),
        ("linux", {}, "linux"),
    ],
)
def test_settings_that_are_not_the_defaults_belong_to_the_name(name, settings, said):
    plan = plan_for(name, settings)
    assert sorted(label(plan.name, plan.params).split(":")) == sorted(said.split(":"))


def test_of_what_is_no_policy_here_only_what_differs_is_known():
    one, other = {"a": 1, "b": "", "c": 2}, {"a": 3, "b": 4, "c": 2}
    assert label("of-a-file", one) == "of-a-file"
    assert label("of-a-file", one, [one, other]) == "of-a-file:a=1"
    assert label("of-a-file", other, [one, other]) == "of-a-file:a=3:b=4"
