"""Where do page walks go on a NUMA machine, and what would a better page-table placement change?

    import ptanalyze
    ptanalyze.whatif("app", ["mitosis", "hydra"])

Every question of the command line is a function here that returns a tidy pandas.DataFrame; `plots` draws
them. A capture is a directory, a Capture from `load`, or None: the newest capture here, else the bundled
sample. A machine is a name of `list_machines`, a TOML file or a Machine. Every table has attrs with plain
values: "units" {column: unit}, "notes" (what a reader should know, line by line), "provenance" (what makes it
reproducible).

All functions raise core.errors.UsageError for what cannot be asked (it names the parameter and the way out),
and core.errors.CaptureError for a damaged capture. How the numbers come about: docs/data-path.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .core.version import __version__

if TYPE_CHECKING:
    from .analysis.captures import classify, fragmentation, page_tables, walk
    from .analysis.catalogue import list_machines, list_policies
    from .analysis.replays import advise, compare, reads, replay, sweep, timeline, whatif
    from .analysis.run_time import calibrate, predict
    from .capture.synth.synth import synth
    from .formats.capture import load
    from .show import plots
    from .show.report.write import report

API = {  # name -> the module that defines it, imported when the name is first asked for
    "load": "formats.capture",
    "classify": "analysis.captures",
    "whatif": "analysis.replays",
    "replay": "analysis.replays",
    "reads": "analysis.replays",
    "timeline": "analysis.replays",
    "sweep": "analysis.replays",
    "compare": "analysis.replays",
    "advise": "analysis.replays",
    "report": "show.report.write",
    "fragmentation": "analysis.captures",
    "walk": "analysis.captures",
    "page_tables": "analysis.captures",
    "calibrate": "analysis.run_time",
    "predict": "analysis.run_time",
    "synth": "capture.synth.synth",
    "list_policies": "analysis.catalogue",
    "list_machines": "analysis.catalogue",
    "plots": "show",
}
__all__ = [
    "__version__",
    "advise",
    "calibrate",
    "classify",
    "compare",
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
    "sweep",
    "synth",
    "timeline",
    "walk",
    "whatif",
]


def __getattr__(name: str) -> Any:
    if name not in API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{API[name]}", __name__)
    value = globals()[name] = getattr(module, name, None) or import_module(f".{name}", module.__name__)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *API})
