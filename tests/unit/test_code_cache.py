"""Loops put together at run time are found again by the next process, and only while they are the same."""

import importlib
import multiprocessing
import os
import pwd
import runpy
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from numba import config, njit
from numba.core.dispatcher import Dispatcher

from ptanalyze.kernels.jit import NOWHERE, CodeCache, folder_of, load_code, save_code
from ptanalyze.kernels.replay import grow, replay_for
from ptanalyze.policies import plan_for, policies

NEW = multiprocessing.get_context("forkserver")
NEW.set_forkserver_preload(["numba", "ptanalyze.kernels.jit"])

HOOKS = """
import factors
from numba import njit
from factors import FACTOR, shift

@njit(inline="always")
def add(state, x):
    return factors.plus(shift(state.offset + FACTOR * x), factors.ADDED)
"""
FACTORS = """
from numba import njit

FACTOR = 3
ADDED = 0

@njit
def shift(x):
    return x + 0

@njit
def plus(x, y):
    return x + y
"""
STATE = """
from typing import NamedTuple

class State(NamedTuple):
    offset: int
    unused: int = 0
"""
LOOPS = """
from numba import njit
from ptanalyze.kernels.jit import keep_compiled

def loop_for(hook):
    @njit
    def loop(state, count):
        total = 0
        for x in range(count):
            total += hook(state, x)
        return total
    return keep_compiled(loop)
"""
MAIN = """
from hooks import add
from loops import loop_for
from state import State

loop = loop_for(add)
print(loop(State(1), 5), sum(loop.stats.cache_hits.values()))
"""


@pytest.fixture
def program(tmp_path):
    """run() -> (result, whether its code came from disk) of the modules in .write(name, text)."""
    return Program(tmp_path)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A Program whose code is on disk."""
    program = Program(tmp_path_factory.mktemp("compiled"))
    assert program.run() == (35, False)
    return program


class Program:
    def __init__(self, folder):
        self.folder = folder
        files = {"hooks": HOOKS, "factors": FACTORS, "state": STATE, "loops": LOOPS, "main": MAIN}
        for name, text in files.items():
            self.write(name, text)

    def write(self, name, text):
        (self.folder / f"{name}.py").write_text(text)

    def run(self):
        total, hits = self.ran(NUMBA_CACHE_DIR=str(self.folder / "kept")).stdout.split()
        return int(total), bool(int(hits))

    def ran(self, *arguments, **environment):
        environment |= {"NUMBA_DISABLE_JIT": "0", "TMPDIR": str(self.folder)}  # it goes with the test
        process = NEW.Process(target=started, args=(self.folder, arguments, environment))
        process.start()
        process.join()
        out, err = (self.folder.joinpath(name).read_text() for name in ("out", "err"))
        assert process.exitcode == 0, err
        return SimpleNamespace(stdout=out, stderr=err)


def started(folder, arguments, environment):
    """What a new process does with main.py; it has imported Numba already, which takes longest."""
    os.chdir(folder)
    for fd, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
    os.environ |= environment
    config.reload_config()
    sys.dont_write_bytecode, sys.argv = True, ["main.py", *arguments]
    sys.path.insert(0, str(folder))
    runpy.run_path("main.py", run_name="__main__")


def test_the_next_process_does_not_compile_but_what_calls_that(compiled):
    compiled.write("main", MAIN + "import numba\nassert numba.njit(lambda: loop(State(1), 5))() == 35\n")
    assert compiled.run() == (35, True)
    compiled.write("main", MAIN)


@pytest.mark.parametrize(
    ("name", "old", "new", "result"),
    [
        ("hooks", "state.offset + F", "state.offset - F", -25),
        ("factors", "x + 0", "x + 1", 40),
        ("state", "offset: int\n    unused: int = 0", "unused: int\n    offset: int = 0", 30),
        ("loops", "total = 0", "total = 1", 36),
    ],
    ids=["hook", "callee", "fields", "loop"],
)
def test_what_changed_is_compiled_anew(compiled, name, old, new, result):
    text = {"hooks": HOOKS, "factors": FACTORS, "state": STATE, "loops": LOOPS}[name]
    assert old in text
    compiled.write(name, text.replace(old, new))
    try:
        assert compiled.run() == (result, False)
        assert compiled.run() == (result, True)
    finally:
        compiled.write(name, text)


ALIAS = """
from factors import one, two
from numba import njit

third = {}

@njit
def add(state, x):
    return one(x) + two(x) + third(x)
"""


def test_another_function_under_a_name_is_compiled_anew(program):
    """Both are called by other names, too."""
    text = (
        "from numba import njit\n\n@njit\ndef one(x):\n    return x\n\n@njit\ndef two(x):\n    return 2 * x\n"
    )
    program.write("factors", text)
    for name, result in (("one", 40), ("two", 50)):
        program.write("hooks", ALIAS.format(name))
        assert program.run() == (result, False)


@pytest.mark.parametrize(
    ("imported", "here"), [("from hooks import add", HOOKS), ("from state import State", STATE)]
)
def test_what_no_file_holds_is_not_kept(program, imported, here):
    """The next process knows nothing of `__main__`, a session or a notebook, whose policy may lend its state
    to hooks of the package."""
    program.write("main", MAIN.replace(imported, here))
    assert program.run() == program.run() == (35, False)


def test_without_a_directory_to_write_to_it_compiles_and_says_so_in_one_line(program):
    ran = program.ran(NUMBA_CACHE_DIR="/dev/null")
    assert ran.stdout.split() == ["35", "0"]
    assert ran.stderr.splitlines() == [f"ptanalyze: {NOWHERE}"]


def test_a_user_without_a_home_keeps_code_beside_its_source(tmp_path, monkeypatch):
    """In a container, for instance, that runs under a number that no passwd file names."""
    for name in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    (source := tmp_path / "source.py").touch()
    (tmp_path / "__pycache__").mkdir(0o700)
    exec(compile("def one(): pass", source, "exec"), module := {})
    assert folder_of(module["one"]) == tmp_path / "__pycache__"
    source.unlink()
    assert folder_of(module["one"]) is None


def test_all_checkouts_share_the_code_of_our_kernels_and_others_keep_theirs(tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (source := tmp_path / "source.py").touch()
    exec(compile("def one(): pass", source, "exec"), module := {"__name__": "ptanalyze.kernels.one"})
    assert folder_of(module["one"]) == tmp_path / "cache/ptanalyze/code"
    module["one"].__module__ = "one"
    assert folder_of(module["one"]) == tmp_path / "__pycache__"


TOGETHER = """
import os
from hooks import add, plain
from loops import loop_for
from ptanalyze.kernels.jit import compile_together
from state import State

os.sched_getaffinity = lambda process: {0, 1}
loop, other = loop_for(add), loop_for(plain)
compile_together([(loop, lambda: (State(1), 5)), (len, None), (other, lambda: (State(1), 5))])
print(loop(State(1), 5) + other(State(1), 5), sum(loop.stats.cache_hits.values()))
"""


def test_what_children_compiled_side_by_side_is_found_on_disk(program):
    program.write("main", TOGETHER)
    program.write("hooks", HOOKS + "\n@njit\ndef plain(state, x):\n    return state.offset\n")
    assert program.run() == (40, True)


NAMES = """
import os
from hooks import add
from loops import loop_for
from ptanalyze.kernels.jit import CodeCache
from state import State

CodeCache.load_overload = lambda *_: None  # or a child finds what its parent has kept by then
child = os.fork()
loop = loop_for(add)
loop(State(1), 5)
code, = loop.overloads.values()
os.write(1, f"{code.fndesc.mangled_name}\\n".encode())  # in one piece: both write to the same pipe
if child:
    os.waitpid(child, 0)
"""


def test_no_two_processes_give_two_functions_one_name(program, tmp_path):
    """A process that finds both on disk would run the code of the first for both."""
    program.write("main", NAMES)
    runs = [program.ran(NUMBA_CACHE_DIR=str(tmp_path / name)).stdout.split() for name in ("one", "other")]
    names = [name for run in runs for name in run]
    assert len(names) == len(set(names)) == 4 and all("loop" in name for name in names)


@pytest.mark.parametrize("where", ["middle", "cut"])
def test_code_that_is_damaged_is_compiled_anew_and_mended(program, where):
    program.run()
    (file,) = (program.folder / "kept").rglob("*.ptcode")
    content = bytearray(file.read_bytes())
    if where == "cut":
        content = content[:-100]
    else:
        content[len(content) // 2] ^= 4
    file.write_bytes(content)
    assert program.run() == (35, False)
    assert program.run() == (35, True)


def test_the_code_of_another_key_is_not_run(program):
    program.run()
    program.write("hooks", HOOKS.replace("state.offset + F", "state.offset - F"))
    (first,) = (program.folder / "kept").rglob("*.ptcode")
    assert program.run() == (-25, False)
    (second,) = set((program.folder / "kept").rglob("*.ptcode")) - {first}
    os.replace(first, second)
    assert program.run() == (-25, False)


def test_in_a_directory_that_others_can_write_to_code_is_neither_run_nor_kept(program):
    program.run()
    (program.folder / "kept").chmod(0o770)
    assert program.run() == program.run() == (35, False)


@pytest.mark.parametrize("name", policies())
def test_every_policys_loop_can_be_kept(name):
    plan = plan_for(name, {"node": 1} if name == "bind" else {})
    loop = replay_for(plan.guest[0].hooks, plan.host[0].hooks)
    if isinstance(loop, Dispatcher):
        assert isinstance(loop._cache, CodeCache) and loop._cache.text


@pytest.mark.skipif(config.DISABLE_JIT, reason="about what is compiled")
def test_what_only_compiled_code_can_call_says_so_and_does_not_end_the_process():
    grown = np.zeros(2, np.int64)
    grow_in_loop(grown)
    assert grown.tolist() == [3, 3]
    with pytest.raises(TypeError, match="grow: only compiled code can call it"):
        grow(grown, 1)


@njit
def grow_in_loop(pages):
    grow(pages, 3)


@pytest.mark.parametrize("left", ["", "Other = 1\n"])
def test_code_of_a_module_that_was_moved_is_compiled_again(tmp_path, monkeypatch, left):
    """After an upgrade: kept code is pickled by the names of modules, and its key does not hold them."""
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "moved_away.py"
    module.write_text("class Signature: pass\n")
    save_code(path := tmp_path / "kernel.ptcode", __import__("moved_away").Signature())
    assert load_code(path) is not None
    monkeypatch.delitem(sys.modules, "moved_away")
    module.write_text(left) if left else module.unlink()
    importlib.invalidate_caches()
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    assert load_code(path) is None
