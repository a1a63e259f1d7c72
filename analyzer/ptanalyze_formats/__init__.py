"""Captures compared and shared, and files that other programs write: traces, perf samples, page tables.

FORMATS has a row for each format. Nothing here imports NumPy: help and completion read the rows; a reader is
imported with the first file of its format. A new format is a module beside this file and a row below.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

COMMANDS = {
    "Capture": {
        "import": ("ptanalyze_formats.command", "Import traces and dumps of other tools."),
        "redact": ("ptanalyze_formats.redact_command", "Copy a capture without identifying data."),
    },
    "Inspect": {"diff": ("ptanalyze_formats.diff_command", "Compare the page tables of two captures.")},
}

TRACE, SAMPLES, DUMP = "trace of all accesses", "samples of accesses", "page tables"


class Head(NamedTuple):
    """How a file begins: its first bytes, the same unpacked (gzip, xz), and the first line of text that is no
    comment. Of a directory all are empty."""

    path: Path
    first: bytes
    data: bytes
    line: bytes


class Format(NamedTuple):
    """A format of `ptanalyze import`.

    known   a file is in it: by its first bytes, by its first line, or if "module:function" of a Head says so
    reader  "module:function": (source, file) -> number of accesses for a TRACE, (source, file) ->
            perf_samples.Samples for SAMPLES, (source, directory, nested) -> Snapshot for a DUMP
    holds   TRACE, SAMPLES or DUMP
    takes_nested  whether a VM's nested table is in a second file (--ept)
    """

    name: str
    what: str
    known: bytes | re.Pattern[bytes] | str
    reader: str
    holds: str
    takes_nested: bool = False

    def knows(self, head: Head) -> bool:
        if isinstance(self.known, bytes):
            return head.first.startswith(self.known)
        if isinstance(self.known, re.Pattern):
            return bool(self.known.match(head.line))
        return bool(imported(self.known)(head))


def imported(name: str) -> Any:
    """The function "module:function" of this package."""
    module, _, function = name.partition(":")
    return getattr(import_module(f".{module}", __name__), function)


FORMATS = {  # the first that knows a file reads it
    row.name: row
    for row in (
        Format(
            "ptdump",
            "directory that the ptdump tool alone wrote, e.g. in a guest",
            "importing:is_dump",
            "importing:import_directory",
            DUMP,
        ),
        Format(
            "perf-data",
            "perf.data, through the installed perf",
            b"PERFILE2",
            "perf_samples:import_perf_data",
            SAMPLES,
        ),
        Format(
            "drmemtrace",
            "DynamoRIO's offline trace: a directory, or one of its files",
            "drmemtrace:is_trace",
            "drmemtrace:import_drmemtrace",
            TRACE,
        ),
        Format(
            "champsim",
            "ChampSim's trace, also as .xz or .gz",
            "champsim:is_trace",
            "champsim:import_champsim",
            TRACE,
        ),
        Format(
            "vmitosis",
            "text dump of page tables by Mitosis and vMitosis kernels",
            "ptdump_text:is_dump",
            "ptdump_text:import_ptdump",
            DUMP,
            takes_nested=True,
        ),
        Format(
            "lackey",
            "valgrind --tool=lackey --trace-mem=yes (no page tables)",
            re.compile(rb" ?[ILSM] +[0-9a-fA-F]+,\d+$"),
            "text_traces:import_lackey",
            TRACE,
        ),
        Format(
            "perf-script",
            "perf script -F tid,cpu,time,period,event,addr (samples)",
            re.compile(rb".*\s\d+\.\d{6,9}:\s"),
            "perf_samples:import_samples",
            SAMPLES,
        ),
    )
}
