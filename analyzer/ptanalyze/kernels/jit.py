"""How Numba compiles our functions: without counting references (_nrt=False) and without the GIL.

Arguments of other types, also a literal number in place of an int64, have a function compiled once more.
"""

import gc
import os
import warnings

from numba import njit, typeof
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.extending import register_jitable

from .code_cache import CodeCache, keep_compiled

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
    new = [(function, arguments) for function, arguments in calls if uncompiled_first_use(function)]
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


def uncompiled_first_use(function):
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
