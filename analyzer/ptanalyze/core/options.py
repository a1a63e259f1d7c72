"""Options of a replay, each written once: command line, Setup and manual are made from these fields."""

from __future__ import annotations

import os
import re
from dataclasses import MISSING, dataclass, field, fields
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from .errors import DEFAULT_MACHINE
from .process import usable_cpus

if TYPE_CHECKING:
    from .machine import Costs, Machine
    from .process import Progress

WINDOWS = 20  # of a timeline, unless another number is asked for


class Option(NamedTuple):
    """How the command line takes a field.

    flags     "-m --machine"
    parameter its parameter in click, by default the field's name
    kind      "path", words to choose from, or the least and the most of a whole number; None: text, or
              a flag where the default is False
    complete  words that shells offer, or a key of cli.replay_options.OFFERS
    shown     the default in words; by default as it is, where there is one
    default   by default the field's
    """

    flags: str
    help: str
    parameter: str = ""
    kind: str | tuple[str, ...] | tuple[int, int | None] | None = None
    metavar: str | None = None
    complete: str | tuple[str, ...] = ()
    shown: str = ""
    default: Any = None
    multiple: bool = False


def option(
    flags: str, help: str, *more: Option, also: str = "", everywhere: bool = True, **how: Any
) -> dict[str, Any]:
    """Metadata of a field that the command line takes as an Option, or as several.

    also        what Python takes besides, for its manual
    everywhere  whether every command that replays has it
    """
    return {"options": (Option(flags, help, **how), *more), "also": also, "everywhere": everywhere}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a replay is asked with, as people write it: names and files may stand for their contents."""

    machine: str | os.PathLike[str] | Machine = field(
        default=DEFAULT_MACHINE,
        metadata=option(
            "-m --machine",
            "Machine model: a name that `ptanalyze machines` lists, or a TOML file.",
            complete="machines",
            also="Or a Machine",
        ),
    )
    threads_on: str = field(
        default="auto",
        metadata=option(
            "--threads-to-nodes",
            "NUMA nodes of the threads: auto, recorded, round-robin, block, or one node per thread as "
            "0,0,1,1.",
            metavar="NODES",
            complete=("auto", "recorded", "round-robin", "block"),
        ),
    )
    costs: str | os.PathLike[str] | Costs | None = field(
        default=None,
        metadata=option(
            "--costs", "Cost file. Default: the machine's own costs.", kind="path", also="Or Costs"
        ),
    )
    cache_share: str | float | None = field(
        default=None,
        metadata=option(
            "--cache-share",
            "Share of the LLC that holds page-table lines: 0.25, or bounds for the intervals, 0.1:0.5. "
            "Default: the machine's; for a larger run, its least.",
            metavar="SHARE",
        ),
    )
    calibration: Any = field(
        default=None,
        metadata=option(
            "--calibration",
            "Calibration file; scales run-time estimates to that run. Default: none.",
            kind="path",
            metavar="FILE.toml",
            also="Or what `calibrate` returns",
        ),
    )
    cold: bool = field(
        default=False,
        metadata=option(
            "--cold",
            "Count the run as traced instead of its steady state: caches start empty, and all copies made by "
            "a policy, before the first access or later, count.",
        ),
    )
    begin: str = field(
        default="",
        metadata=option(
            "--from",
            "Count the steady state from there on: a share of the accesses (40%), a time (2.5s) or a "
            "number of accesses. Default: the region that was marked, else all.",
            metavar="PLACE",
        ),
    )
    end: str = field(
        default="",
        metadata=option("--to", "Leave out what follows, as of --from. Default: nothing.", metavar="PLACE"),
    )
    contended: bool = field(
        default=False, metadata=option("--contended", "Use loaded instead of idle DRAM latencies.")
    )
    stands_for: Any = field(
        default=None,
        metadata=option(
            "--stands-for",
            "Answer for a run N times as large as CAPTURE, 64x, or of SIZE, 200G, with caches scaled to "
            "1/N. Default: the run as captured.",
            metavar="Nx|SIZE",
        ),
    )
    fixed: str = field(
        default="",
        metadata=option(
            "--fixed",
            "Memory that does not grow with --stands-for: parts of VMAs' names, addresses in them, a size "
            "(all VMAs up to it), or none. Default: code, stacks, and the smallest VMAs up to 2 % of the "
            "memory.",
            metavar="VMA,...",
        ),
    )
    kernel: str = field(
        default="",
        metadata=option(
            "--kernel",
            "Linux version whose system calls are modelled, such as 6.18. Default: the capture's, else 6.1.",
            metavar="VERSION",
        ),
    )
    jobs: int = field(
        default_factory=usable_cpus,
        metadata=option(
            "-j --jobs",
            "Number of CPUs to compute on; results do not depend on it.",
            kind=(1, None),
            shown="all that the process may use",
        ),
    )
    move_threads: str = field(
        default="",
        metadata=option(
            "--move-threads",
            "Move node A's threads to node B after 30 % of the trace, or at a time (@2.5s). "
            "Default: no moves.",
            metavar="A:B@30%,...",
        ),
    )
    autonuma: Any = field(
        default=False,
        metadata=option(
            "--autonuma",
            "Migrate data pages towards the nodes that access them, like Linux NUMA balancing.",
            Option(
                "--autonuma-set",
                "Parameter of --autonuma: delay_ms, scan_period_ms, scan_size_mb, rate_limit_mb_s, "
                "by (guest or host); repeatable. Default: Linux's values.",
                "balancing",
                metavar="KEY=VALUE",
                multiple=True,
                complete=(
                    "delay_ms=",
                    "scan_period_ms=",
                    "scan_size_mb=",
                    "rate_limit_mb_s=",
                    "by=guest",
                    "by=host",
                ),
            ),
            also='Or its parameters, {"delay_ms": 10}',
        ),
    )
    baseline: str = field(
        default="auto",
        metadata=option(
            "--baseline",
            "Policy to compare the others with.",
            complete="policies",
            everywhere=False,
            also="auto: linux where the capture has several nodes or no trace, else first-touch "
            "(on one node every table is on node 0)",
        ),
    )
    weigh: str = field(
        default="auto",
        metadata=option(
            "--weight",
            "Weight by replayed walks, by accessed-bit samples (heat) or by nothing (leaf); auto: the first "
            "available.",
            kind=("auto", "walks", "heat", "leaf"),
            everywhere=False,
        ),
    )
    windows: int = field(
        default=0,
        metadata=option(
            "--windows",
            "Number of equal-length time windows.",
            kind=(1, 10000),
            default=WINDOWS,
            everywhere=False,
        ),
    )
    progress: Progress = None


class Keywords(TypedDict, total=False):
    """Options as keyword arguments of Python functions, for type checkers and editors."""

    machine: str | os.PathLike[str] | Machine
    threads_on: str
    costs: str | os.PathLike[str] | Costs | None
    cache_share: str | float | None
    calibration: Any
    cold: bool
    begin: str
    end: str
    contended: bool
    stands_for: Any
    fixed: str
    kernel: str
    jobs: int
    move_threads: str
    autonuma: Any
    baseline: str
    weigh: str
    windows: int
    progress: Progress


def as_options(name: str) -> tuple[Option, ...]:
    """How the command line takes the field of this name."""
    asked = next(one for one in fields(Options) if one.name == name)
    first, *more = asked.metadata["options"]
    default = asked.default if asked.default_factory is MISSING else asked.default_factory
    return first._replace(parameter=name, default=default if first.default is None else first.default), *more


EVERYWHERE = tuple(one.name for one in fields(Options) if one.metadata.get("everywhere"))
OF_OUTPUT = frozenset({"form", "sheet", "table_file", "plot", "plot_kind"})  # parameters


def manual() -> str:
    """The fields for a docstring: `name  meaning`, flags by their fields' names."""
    of_flag = {
        flag: one.name
        for one in fields(Options)
        for given in one.metadata.get("options", ())
        for flag in given.flags.split()
    }

    def by_field(found: re.Match[str]) -> str:
        return of_flag.get(found[0], found[0])

    lines = ["progress      Called with (done, total, what)."]
    for one in fields(Options):
        if given := one.metadata.get("options"):
            text = given[0].help + (f" {one.metadata['also']}." if one.metadata["also"] else "")
            text = re.sub(r"--[a-z][a-z-]*", by_field, text)
            lines.append(fill(f"{one.name:<13} {text}", 110, subsequent_indent=" " * 14))
    return "\n".join(lines)
