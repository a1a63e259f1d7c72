# ruff: noqa: RUF009 (option() is a dataclasses.field)
"""Options of a replay, each written once: command line, Setup and manual are made from these fields."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypedDict

from .errors import DEFAULT_MACHINE
from .process import Progress, usable_cpus

if TYPE_CHECKING:
    from .machine import Costs, Machine

WINDOWS = 20  # of a timeline, unless another number is asked for


def option(default: Any, flags: str, help: str, **how: Any) -> Any:
    """Field of a dataclass that the command line takes, too.

    default  a value, or a function that makes it; False: a flag
    flags    "-m --machine"
    how      kind: "path", words to choose from, or the least and the most of a whole number; else text
             metavar, shown: of the help, the default in words, by default as it is, where there is one
             offers: a key of cli.replay_options.OFFERS
             typed: the command line's default, where that is another
             python: what Python takes besides, for its manual
    """
    made = {"default_factory" if callable(default) else "default": default}
    return field(**made, metadata={"flags": flags, "help": help, **how})


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a replay is asked with, as people write it: names and files may stand for their contents."""

    machine: str | os.PathLike[str] | Machine = option(
        DEFAULT_MACHINE,
        "-m --machine",
        "Machine model: a name that `ptanalyze machines` lists, or a TOML file. Default: host.toml if it "
        "is in this directory, else, for a capture of this host, the host's own (not measured), else "
        f"{DEFAULT_MACHINE}, as always for bundled samples.",
        offers="machines",
        typed=None,
        python=f"Or a Machine; a Setup made without one takes {DEFAULT_MACHINE}",
    )
    threads_on: str = option(
        "auto",
        "--threads-to-nodes",
        "NUMA nodes of the threads: auto, recorded, round-robin, block, or one node per thread as 0,0,1,1.",
        metavar="NODES",
    )
    costs: str | os.PathLike[str] | Costs | None = option(
        None, "--costs", "Cost file. Default: the machine's own costs.", kind="path", python="Or Costs"
    )
    cache_share: str | float | None = option(
        None,
        "--cache-share",
        "Share of the LLC that holds page-table lines: 0.25, or bounds for the intervals, 0.1:0.5. "
        "Default: the machine's.",
        metavar="SHARE",
    )
    calibration: Any = option(
        None,
        "--calibration",
        "What `calibrate` or `trial --pages` wrote: run times are scaled to that run. "
        "Default: the capture's own (`record --pages`), else none.",
        kind="path",
        metavar="FILE.toml",
        python="Or what `calibrate` returns",
    )
    cold: bool = option(
        False,
        "--cold",
        "Count the run as traced, not its steady state: caches start empty, and all copies that a policy "
        "makes count, before the first access or later.",
    )
    begin: str = option(
        "",
        "--from",
        "Count the steady state from this place on: a share of the accesses (40%), a time (2.5s) or a number "
        "of accesses. Default: the region that was marked, else all.",
        metavar="PLACE",
    )
    end: str = option(
        "",
        "--to",
        "Leave out what follows this place, written like --from. Default: nothing.",
        metavar="PLACE",
    )
    contended: bool = option(False, "--contended", "Use loaded instead of idle DRAM latencies.")
    stands_for: Any = option(
        None,
        "--stands-for",
        "Answer for a run N times as large as CAPTURE, 64x, or of SIZE, 200G, with caches scaled to 1/N. "
        "Default: the run as captured.",
        metavar="Nx|SIZE",
    )
    fixed: str = option(
        "",
        "--fixed",
        "Memory that does not grow with --stands-for: parts of VMAs' names, addresses in them, a size "
        "(all VMAs up to it), or none. Default: code, stacks, and the smallest VMAs up to 2 % of the "
        "memory.",
        metavar="VMA,...",
    )
    kernel: str = option(
        "",
        "--kernel",
        "Linux version whose system calls are modelled, such as 6.18. Default: the capture's, else 6.1.",
        metavar="VERSION",
    )
    jobs: int = option(
        usable_cpus,
        "-j --jobs",
        "Number of CPUs to compute on; results do not depend on it.",
        kind=(1, None),
        shown="all that the process may use",
    )
    move_threads: str = option(
        "",
        "--move-threads",
        "Move node A's threads to node B after 30 % of the trace's page touches, or at a time (@2.5s). "
        "Default: no moves.",
        metavar="A:B@30%,...",
    )
    autonuma: Any = option(
        False,
        "--autonuma",
        "Migrate data pages towards the nodes that access them, like Linux NUMA balancing.",
        python='Or its parameters, {"delay_ms": 10}',
    )
    baseline: Any = option(
        "auto",
        "--baseline",
        "Policy to compare the others with.",
        offers="policies",
        python="auto: linux where the capture has several nodes or no trace, else first-touch "
        '(on one node every table is on node 0). Or ("bind", {"node": 1}), or a Policy',
    )
    weigh: str = option(
        "auto",
        "--weight",
        "Weight by replayed walks, by accessed-bit samples (heat) or by nothing (leaf); auto: the first "
        "available.",
        kind=("auto", "walks", "heat", "leaf"),
    )
    windows: int = option(
        0, "--windows", "Number of equal-length time windows.", kind=(1, 10000), typed=WINDOWS
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
    baseline: Any
    weigh: str
    windows: int
    progress: Progress


OPTIONS = {row.name: row for row in fields(Options) if row.metadata}
OF_SOME = ("baseline", "weigh", "windows")  # which not every command that replays has


def manual() -> str:
    """The fields for a docstring, `name  meaning`, with the flags that the text may name."""
    lines = ["progress      Called with (done, total, what)."]
    for name, row in OPTIONS.items():
        text = f"({row.metadata['flags'].split()[-1]}) {row.metadata['help']}"
        if more := row.metadata.get("python"):
            text += f" {more}."
        lines.append(fill(f"{name:<13} {text}", 110, subsequent_indent=" " * 14))
    return "\n".join(lines)
