"""How Numba compiles our functions, and where compiled code is kept: without counting references
(_nrt=False), without the GIL, on disk under a key that says what the code is.

Arguments of other types, also a literal number in place of an int64, have a function compiled once more.

Numba's own key (`cache=True`) knows the time of one source file, not of the helpers that are compiled into
the code, and not the hooks of a loop that is put together at run time; and its index of a function's code is
a second file, so that two processes that compile for different types can leave the code of one under the key
of the other. Here the key is byte code, constants, globals and closures, through all functions that are
called, and each key has a file of its own: a changed helper or hook is recompiled, wherever it is written.

Compiled functions call each other by name. Numba makes names unique by a number that each process counts
from 1. A process that found the code of two others could have two functions of one name, and ran the first
for both. Here each process, and each child, counts from a random number.
"""

import gc
import hashlib
import inspect
import itertools
import os
import pickle
import re
import stat
import sys
import tempfile
import warnings
from contextlib import suppress
from functools import cache, cached_property, partial
from pathlib import Path
from select import select
from time import monotonic
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

import llvmlite.binding as llvm
import llvmlite.ir
import numba
import numpy as np
from numba import njit, typeof
from numba.core import types
from numba.core.bytecode import FunctionIdentity
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature
from numba.extending import register_jitable

# Compiled code on disk: a file per key, a SHA-256 first, in a directory that only this user can write to.
# Code that is damaged, that is in another's file, or that somebody else may have left, is as good as none.

FORMAT = "names counted from a random number, the sum of file name and code first"  # other code is not read
SUM = 32  # bytes of a SHA-256
SUFFIX = ".ptcode"
OTHERS = stat.S_IWGRP | stat.S_IWOTH
COMPILING = "compiling, once per user and version; a first whatif takes about 15 s where CPUs are free"
NOWHERE = "no directory of yours alone to keep compiled code in, so each run compiles; set NUMBA_CACHE_DIR"


def folder_of(function):
    """Directory for a function's code: $NUMBA_CACHE_DIR, else beside its source or in the user's cache, which
    comes first for ours: all checkouts share it.

    None where none of these is the user's alone and can be written to: root leaves no files with others.
    """
    named, source = os.environ.get("NUMBA_CACHE_DIR"), Path(inspect.getfile(function))
    places = [source.parent / "__pycache__"] if source.exists() else []
    with suppress(RuntimeError):  # a user without a home
        users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "ptanalyze", "code")
        if not users.parent.exists() or users.parent.stat().st_uid == os.geteuid():
            places = [users, *places] if is_ours(function) else [*places, users]
    for place in [Path(named)] if named else places:
        with suppress(OSError):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = os.stat(place)
            if status.st_uid == os.geteuid() and not status.st_mode & OTHERS and os.access(place, os.W_OK):
                return place
    return None


@cache
def folder_of_this_run():
    """A directory that goes when the process ends: its children can compile at once."""
    say(NOWHERE)
    return tempfile.TemporaryDirectory(prefix="ptanalyze-")


def load_code(path):
    """What save_code left in a file, or None; None too where it names a module that this version lacks."""
    with suppress(OSError, ImportError, AttributeError):
        content = path.read_bytes()
        if content[:SUM] == sum_of(path, content[SUM:]):
            return pickle.loads(content[SUM:])
    return None


def save_code(path, code):
    """Keep a picklable value; OSError where there is no room."""
    content = dumps(code)
    fd, name = tempfile.mkstemp(prefix=".ptcode-", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(sum_of(path, content) + content)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def sum_of(path, content):
    """SHA-256 of code and of its file's name, which holds the key: a file under another's name is damaged."""
    return hashlib.sha256(os.fsencode(path.name) + content).digest()


def count_from_random():
    """Give this process numbers for the names of its functions that no other process has."""
    FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(8), "big"))


count_from_random()
os.register_at_fork(after_in_child=count_from_random)


def keep_compiled(function):
    """Let a jitted function look for its compiled code on disk, and leave it there; returns the function.

    Nothing is kept of code in `__main__`; beyond this run, nor where there is no directory to write to.
    """
    if isinstance(function, Dispatcher):
        function._cache = CodeCache(function)
    return function


class CodeCache:
    """What numba.core.caching.Cache is to a dispatcher; files for each key, so that many write at once."""

    cache_path = None  # Numba's own reports name it

    def __init__(self, function):
        self.function = function

    @cached_property
    def folder(self):
        """Where its code is kept."""
        return folder_of(self.function.py_func) or Path(folder_of_this_run().name)

    @cached_property
    def text(self):
        """What the code says, None where that is not known."""
        with suppress(NoKey):
            return "\n".join(described(self.function, {}))

    def path(self, signature, codegen):
        """File of the code for argument types, a tuple or a Numba signature, and a CPU; None: not kept."""
        arguments, _ = normalize_signature(signature)
        about = [FORMAT, sys.version, numba.__version__, *map(repr, codegen.magic_tuple())]
        with suppress(NoKey):
            about += [*map(str, arguments), *(text for argument in arguments for text in fields_of(argument))]
            if self.text:
                key = hashlib.sha256("\n".join([*about, self.text]).encode()).hexdigest()[:32]
                name = re.sub("[<>]", "", f"{self.function.__module__}.{self.function.py_func.__qualname__}")
                return self.folder / f"{name}.{key}{SUFFIX}"
        return None

    def load_overload(self, signature, target):
        """The compiled result, or None; all of Numba is only imported to compile."""
        if self.function.targetoptions.get("_nrt", True):
            rtsys.initialize(target)
        path = self.path(signature, target.codegen())
        if kept := path and load_code(path):
            linked = self.function.targetoptions.get("no_cpython_wrapper")
            return CompileResult._rebuild(target, *kept) if linked else loaded(target, *kept)
        if path and sys.stderr.isatty():
            say(COMPILING)
        return None

    def save_overload(self, signature, compiled):
        """Keep it for the next process, if its types have a key there and there is room."""
        path = self.path(signature, compiled.codegen)
        if path and not compiled.library.has_dynamic_globals and all(of.can_cache for of in compiled.lifted):
            *code, environments = compiled._reduce()
            ours = tuple(one for one in environments if not one.globals["__name__"].startswith("numba."))
            with suppress(OSError):
                save_code(path, (*code, ours))


def loaded(target, library, function, *others):
    """CompileResult of machine code; of LLVM code, most of the time, only where a caller is compiled."""
    name, kind, (machine_code, whole) = library
    target.codegen()._engine._defined_symbols.add(function.llvm_cpython_wrapper_name)
    nothing = llvm.parse_assembly("").as_bitcode()
    result = CompileResult._rebuild(target, (name, kind, (machine_code, nothing)), function, *others)
    result.library._get_module_for_linking = cache(partial(llvm.parse_bitcode, whole))
    return result


@cache
def say(line):
    """Say it once."""
    print(f"ptanalyze: {line}", file=sys.stderr)


# What compiled code says, as text: the key of its file.

PLAIN = (int, float, str, bytes, type(None), type(...), np.generic)
WRITTEN = (*PLAIN, llvmlite.ir.Type, llvmlite.ir.Constant)
NAMED = (type, BuiltinFunctionType, np.ufunc)
OURS = __package__.partition(".")[0]


class NoKey(Exception):
    """The code refers to an object without a process-independent key."""


def described(thing, seen):
    """Texts that are equal in another process if and only if compiled code that uses `thing` is.

    seen  {function: its number} of those described before, which is all that is said of them again

    NoKey for what is not known to be so.
    """
    if isinstance(thing, Dispatcher):
        yield repr(sorted(thing.targetoptions.items()))
        thing = thing.py_func
    elif isinstance(thing, _Intrinsic):
        thing = thing._defn
    if getattr(thing, "__module__", "") == "__main__":
        raise NoKey(repr(thing))
    if isinstance(thing, FunctionType):
        new = thing not in seen
        yield f"function {seen.setdefault(thing, len(seen))}"
        if new:
            yield from code(thing.__code__, thing.__globals__, seen)
            cells = [cell.cell_contents for cell in thing.__closure__ or ()]
            yield from described((*cells, thing.__defaults__), seen)
    elif isinstance(thing, tuple):
        yield f"tuple of {len(thing)}"
        for part in thing:
            yield from described(part, seen)
    elif isinstance(thing, np.ndarray):
        yield f"{thing.dtype} {thing.shape} {hashlib.sha256(thing.tobytes()).hexdigest()}"
    elif isinstance(thing, WRITTEN):
        yield f"{type(thing).__name__} {thing!r}"
    elif isinstance(thing, ModuleType):
        yield thing.__name__
    elif isinstance(thing, NAMED):
        yield f"{getattr(thing, '__module__', 'numpy')} {thing.__name__} {getattr(thing, '_fields', '')}"
    else:
        raise NoKey(repr(thing))


def fields_of(kind):
    """Texts that tell a Numba type from others of its name: named tuples by class and fields."""
    if isinstance(kind, types.BaseNamedTuple):
        yield from described(kind.instance_class, {})
        for member in kind.types:
            yield from fields_of(member)


def code(block, names, seen):
    """Texts of byte code, its constants and the globals it may mean, with what it may name of modules."""
    yield f"{block.co_code.hex()} {block.co_names} {block.co_varnames} {block.co_freevars}"
    for constant in block.co_consts:
        yield from (
            code(constant, names, seen) if isinstance(constant, CodeType) else described(constant, seen)
        )
    for thing in (names[name] for name in block.co_names if name in names):
        yield from described(thing, seen)
        for name in block.co_names if isinstance(thing, ModuleType) else ():
            member = getattr(thing, name, None)
            inlined = isinstance(member, FunctionType) and is_ours(member)  # by register_jitable
            if inlined or isinstance(member, (Dispatcher, tuple, np.ndarray, *PLAIN)):
                yield from described(member, seen)


def is_ours(function) -> bool:
    """Whether a function is of this package, and not of a policy from outside."""
    return f"{function.__module__}.".startswith(f"{OURS}.")


# Decorators: who calls a function, and what it may do.


def within(function):
    """Options of njit for what only compiled code calls. An index in a hook from outside is checked."""
    options = {"nogil": True, "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return options | ({} if is_ours(function) else {"boundscheck": True})


def kernel(function):
    """Compile what Python calls; it allocates nothing."""
    return keep_compiled(njit(nogil=True, _nrt=False, no_cfunc_wrapper=True)(function))


def allocating_kernel(function):
    """Compile what Python calls; it may make arrays, outside its loops."""
    return keep_compiled(njit(nogil=True, no_cfunc_wrapper=True)(function))


def called_hook(function):
    """Compile what only compiled code calls."""
    return keep_compiled(not_from_python(njit(**within(function))(function)))


def hook(function):
    """Compile what only compiled code calls, into it: by LLVM, as Numba's own inlining takes much longer."""
    return not_from_python(njit(forceinline=True, **within(function))(function))


def either(function):
    """Leave a function as it is for Python, and compile it for what is compiled and calls it.

    A kernel that calls such functions alone can run as Python (py_func) too, where there is little to do.
    """
    return register_jitable(nogil=True, _nrt=False, no_cfunc_wrapper=True)(function)


def not_from_python(function):
    """Without a wrapper for Python, which takes long to compile, a call would end the process: refuse it."""

    def refuse(*arguments, **named):
        why = "only compiled code can call it; put the call into a numba.njit"
        raise TypeError(f"{function.__name__}: {why}")

    if isinstance(function, Dispatcher):
        function._compile_for_args, function._insert = refuse, lambda *overload, **how: None
    return function


# Compile what a run needs in parallel processes: Numba uses one CPU, and a first run is little else.

MOST = 255  # functions: their numbers are bytes
EACH = 1.5  # CPU seconds to compile one
SILENT = 5  # seconds at most


def compile_together(calls):
    """Compile the functions of `calls` that never were, in this order; none is called. Returns their number.

    calls  (function, what returns its arguments) each

    Children leave the code on disk, where the call then finds it. With fewer CPUs nothing happens here and
    each call compiles what it lacks.
    """
    missing = lacking(calls)[:MOST]
    children = min(len(os.sched_getaffinity(0)), len(missing))
    if children < 2:
        return 0
    seconds = max(round(EACH * len(missing) / children), 1)
    if seconds >= SILENT:
        say(f"compiling {len(missing)} functions, about {seconds} s on free CPUs, once per user and version")
    (numbers, end), (ended, tell) = os.pipe(), os.pipe()
    os.write(end, bytes(range(len(missing))))
    os.close(end)
    started = [in_child(missing, numbers, tell) for _ in range(children)]
    os.close(tell)
    done, heard, said, before = 0, b" ", monotonic(), -1
    while heard:  # until no child can write any more
        if select([ended], [], [], max(said + SILENT - monotonic(), 0))[0]:
            heard = os.read(ended, MOST)
            done += len(heard)
        else:
            if done > before and sys.stderr.isatty():
                print(f"ptanalyze: {done} of {len(missing)} compiled", file=sys.stderr)
            said, before = monotonic(), done
    for child in started:
        os.waitpid(child, 0)
    os.close(numbers)
    os.close(ended)
    return len(missing)


def lacking(calls):
    """[(function, types of its arguments)] of those that were never compiled, but could be kept on disk."""
    missing = []
    for function, arguments in calls:
        if isinstance(getattr(function, "_cache", None), CodeCache) and not function.overloads:
            of = tuple(map(typeof, arguments()))
            path = function._cache.path(of, function.targetctx.codegen())
            if path and not path.exists():
                missing.append((function, of))
    return missing


def in_child(missing, numbers, tell):
    """PID of a child that compiles one function after the other whose number is next in the pipe, and tells.

    It says nothing of failures: the parent meets them when it compiles itself. Of the locks that other
    threads may hold, only that of Numba's compiler concerns the child.
    """
    with global_compiler_lock, warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        child = os.fork()
    if child == 0:
        try:
            gc.disable()
            while number := os.read(numbers, 1):
                function, of = missing[number[0]]
                function.compile(of)
                os.write(tell, number)
        finally:
            os._exit(0)
    return child
