"""Where do page walks go on a NUMA machine, and what would a better page-table placement change?

    import ptanalyze
    ptanalyze.whatif("app.capture", ["mitosis", "hydra"])

Every question of the command line is a function here that returns a tidy pandas.DataFrame; `plots` draws
them. A capture is a directory, a Capture from `load`, or None: this directory, the newest capture in it, or
the bundled sample. A machine is a name of `list_machines`, a TOML file or a Machine. A Setup holds the
machine, its costs and all other options of a replay. Every table has attrs with plain values: "units"
{column: unit}, "findings"
(what a reader should know, line by line), "provenance" (what makes it reproducible).

All functions raise core.errors.UsageError for what cannot be asked (it names the parameter and the way out),
and core.errors.CaptureError for a damaged capture. How the numbers come about: docs/data-path.md.
"""

import os
import sys

if os.environ.get("SUDO_UID", "0") != "0" and os.geteuid() == 0:
    sys.dont_write_bytecode = True  # it would be root's, in the checkout or venv of whoever typed sudo
    try:  # what Python wrote for this file before it ran
        cache, name = os.path.split(str(__spec__ and __spec__.cached))
        inside = os.open(cache, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.stat(__file__).st_uid and not os.lstat(name, dir_fd=inside).st_uid:
                os.unlink(name, dir_fd=inside)
            if os.stat(__file__).st_uid and not os.fstat(inside).st_uid:
                os.rmdir(cache)  # fails unless it is empty
        finally:
            os.close(inside)
    except OSError:
        pass

from .core.lazy import attach

API, __getattr__ = attach(__name__, __file__)
__all__ = list(API)


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | {*API})
