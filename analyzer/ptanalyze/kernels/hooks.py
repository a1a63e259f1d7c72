"""How the functions that a replay loop is put together from are compiled."""

from numba import njit

hook = njit(inline="always")
called_hook = njit(nogil=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)  # not from Python
cached_kernel = njit(cache=True, nogil=True, _nrt=False)  # from Python, before the walks
