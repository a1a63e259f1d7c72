"""Where do page walks go on a NUMA machine, and what would a better page-table placement change?

    import ptanalyze
    ptanalyze.whatif("app", ["mitosis", "hydra"])

The names below are the API; ptanalyze.api documents them, ptanalyze.plots draws their tables.
"""

import sys
from importlib import import_module
from types import ModuleType

__version__ = "0.1.0.dev0"

API = (
    "load",
    "classify",
    "whatif",
    "replay",
    "reads",
    "timeline",
    "sweep",
    "compare",
    "advise",
    "report",
    "fragmentation",
    "walk",
    "page_tables",
    "calibrate",
    "predict",
    "synth",
    "policies",
    "machines",
)
__all__ = [*API, "__version__"]


class _Package(ModuleType):
    """Each name of the API is its function, read from ptanalyze.api when first asked for.

    Several modules have the name of the function that they are behind. Importing a submodule sets it as the
    package's attribute; here the function stays: `from ptanalyze.whatif import ...` reaches the module.
    """

    def __getattr__(self, name):
        if name not in API:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(".api", __name__), name)
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name, value):
        if name not in API or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self):
        return sorted({*super().__dir__(), *API})


sys.modules[__name__].__class__ = _Package
