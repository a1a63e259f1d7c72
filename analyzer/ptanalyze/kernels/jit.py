"""How Numba compiles our functions, and where compiled code is kept: without counting references
(_nrt=False), without the GIL, on disk under a key that says what the code is.

Arguments of other types, also a literal number in place of an int64, have a function compiled once more.

Numba's own key knows the time of one source file, not of the helpers that are compiled into the code, and not
the hooks of a loop that is put together at run time. Here it is byte code, constants, globals and closures,
through all functions that are called: a changed helper or hook is recompiled, wherever it is written.

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
from functools import cache, cached_property
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

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
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature
from numba.extending import register_jitable

# Compiled code on disk: a file per key with a checksum, in a directory that only this user can write to.
#
# Code that is damaged, or that somebody else may have left, is as good as none.

MAGIC = b"ptanalyze code 1"
SUM = 32  # bytes of a SHA-256
SUFFIX = ".ptcode"
OTHERS = stat.S_IWGRP | stat.S_IWOTH


def folder_of(function):
    """Directory for a function's code: $NUMBA_CACHE_DIR, else beside its source, else in the user's cache.

    None where none of these is the user's alone and can be written to: root leaves no files with others.
    """
    named, source = os.environ.get("NUMBA_CACHE_DIR"), Path(inspect.getfile(function))
    places = [source.parent / "__pycache__"] if source.exists() else []
    with suppress(RuntimeError):  # a user without a home
        own = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        places.append(Path(own, "ptanalyze", "code"))
    for place in [Path(named)] if named else places:
        with suppress(OSError):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = os.stat(place)
            if status.st_uid == os.geteuid() and not status.st_mode & OTHERS and os.access(place, os.W_OK):
                return place
    return None


class KeptCode:
    """The file of a key: MAGIC, the SHA-256 of what follows, the key, pickled code."""

    def __init__(self, folder, name, key):
        self.path, self.key = Path(folder) / f"{name}.{key}{SUFFIX}", key.encode()

    def load(self):
        """What was saved, or None; None too where it names a module that this version does not have."""
        try:
            content = self.path.read_bytes()
        except OSError:
            return None
        head = len(MAGIC) + SUM
        whole = content[:head] == MAGIC + hashlib.sha256(content[head:]).digest()
        if not whole or not content.startswith(self.key, head):
            return None
        with suppress(ImportError, AttributeError):
            return pickle.loads(content[head + len(self.key) :])
        return None

    def save(self, code):
        """Keep a picklable value; OSError where there is no room."""
        content = self.key + dumps(code)
        fd, name = tempfile.mkstemp(prefix=".ptcode-", dir=self.path.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(MAGIC + hashlib.sha256(content).digest() + content)
            os.replace(name, self.path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise


NOWHERE = "no directory of yours alone to keep compiled code in, so each run compiles; set NUMBA_CACHE_DIR"
NAMING = "counted from a random number"  # code that was kept before has other names
PLAIN = (int, float, str, bytes, type(None), type(...), np.generic)
NAMED = (type, BuiltinFunctionType, np.ufunc)
WRITTEN = (llvmlite.ir.Type, llvmlite.ir.Constant)


def count_from_random():
    """Give this process numbers for the names of its functions that no other process has."""
    FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(8), "big"))


count_from_random()
os.register_at_fork(after_in_child=count_from_random)


class NoKey(Exception):
    """The code refers to an object without a process-independent key."""


def keep_compiled(function):
    """Let a jitted function look for its compiled code on disk, and leave it there; returns the function.

    Nothing is kept of code in `__main__`, nor where there is no directory to write to.
    """
    if isinstance(function, Dispatcher):
        function._cache = CodeCache(function)
    return function


class CodeCache:
    """What numba.core.caching.Cache is to a dispatcher; with files of its own for each key, so that processes
    may write at the same time.
    """

    def __init__(self, function):
        self.function = function

    @cached_property
    def folder(self):
        """Where its code is kept; NoKey where no directory can be written to."""
        folder = folder_of(self.function.py_func)
        if folder is None:
            say(NOWHERE)
            raise NoKey(self.function.py_func.__qualname__)
        return folder

    @property
    def cache_path(self):
        """Numba's own reports name it."""
        with suppress(NoKey):
            return str(self.folder)

    @cached_property
    def text(self):
        """What the code says; NoKey where that is not known."""
        return "\n".join(described(self.function, set()))

    def file_of(self, signature, codegen):
        """Where the code for argument types, a tuple or a Numba signature, and a CPU is, or would be."""
        arguments, _ = normalize_signature(signature)
        about = [NAMING, sys.version, numba.__version__, *map(repr, codegen.magic_tuple())]
        about += [*map(str, arguments), *(text for argument in arguments for text in fields_of(argument))]
        key = hashlib.sha256("\n".join([*about, self.text]).encode()).hexdigest()[:32]
        name = re.sub("[<>]", "", f"{self.function.__module__}.{self.function.py_func.__qualname__}")
        return KeptCode(self.folder, name, key)

    def has(self, signature, codegen):
        """True if the code is there, or cannot be kept."""
        with suppress(NoKey):
            return self.file_of(signature, codegen).path.exists()
        return True

    def load_overload(self, signature, target):
        """The compiled result, or None."""
        target.refresh()
        kept = None
        with suppress(NoKey):
            kept = self.file_of(signature, target.codegen()).load()
        return None if kept is None else CompileResult._rebuild(target, *kept)

    def save_overload(self, signature, compiled):
        """Keep it for the next process, if its types have a key there and there is room."""
        with suppress(NoKey, OSError):
            if not compiled.library.has_dynamic_globals and all(part.can_cache for part in compiled.lifted):
                self.file_of(signature, compiled.codegen).save(compiled._reduce())


def say_compiling():
    """A line for whoever waits at a terminal."""
    if sys.stderr.isatty():
        say("compiling kernels, once per machine")


@cache
def say(line):
    """Say it once."""
    print(f"ptanalyze: {line}", file=sys.stderr)


def fields_of(kind):
    """Texts that tell a Numba type from others of its name: named tuples by class and fields."""
    if isinstance(kind, types.BaseNamedTuple):
        yield from described(kind.instance_class, set())
        for member in kind.types:
            yield from fields_of(member)


def described(thing, seen):
    """Texts that are equal in another process if and only if compiled code that uses `thing` is.

    NoKey for what is not known to be so.
    """
    if isinstance(thing, Dispatcher):
        yield repr(sorted(thing.targetoptions.items()))
        thing = thing.py_func
    elif isinstance(thing, _Intrinsic):
        thing = thing._defn
    if isinstance(thing, FunctionType):
        if thing.__module__ == "__main__":
            raise NoKey(thing.__qualname__)
        if thing in seen:
            return
        seen.add(thing)
        yield from code(thing.__code__, thing.__globals__, seen)
        for cell in thing.__closure__ or ():
            yield from described(cell.cell_contents, seen)
        yield from described(thing.__defaults__, seen)
    elif isinstance(thing, PLAIN):
        yield f"{type(thing).__name__} {thing!r}"
    elif isinstance(thing, tuple):
        yield f"tuple of {len(thing)}"
        for one in thing:
            yield from described(one, seen)
    elif isinstance(thing, np.ndarray):
        yield f"{thing.dtype} {thing.shape} {hashlib.sha256(thing.tobytes()).hexdigest()}"
    elif isinstance(thing, WRITTEN):
        yield str(thing)
    elif isinstance(thing, ModuleType):
        yield thing.__name__
    elif isinstance(thing, NAMED):
        module = getattr(thing, "__module__", "numpy")
        if module == "__main__":
            raise NoKey(thing.__name__)
        yield f"{module} {thing.__name__} {getattr(thing, '_fields', '')}"
    else:
        raise NoKey(repr(thing))


def code(block, names, seen):
    """Texts of byte code, its constants and the globals it may mean."""
    yield f"{block.co_code.hex()} {block.co_names} {block.co_varnames} {block.co_freevars}"
    for constant in block.co_consts:
        if isinstance(constant, CodeType):
            yield from code(constant, names, seen)
        else:
            yield from described(constant, seen)
    for name in block.co_names:
        if name in names:
            yield from described(names[name], seen)
            yield from members(names[name], block.co_names, seen)


def members(thing, names, seen):
    """Texts of the compiled functions and constants of a module that some code names."""
    for name in names if isinstance(thing, ModuleType) else ():
        member = getattr(thing, name, None)
        inlined = isinstance(member, FunctionType) and is_ours(member)  # by register_jitable
        if inlined or isinstance(member, (Dispatcher, tuple, np.ndarray, *PLAIN)):
            yield from described(member, seen)


OURS = __package__.partition(".")[0]


def is_ours(function) -> bool:
    """Whether a function is of this package, and not of a policy from outside."""
    return f"{function.__module__}.".startswith(f"{OURS}.")


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

    A kernel that calls such functions alone can run `uncompiled` too, where there is little to do.
    """
    return register_jitable(nogil=True, _nrt=False, no_cfunc_wrapper=True)(function)


def uncompiled(function):
    """The Python function behind a kernel."""
    return getattr(function, "py_func", function)


def check_types(state):
    """Raise what Numba says of a state that compiled code cannot take."""
    typeof(state)


def not_from_python(function):
    """Without a wrapper for Python, which takes long to compile, a call would end the process: refuse it."""

    def refuse(*arguments, **named):
        raise TypeError(
            f"{function.__name__}: only compiled code can call it; put the call into a numba.njit"
        )

    if isinstance(function, Dispatcher):
        function._compile_for_args, function._insert = refuse, lambda *overload, **how: None
    return function


# Compile what a run needs in parallel processes: Numba uses one CPU, and a first run is little else.

MOST = 255  # functions: their numbers are bytes
beside = {}  # PID of a child of compile_beside -> its functions


def compile_together(calls, least=2):
    """Compile the functions of `calls` that never were, in this order; none is called. Returns their number.

    calls  (function, what returns its arguments) each
    least  processes that are worth it

    Children leave the code on disk, where the call then finds it; those of compile_beside are waited for.
    With fewer CPUs, or nowhere to leave code, nothing happens here and each call compiles what it lacks.
    """
    begun = {function for functions in beside.values() for function in functions}
    missing = lacking((function, arguments) for function, arguments in calls if function not in begun)
    children = min(len(os.sched_getaffinity(0)), len(missing))
    running = in_children(missing, children) if children >= least or beside else []
    for child in [*running, *beside]:
        os.waitpid(child, 0)
    beside.clear()
    return len(missing) if running else 0


def compile_beside(calls):
    """Begin to compile the functions of `calls` in a child; compile_together is to follow.

    With one CPU, or nowhere to leave code, nothing happens.
    """
    missing = lacking(calls)
    if missing and len(os.sched_getaffinity(0)) > 1:
        (child,) = in_children(missing, 1)
        beside[child] = [function for function, _ in missing]


def lacking(calls):
    """[(function, types of its arguments)] of those that were never compiled."""
    new = [
        (function, arguments)
        for function, arguments in calls
        if isinstance(function, Dispatcher) and not function.overloads
    ]
    typed = [(function, tuple(map(typeof, arguments()))) for function, arguments in new]
    return [(function, types) for function, types in typed if not kept(function, types)][:MOST]


def in_children(missing, children):
    """[PID] of children that share the functions out among themselves."""
    numbers, end = os.pipe()
    os.write(end, bytes(range(len(missing))))
    os.close(end)
    running = [in_child(missing, numbers) for _ in range(children)]
    os.close(numbers)
    return running


def kept(function, types):
    """True if the code is on disk, or cannot be kept there."""
    return not isinstance(function._cache, CodeCache) or function._cache.has(
        types, function.targetctx.codegen()
    )


def in_child(missing, numbers):
    """PID of a child that compiles one function after the other whose number is next in the pipe.

    It says nothing of failures: the parent meets them when it compiles itself. Of the locks that other
    threads may hold, only that of Numba's compiler concerns the child.
    """
    with global_compiler_lock, warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        child = os.fork()
    if child == 0:
        try:
            gc.disable()
            while number := os.read(numbers, 1):
                function, types = missing[number[0]]
                function.compile(types)
        finally:
            os._exit(0)
    return child
