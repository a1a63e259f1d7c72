"""A process with its leaf tables far from its threads, and near: moved, proven by dumps, measured."""

import os
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import ptanalyze as pt
from ptanalyze_host import sysfs
from ptanalyze_host.dump import alive, descendants
from ptanalyze_host.relocate import counted, leaf_tables, plan, relocate
from ptanalyze_law.perf_stat import DURATION, PENDING, read_perf_stat

NODES = sysfs.SYSTEM / "node"
WHOLE = 99.0  # percent of the time that a counter counted, below which it was shared
GROUPS = (PENDING, DURATION)  # Intel since Skylake, and before; AMD counts walks, but no cycles of them


@dataclass(frozen=True)
class Window:
    """One measured time. far: whether tables were; rate: of the figure per second.

    tables   share of the leaf entries whose tables are on the far node; data: of pages on the near one
    counts   {event: count} of perf stat; {}: this machine counts no walk cycles
    """

    far: bool
    rate: float
    tables: float
    data: float
    counts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """windows: far, near, far, near ... of `seconds` each."""

    seconds: float
    windows: tuple[Window, ...]

    @property
    def slowdowns(self) -> list[float]:
        """Time with tables far over that with tables near, of each pair of windows."""
        return [b.rate / a.rate for a, b in zip(self.windows[::2], self.windows[1::2], strict=True)]

    @property
    def slowdown(self) -> float:
        return statistics.median(self.slowdowns)

    def counts(self, far: bool) -> dict[str, float]:
        """{event: count} of the work of a window with tables near; {} where a measurement has none."""
        mine = [one for one in self.windows if one.far == far]
        if not all(one.counts for one in mine):
            return {}
        events = set.intersection(*(set(one.counts) for one in mine))
        longer = self.slowdown if far else 1.0
        return {of: longer * statistics.fmean(one.counts[of] for one in mine) for of in sorted(events)}

    def share(self, far: bool) -> float:
        """Share of leaf entries in far tables, in windows that were meant to have them there, or not."""
        return statistics.fmean(one.tables for one in self.windows if one.far == far)


def in_words(code: str, **numbers: object) -> str:
    return str(pt.columns.message("trial", code, **numbers))


def refused(code: str, **numbers: object) -> pt.UsageError:
    return pt.UsageError(in_words(code, **numbers))


def two_nodes(near: int, far: int) -> None:
    """UsageError where this machine cannot have tables far from its threads."""
    nodes = {number: node for number, node in sysfs.nodes_of(NODES).items() if node.memory}
    if len(nodes) < 2:
        raise refused("one-node")
    if near == far or near not in nodes or far not in nodes or not nodes[near].cpus:
        raise refused("nodes", near=near, far=far, nodes=", ".join(map(str, sorted(nodes))))


def largest(pid: int) -> int:
    """The process with most resident memory among `pid` and its descendants."""

    def resident(one: int) -> int:
        with suppress(OSError, ValueError, IndexError):
            return int((pt.live.shown(one) / "statm").read_text().split()[1])
        return -1

    return max([pid, *descendants(pid)], key=resident)


def count_of(command: str) -> float:
    """The number that a shell command prints; UsageError for anything else, also when tried again: a file
    that is being written is empty for a moment."""
    for wait_before in (0, *[0.01] * 6, 0.5):  # it may be empty often, or its writer off the CPU as long
        time.sleep(wait_before)
        done = subprocess.run(command, shell=True, capture_output=True, text=True, errors="replace")
        with suppress(ValueError, IndexError):
            return float(done.stdout.split()[-1])
    why = done.stderr.strip().splitlines()
    said = f"{done.stdout.strip()[:60]!r}, not a number{f' ({why[-1][:100]})' if why else ''}"
    raise refused("no-number", command=command, said=said)


@contextmanager
def counting(pid: int, events: Sequence[str]) -> Iterator[dict[str, float]]:
    """Counts of the block by event, those counted all the time, there when it is left; {} without events."""
    found = dict[str, float]()
    if not events:
        yield found
        return
    with pt.safe_files.temporary_directory() as place:
        counted = ",".join(["cycles", "instructions", *events])
        words = ["perf", "stat", "-x,", "-e", counted, "-o", str(place / "stat"), "-p", str(pid)]
        silent = subprocess.DEVNULL
        perf = subprocess.Popen(words, stdout=silent, stderr=silent, preexec_fn=pt.live.die_with_us())
        try:
            yield found
        finally:
            perf.send_signal(signal.SIGINT)  # then it writes what it has counted
            perf.wait()
        with suppress(pt.errors.CaptureError, pt.UsageError):  # ended before it had begun
            for one in read_perf_stat(place / "stat").counters.values():
                if one.value is not None and one.running >= WHOLE:
                    found[":".join(filter(None, (one.name, one.modes)))] = one.value


def try_live(
    stack: ExitStack,
    pid: int,
    figure: str,
    *,
    near: int,
    far: int,
    seconds: float,
    pairs: int,
    say: Callable[[str], None],
) -> Trial:
    """Trial of a process that runs already: its tables alone are moved, and left near its threads. No other
    command changes it until the stack ends.

    UsageError where its threads run on another node than `near`, or as of `relocate`.
    """
    on = plan(pid, None).node
    if on != near:
        raise refused("elsewhere", pid=pid, node=on)
    pt.live.hold(stack, pid, "trial")
    count_of(figure)
    events: tuple[str, ...] = ()
    try:
        events = counted_here()
    except pt.UsageError as error:
        say(f"without counters: {error}")
    windows: list[Window] = []
    stack.callback(near_again, pid, near, say, stack.enter_context(pt.live.ends_once()))
    for away in pairs * (True, False):
        relocate(pid, far if away else near, 0)
        with counting(pid, events) as counts:
            before, began = count_of(figure), time.monotonic()
            time.sleep(seconds)
            if not alive(pid):
                raise pt.errors.PartialDataError(f"PID {pid}: ended before all was measured")
            rate = (count_of(figure) - before) / (time.monotonic() - began)
        if rate <= 0:
            raise refused("still", command=figure, seconds=seconds)
        tables = leaf_tables(pid)
        entries = tables.pages.sum(axis=1)
        parts = entries[tables.node == far], tables.pages[:, near]
        there, data = (float(part.sum() / max(int(entries.sum()), 1)) for part in parts)
        windows.append(Window(away, rate, there, data, counts))
        say(line_of(windows[-1], near, far, counted(tables.node, tables.pages.shape[1]).tolist()))
    return Trial(seconds, tuple(windows))


def near_again(pid: int, near: int, say: Callable[[str], None], keep: Callable[[], None]) -> None:
    """The last move, which no signal ends; where it leaves tables far, what to type is said."""
    keep()
    whole = not alive(pid)
    try:
        whole = whole or relocate(pid, near, 0).whole
    finally:
        if not whole:
            say(f"tables are far: {pt.errors.as_root(anywhere=True)} relocate {pid} --to {near} --yes")


def begun(command: Sequence[str], how: Mapping[str, Any]) -> "subprocess.Popen[bytes]":
    """A program that ends with us, and reads a file as its input from the start. how: as of `as_typed`."""
    with suppress(OSError):  # a terminal, or a pipe
        os.lseek(0, 0, os.SEEK_SET)
    try:
        return subprocess.Popen(command, preexec_fn=pt.live.die_with_us(), **how)
    except OSError as error:
        raise pt.UsageError(f"{command[0]}: cannot be run: {error.strerror}") from None


def wait(program: "subprocess.Popen[bytes]", seconds: float) -> None:
    """PartialDataError if it ends meanwhile."""
    with suppress(subprocess.TimeoutExpired):
        program.wait(seconds)
        raise pt.errors.PartialDataError(in_words("ended", status=program.returncode))


def line_of(one: Window, near: int, far: int, by_node: Sequence[int]) -> str:
    """by_node: leaf tables, the last: not known."""
    speed = f"{one.rate:,.0f} per second"
    nodes = ", ".join(f"{count:,} on node {node}" for node, count in enumerate(by_node[:-1]))
    whose = "far " if one.far else "near"
    return (
        f"tables {whose}: leaf tables {nodes} ({100 * one.tables:.1f} % of entries on node {far}); "
        f"data {100 * one.data:.1f} % on node {near}; {speed}"
    )


def counted_here() -> tuple[str, ...]:
    """Events of walk cycles that perf counts here, tried on a program that does nothing."""
    for events in GROUPS:
        with pt.safe_files.temporary_directory() as place:
            file = place / "stat"
            counted = ["-x,", "-e", ",".join(["cycles", *events]), "-o", str(file), "--", "true"]
            try:
                ran = subprocess.run(["perf", "stat", *counted], capture_output=True, check=False)
            except FileNotFoundError:
                raise pt.UsageError("perf: not found; install it with `apt install linux-perf`") from None
            if ran.returncode == 0 and "<not supported>" not in file.read_text(errors="replace"):
                return events
    raise refused("uncounted", new=PENDING[0], old=DURATION[0])
