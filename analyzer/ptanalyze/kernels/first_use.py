"""Compile what a run needs in parallel processes: Numba uses one CPU, and a first run is little else."""

import gc
import os
import warnings

from numba import typeof
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

from .code_cache import CodeCache, say_compiling

MOST = 255  # functions: their numbers are bytes
beside = {}  # PID of a child of compile_beside -> its functions


def compile_together(calls):
    """Compile the functions of `calls` that never were, in this order; none is called.

    calls  (function, what returns its arguments) each

    Children leave the code on disk, where the call then finds it; those of compile_beside are waited for.
    With one CPU, or nowhere to leave code, nothing happens here and each call compiles what it lacks.
    """
    begun = {function for functions in beside.values() for function in functions}
    missing = lacking((function, arguments) for function, arguments in calls if function not in begun)
    children = min(len(os.sched_getaffinity(0)), len(missing))
    running = in_children(missing, children) if children > 1 or beside else []
    for child in [*running, *beside]:
        os.waitpid(child, 0)
    beside.clear()


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
    new = [(function, arguments) for function, arguments in calls if uncompiled(function)]
    typed = [(function, tuple(map(typeof, arguments()))) for function, arguments in new]
    return [(function, types) for function, types in typed if not kept(function, types)][:MOST]


def in_children(missing, children):
    """[PID] of children that share the functions out among themselves."""
    if missing:
        say_compiling()
    numbers, end = os.pipe()
    os.write(end, bytes(range(len(missing))))
    os.close(end)
    running = [in_child(missing, numbers) for _ in range(children)]
    os.close(numbers)
    return running


def uncompiled(function):
    """True if this process has no code of the function yet."""
    return isinstance(function, Dispatcher) and not function.overloads


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
