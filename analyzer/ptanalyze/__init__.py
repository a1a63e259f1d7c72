"""Where do page walks go on a NUMA machine, and what would a better page-table placement change?

    import ptanalyze
    ptanalyze.whatif("app", ["mitosis", "hydra"])

Every question of the command line is a function here that returns a tidy pandas.DataFrame; `plots` draws
them. A capture is a directory, a Capture from `load`, or None: the newest capture here, else the bundled
sample. A machine is a name of `list_machines`, a TOML file or a Machine. A Setup holds the machine, its costs
and all other options of a replay. Every table has attrs with plain values: "units" {column: unit}, "findings"
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

from .core.version import __version__

TYPE_CHECKING = False  # as type checkers know it; `typing` takes 10 ms, in which Ctrl-C is a traceback
if TYPE_CHECKING:
    from typing import Any

    from ptanalyze_synth.capture import synth

    from .analysis.advise import advise
    from .analysis.catalogue import list_machines, list_policies
    from .analysis.classify import classify, fragmentation
    from .analysis.compare import compare
    from .analysis.frames import page_tables
    from .analysis.run_time import calibrate, predict
    from .analysis.setup import Setup
    from .analysis.size import sizes, two_sizes
    from .analysis.sweep import sweep
    from .analysis.walk import walk, walk_map
    from .analysis.whatif import reads, replay, timeline, whatif
    from .formats.capture import load
    from .show import plots
    from .show.explore import explore
    from .show.report.page import report

API = {  # name -> the module that defines it, imported when the name is first asked for
    "load": "formats.capture",
    "Setup": "analysis.setup",
    "classify": "analysis.classify",
    "whatif": "analysis.whatif",
    "replay": "analysis.whatif",
    "reads": "analysis.whatif",
    "timeline": "analysis.whatif",
    "sizes": "analysis.size",
    "sweep": "analysis.sweep",
    "two_sizes": "analysis.size",
    "compare": "analysis.compare",
    "advise": "analysis.advise",
    "report": "show.report.page",
    "fragmentation": "analysis.classify",
    "walk": "analysis.walk",
    "walk_map": "analysis.walk",
    "page_tables": "analysis.frames",
    "calibrate": "analysis.run_time",
    "predict": "analysis.run_time",
    "synth": "ptanalyze_synth.capture",
    "list_policies": "analysis.catalogue",
    "list_machines": "analysis.catalogue",
    "plots": "show",
    "explore": "show.explore",
}
__all__ = [
    "Setup",
    "__version__",
    "advise",
    "calibrate",
    "classify",
    "compare",
    "explore",
    "fragmentation",
    "list_machines",
    "list_policies",
    "load",
    "page_tables",
    "plots",
    "predict",
    "reads",
    "replay",
    "report",
    "sizes",
    "sweep",
    "synth",
    "timeline",
    "two_sizes",
    "walk",
    "walk_map",
    "whatif",
]


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name not in API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    own = not API[name].startswith("ptanalyze_")
    module = import_module(f".{API[name]}" if own else API[name], __name__)
    value = globals()[name] = getattr(module, name, None) or import_module(f".{name}", module.__name__)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *API})
