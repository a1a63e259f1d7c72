"""A program with its leaf tables far from its threads, and near: made, proven by dumps, measured."""

import os
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import PartialDataError, UsageError
from .dump import alive, descendants
from .process import read_topology
from .relocate import Tables, counted, leaf_tables, relocate
from .supervise import GRACE, die_with_us

GROUPS = Path("/sys/fs/cgroup")
SETTLED = 0.99  # of the data are near
TO_SETTLE = 120.0  # seconds that the kernel may take to move them
LOOK = 0.2


@dataclass(frozen=True)
class Window:
    """One measured time. far: whether tables were; rate: of the figure per second.

    tables   share of the leaf entries whose tables are on the far node; data: of pages on the near one
    by_node  leaf tables by node, the last: not known
    """

    far: bool
    rate: float
    tables: float
    data: float
    by_node: tuple[int, ...]


@dataclass(frozen=True)
class Trial:
    """near, far: nodes; windows: far, near, far, near ... of `seconds` each, all of process `pid`."""

    pid: int
    near: int
    far: int
    seconds: float
    windows: tuple[Window, ...]

    @property
    def slowdowns(self) -> list[float]:
        """Time with tables far over that with tables near, of each pair of windows."""
        return [b.rate / a.rate for a, b in zip(self.windows[::2], self.windows[1::2], strict=True)]

    @property
    def slowdown(self) -> float:
        return statistics.median(self.slowdowns)

    def share(self, far: bool) -> float:
        """Of leaf entries in far tables, in windows that were meant to have them there, or not."""
        return statistics.fmean(one.tables for one in self.windows if one.far == far)


def two_nodes(near: int, far: int) -> tuple[int, ...]:
    """CPUs of the near node; UsageError where this machine cannot have tables far from its threads."""
    topology, _ = read_topology()
    nodes = {node.id: node for node in topology.nodes if len(node.frames)}
    if len(nodes) < 2:
        raise UsageError(
            "trial: this machine has one node with memory, so tables cannot be far from threads; "
            "it needs two, or an emulated machine (tests/lab)"
        )
    if near == far or near not in nodes or far not in nodes or not nodes[near].cpus:
        raise UsageError(
            f"trial: --near {near} --far {far}: give two of the nodes {', '.join(map(str, sorted(nodes)))}, "
            "the near one with CPUs"
        )
    return nodes[near].cpus


@contextmanager
def group_of(cpus: Sequence[int], memory: int) -> Iterator[Path]:
    """A control group of version 2 with these CPUs and one node's memory; its processes end with it."""
    try:
        if "cpuset" not in (GROUPS / "cgroup.controllers").read_text().split():
            raise FileNotFoundError
    except OSError:
        raise UsageError(
            f"trial: {GROUPS} has no cpuset controller of cgroup version 2; "
            "boot with systemd.unified_cgroup_hierarchy=1"
        ) from None
    control = GROUPS / "cgroup.subtree_control"
    added = "cpuset" not in control.read_text().split()
    group = GROUPS / f"ptanalyze-trial.{os.getpid()}"
    if added:
        control.write_text("+cpuset")
    try:
        group.mkdir()
        (group / "cpuset.cpus").write_text(",".join(map(str, cpus)))
        (group / "cpuset.mems").write_text(str(memory))
        yield group
    finally:
        ended(group)
        if added:
            with suppress(OSError):  # another has begun to use it
                control.write_text("-cpuset")


def ended(group: Path) -> None:
    """End all processes of a group, then the group."""
    for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
        end = time.monotonic() + patience
        while (left := (group / "cgroup.procs").read_text().split()) and time.monotonic() < end:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), number)
            time.sleep(LOOK)
    with suppress(OSError):
        group.rmdir()


def largest(pid: int) -> int:
    """The process with most resident memory among `pid` and its descendants."""

    def resident(one: int) -> int:
        with suppress(OSError, ValueError):
            return int(Path(f"/proc/{one}/statm").read_text().split()[1])
        return -1

    return max([pid, *descendants(pid)], key=resident)


def count_of(command: str) -> float:
    """The number that a shell command prints; UsageError for anything else."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, errors="replace", check=False)
    try:
        return float(done.stdout.split()[-1])
    except (ValueError, IndexError):
        why = done.stderr.strip().splitlines()
        raise UsageError(
            f"--figure-of {command}: printed {done.stdout.strip()[:60]!r}, not a number"
            f"{f' ({why[-1][:100]})' if why else ''}; it prints how much was done so far"
        ) from None


def shares(tables: Tables, near: int, far: int) -> tuple[float, float]:
    """(share of leaf entries in tables on the far node, share of pages on the near one)."""
    entries = tables.pages.sum(axis=1)
    everything = max(int(entries.sum()), 1)
    return float(entries[tables.node == far].sum() / everything), float(
        tables.pages[:, near].sum() / everything
    )


def try_out(
    command: Sequence[str],
    figure: str,
    *,
    near: int,
    far: int,
    warm_up: float,
    seconds: float,
    pairs: int,
    say: Callable[[str], None],
) -> Trial:
    """Run a command with its tables far and near in turns, `pairs` times, and measure `seconds` of each.

    figure  a shell command that prints how much the program has done so far
    It is born with memory on the far node, and CPUs of the near one. Then its data are moved to the near
    node, which leaves its tables; `relocate` moves those. UsageError; PartialDataError if the command ends
    before all is measured.
    """
    cpus = two_nodes(near, far)
    with group_of(cpus, far) as group:
        join, with_us = str(group / "cgroup.procs"), die_with_us()

        def prepare() -> None:
            with open(join, "w") as procs:
                procs.write("0")
            with_us()

        try:
            program = subprocess.Popen(command, preexec_fn=prepare)
        except OSError as error:
            raise UsageError(f"{command[0]}: cannot be run: {error.strerror}") from None
        try:
            wait(program, warm_up)
            pid = largest(program.pid)
            say(f"PID {pid}: moving its data to node {near}, which leaves its tables on node {far}")
            (group / "cpuset.mems").write_text(str(near))
            settle(pid, near, far)
            (group / "cpuset.mems").write_text(f"{near},{far}")
            windows = []
            for _ in range(pairs):
                for away in (True, False):
                    windows.append(measured(program, pid, figure, near, far, away, seconds))
                    say(line_of(windows[-1], near, far))
            return Trial(pid, near, far, seconds, tuple(windows))
        finally:
            with suppress(subprocess.TimeoutExpired):
                program.terminate()
                program.wait(GRACE)
            program.kill()
            program.wait()


def wait(program: "subprocess.Popen[bytes]", seconds: float) -> None:
    """PartialDataError if it ends meanwhile."""
    with suppress(subprocess.TimeoutExpired):
        program.wait(seconds)
        raise PartialDataError(
            f"the program ended (exit code {program.returncode}) before all was measured: "
            "give it more to do, or shorter times: --warm-up, --for, --pairs"
        )


def settle(pid: int, near: int, far: int) -> None:
    end = time.monotonic() + TO_SETTLE
    while (data := shares(leaf_tables(pid), near, far)[1]) < SETTLED:
        if time.monotonic() > end or not alive(pid):
            raise PartialDataError(
                f"PID {pid}: {data:.0%} of its data are on node {near} after {TO_SETTLE:.0f} s; "
                "the rest is shared, locked, or does not fit there"
            )
        time.sleep(LOOK)


def measured(
    program: "subprocess.Popen[bytes]", pid: int, figure: str, near: int, far: int, away: bool, seconds: float
) -> Window:
    relocate(pid, far if away else near, 0)
    before, began = count_of(figure), time.monotonic()
    wait(program, seconds)
    rate = (count_of(figure) - before) / (time.monotonic() - began)
    if rate <= 0:
        raise UsageError(
            f"--figure-of {figure}: did not grow in {seconds:g} s; it prints how much was done so far"
        )
    tables = leaf_tables(pid)
    on_far, data = shares(tables, near, far)
    by_node = counted(tables.node, tables.pages.shape[1])
    return Window(away, rate, on_far, data, tuple(by_node.tolist()))


def line_of(one: Window, near: int, far: int) -> str:
    nodes = ", ".join(f"{count:,} on node {node}" for node, count in enumerate(one.by_node[:-1]))
    return (
        f"tables {'far ' if one.far else 'near'}: leaf tables {nodes} ({one.tables:.1%} of entries on node "
        f"{far}); data {one.data:.1%} on node {near}; {one.rate:,.0f} per second"
    )
