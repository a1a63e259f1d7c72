"""The Python API: every question of the command line as a function that returns a tidy pandas.DataFrame.

A capture is a directory, a Capture from `load`, or None: the newest capture here, else the bundled sample. A
machine is a name of `machines`, a TOML file or a Machine. Every table has attrs with plain values: "units"
{column: unit}, "notes" (what a reader should know, line by line), "provenance" (what makes it reproducible).

All functions raise errors.UsageError for what cannot be asked (it names the parameter and the way out), and
errors.CaptureError for a damaged capture. How the numbers come about: docs/data-path.md.
"""

from .arguments import load
from .captures import classify, fragmentation, page_tables, synth, walk
from .catalogue import machines, policies
from .replays import advise, compare, reads, replay, sweep, timeline, whatif
from .report import report
from .run_time import calibrate, predict

__all__ = [
    "advise",
    "calibrate",
    "classify",
    "compare",
    "fragmentation",
    "load",
    "machines",
    "page_tables",
    "policies",
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
