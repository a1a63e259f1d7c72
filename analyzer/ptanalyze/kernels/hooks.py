"""How Numba compiles our functions: without counting references (_nrt=False) and without the GIL.

Arguments of other types, also a literal number in place of an int64, have a function compiled once more.
"""

from numba import njit, typeof
from numba.core.dispatcher import Dispatcher
from numba.extending import register_jitable

from .code_cache import keep_compiled

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
