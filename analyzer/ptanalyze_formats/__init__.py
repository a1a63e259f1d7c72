"""Files that other programs write: traces, perf samples, dumps of page tables. FORMATS has a row for each.

Nothing here imports NumPy: help and completion read the rows; a reader is imported with the first file of its
format. A new format is a module beside this file and a row below.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

COMMANDS = {"Capture": {"import": ("ptanalyze_formats.command", "Import traces and dumps of other tools.")}}

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
    reader  "module:function": (source, file, strip=Strip) -> touches for a TRACE, (source, file) ->
            perf_samples.Samples for SAMPLES, (source, directory, nested, nodes) -> kind of capture for a DUMP
    holds   TRACE, SAMPLES or DUMP
    takes   options of `import` beyond those that all of its kind take
    """

    name: str
    what: str
    known: bytes | re.Pattern[bytes] | str
    reader: str
    holds: str
    takes: tuple[str, ...] = ()

    def knows(self, head: Head) -> bool:
        if isinstance(self.known, bytes):
            return head.first.startswith(self.known)
        if isinstance(self.known, re.Pattern):
            return bool(self.known.match(head.line))
        return bool(imported(self.known)(head))

    @property
    def salvaged(self) -> bool:
        return self.holds == TRACE or "--salvage" in self.takes


def imported(name: str) -> Any:
    """The function "module:function", of this package where no other is named."""
    module, _, function = name.partition(":")
    return getattr(import_module(module if "." in module else f".{module}", __name__), function)


FORMATS = {  # the first that knows a file reads it
    row.name: row
    for row in (
        Format(
            "ptdump",
            "directory that the ptdump tool alone wrote, e.g. in a guest",
            "table_dump:is_directory",
            "table_dump:import_directory",
            DUMP,
        ),
        Format(
            "gptdump",
            "binary dump of a guest's tables, GPTDUMP1; --ept NPTDUMP1",
            b"GPTDUMP1",
            "table_dump:import_table_dump",
            DUMP,
            ("--ept", "--nodes"),
        ),
        Format(
            "perf-data",
            "perf.data, through the installed perf",
            b"PERFILE2",
            "ptanalyze.formats.perf_samples:import_perf_data",
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
            ("--ept", "--dump"),
        ),
        Format(
            "lackey",
            "valgrind --tool=lackey --trace-mem=yes (no page tables)",
            re.compile(rb" ?[ILSM] +[0-9a-fA-F]+,\d+$"),
            "text_traces:import_lackey",
            TRACE,
        ),
        Format(
            "pinatrace",
            "output of pinatrace, the example of Intel's Pin kit",
            re.compile(rb"0x[0-9a-f]+: [RW] +0x[0-9a-f]+(?: +\d+(?: +(?:0x)?[0-9a-f]+)?)?$"),
            "text_traces:import_pinatrace",
            TRACE,
        ),
        Format(
            "perf-script",
            "perf script -F tid,cpu,time,period,event,addr (samples)",
            re.compile(rb".*\s\d+\.\d{6,9}:\s"),
            "ptanalyze.formats.perf_samples:import_samples",
            SAMPLES,
            ("--salvage",),
        ),
    )
}


def names(*holding: str, taking: str = "") -> list[str]:
    """Names of the formats that hold any of these, or take an option."""
    return [row.name for row in FORMATS.values() if row.holds in holding or (taking and taking in row.takes)]
