"""Rebuild leaf page tables of a live process on a node with `ptrelocate`; dumps before and after prove it."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ptanalyze as pt

from . import sysfs
from .dump import dump_process

TABLE = 2 << 20
GROUPS = Path("/sys/fs/cgroup")
NO_GROUP_LIMIT = 1 << 62  # of version 1: what it says where there is none
AT_LEAST = 4 << 20  # bytes of memory that a control group must have to spare
PATIENCE = 3600
AREA = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ")
KEPT = ("VmFlags:", "Locked:")


class LeftAwayError(pt.errors.PtanalyzeError):
    """Memory could not be moved back: the process is stopped (exit 1)."""

    exit_code = 1


@dataclass(frozen=True)
class Range:
    """Bytes start to end of an area, how many are resident, and why it is left out; "" where it is moved."""

    start: int
    end: int
    resident: int
    left: str


@dataclass(frozen=True)
class Plan:
    """What ptrelocate would do: leaf tables of these ranges to `node`. threads: of the process."""

    pid: int
    node: int
    threads: int
    ranges: tuple[Range, ...]

    @property
    def moved(self) -> tuple[Range, ...]:
        return tuple(one for one in self.ranges if not one.left)


@dataclass(frozen=True)
class Tables:
    """Leaf tables of a process at one moment.

    base   uint64[T]  first byte that each maps, ascending
    frame  int64[T]   page frame of each
    node   int16[T]   its node, below 0: not known
    pages  int64[T, N + 1]  pages that it maps, by node; the last column: not known
    """

    base: np.ndarray
    frame: np.ndarray
    node: np.ndarray
    pages: np.ndarray

    def inside(self, ranges: Iterable[Range]) -> np.ndarray:
        """bool[T]: tables that map a part of one of the ranges."""
        found = np.zeros(len(self.base), bool)
        for one in ranges:
            found |= (self.base + np.uint64(TABLE) > np.uint64(one.start)) & (self.base < np.uint64(one.end))
        return found


def plan(pid: int, to: int | None) -> Plan:
    """What would be moved, and why the rest would not; UsageError where the process is refused."""
    refuse_full_group(pid)
    done = run(pid, to)
    raise_failure(done)
    return parsed(json.loads(done.stdout.splitlines()[0]))


def parsed(said: Mapping[str, Any]) -> Plan:
    ranges = tuple(Range(start, end, kib << 10, left or "") for start, end, kib, left in said["ranges"])
    return Plan(said["pid"], said["node"], said["threads"], ranges)


def run(pid: int, to: int | None, *more: str) -> subprocess.CompletedProcess[str]:
    command = [str(pt.live.native("ptrelocate")), *more, *([] if to is None else ["--to", str(to)]), str(pid)]
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, timeout=PATIENCE
    )


def raise_failure(done: subprocess.CompletedProcess[str]) -> None:
    why = done.stderr.strip().removeprefix("ptdump: ") or f"ptrelocate ended with {done.returncode}"
    if done.returncode == 1:
        raise LeftAwayError(why)
    if done.returncode not in (0, 3):
        raise pt.UsageError(why)
    if done.returncode == 3 and len(done.stdout.splitlines()) < 2:
        raise pt.errors.PartialDataError(why)


def leaf_tables(pid: int) -> Tables:
    """Those of a process now, from a dump that is not kept (it holds physical addresses)."""
    with pt.safe_files.temporary_directory() as place:
        dump_process(pid, place / "dump")
        return tables_of(pt.formats.read_snapshot(place / "dump"))


def tables_of(snapshot: pt.Snapshot) -> Tables:
    tree, topology = snapshot.guest, snapshot.topology
    at = np.flatnonzero(tree.level == 1)
    at = at[np.argsort(tree.base[at])]
    nodes = max((node.id for node in topology.nodes), default=0) + 1
    pages = np.zeros((len(at), nodes + 1), np.int64)
    for i, table in enumerate(at):
        words = np.asarray(tree.entries[table])
        words = words[pt.snapshot.leaf(words, 1, tree.encoding) & pt.snapshot.present(words, tree.encoding)]
        pages[i] = np.bincount(
            topology.node_of_frame(pt.snapshot.frame(words, 1, tree.encoding)) % (nodes + 1),
            minlength=nodes + 1,
        )
    return Tables(tree.base[at], tree.frame[at], tree.node[at], pages)


def refuse_full_group(pid: int) -> None:
    """UsageError where a control group leaves no memory to build tables with: the OOM killer would come."""
    for place in memory_groups(pid):
        with suppress(OSError, ValueError, KeyError):
            spare = spare_bytes(place)
            if spare is not None and spare < AT_LEAST:
                numbers = {"pid": pid, "group": place, "bytes": max(spare, 0), "least": AT_LEAST}
                raise pt.UsageError(str(pt.columns.message("relocate", "full-group", **numbers)))


def memory_groups(pid: int) -> Iterator[Path]:
    """Its control group of version 2, or of version 1's memory, and all above."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/cgroup").read_text(errors="surrogateescape")
        for controller, path in sysfs.control_groups(text).items():
            if controller in ("", "memory"):
                root = GROUPS / controller
                place = root / path.lstrip("/")  # root itself: a container's own, with its limits
                yield from (one for one in (place, *place.parents) if one.is_relative_to(root))


def spare_bytes(group: Path) -> int | None:
    """Bytes below the limits of memory (memory.high slows it down), files not counted; None: no limit."""
    newer = (group / "memory.max").exists()
    limits = ("memory.max", "memory.high") if newer else ("memory.limit_in_bytes",)
    usage, of = ("memory.current", "") if newer else ("memory.usage_in_bytes", "total_")
    said = [(group / limit).read_text().strip() for limit in limits]
    if (most := min([int(text) for text in said if text != "max"], default=NO_GROUP_LIMIT)) >= NO_GROUP_LIMIT:
        return None
    facts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    used = int((group / usage).read_text())
    return int(most) - used + int(facts[f"{of}inactive_file"]) + int(facts[f"{of}active_file"])


def spare(pid: int) -> int:
    """Bytes that may be allocated, by the machine's free memory and the limits of its control groups."""
    least = 1024 * int(re.findall(r"MemAvailable: +(\d+)", Path("/proc/meminfo").read_text())[0])
    for group in memory_groups(pid):
        with suppress(OSError, ValueError, KeyError):
            left = spare_bytes(group)
            least = least if left is None else min(least, left)
    return least


def areas(pid: int) -> dict[int, tuple[str, ...]]:
    """{start: addresses, rights and name, flags, locked bytes, memory policy} of its areas."""
    found: dict[int, list[str]] = {}
    lines: list[str] = []
    with pt.live.open_process(pid) as process, process.there():
        for line in (process.proc / "smaps").read_text(errors="replace").splitlines():
            if match := AREA.match(line):
                lines = found[int(match[1], 16)] = [line]
            elif line.startswith(KEPT):
                lines.append(line)
        with suppress(FileNotFoundError):  # a kernel without NUMA
            for line in (process.proc / "numa_maps").read_text(errors="replace").splitlines():
                address, policy, *_ = line.split()
                if int(address, 16) in found:
                    found[int(address, 16)].append(policy)
    return {start: tuple(lines) for start, lines in found.items()}


@dataclass(frozen=True)
class Relocated:
    """tally: of ptrelocate; changed: areas of the moved ranges that are not as before, in words."""

    plan: Plan
    tally: Mapping[str, Any]
    before: Tables
    after: Tables
    changed: tuple[str, ...]

    @property
    def whole(self) -> bool:
        return not (self.tally["skipped"] or self.tally["gave_up"] or self.changed)


def relocate(pid: int, to: int | None, pause: float) -> Relocated:
    """Do it; `pause` in milliseconds bounds each stop, 0: no bound. Errors as of plan, LeftAwayError."""
    plan(pid, to)
    before, areas_before = leaf_tables(pid), areas(pid)
    done = run(pid, to, "--yes", "--max-pause", str(round(pause * 1000)))
    raise_failure(done)
    planned, tally = map(json.loads, done.stdout.splitlines()[:2])
    made = parsed(planned)
    changed = tuple(differences(areas_before, areas(pid), made.moved))
    return Relocated(made, tally, before, leaf_tables(pid), changed)


def differences(
    before: Mapping[int, tuple[str, ...]], after: Mapping[int, tuple[str, ...]], ranges: Iterable[Range]
) -> list[str]:
    """Lines on areas of the ranges that are not what they were."""
    return [
        f"{one.start:x}-{one.end:x}: was {' '.join(before.get(one.start, ('not there',)))}, "
        f"is {' '.join(after.get(one.start, ('not there',)))}"
        for one in ranges
        if before.get(one.start) != after.get(one.start)
    ]


# Lines for people.


def numbered(counts: np.ndarray) -> dict[int, int]:
    """{node: count} of int[N + 1], the last not known: -1; those that are not 0."""
    nodes = [*range(len(counts) - 1), -1]
    return {node: count for node, count in zip(nodes, counts.tolist(), strict=True) if count}


def by_node(counts: Mapping[int, int]) -> str:
    """ "98 on node 0, 2 on node 1" of `numbered` counts."""
    names = ((f"node {node}" if node >= 0 else "nodes not known", count) for node, count in counts.items())
    return ", ".join(f"{count:,} on {name}" for name, count in names) or "none"


def counted(nodes: np.ndarray, width: int) -> np.ndarray:
    """int64[width]: how many are on each node, the last: not known."""
    return np.bincount(nodes.astype(np.int64) % width, minlength=width)


def plan_record(planned: Plan, tables: Tables) -> dict[str, Any]:
    """The plan for programs: counts by node as of `numbered`."""
    width, inside = tables.pages.shape[1], tables.inside(planned.moved)
    resident, number = Counter[str](), Counter[str]()
    for one in planned.ranges:
        if one.left and one.resident:
            resident[one.left] += one.resident
            number[one.left] += 1
    return {
        "pid": planned.pid,
        "node": planned.node,
        "threads": planned.threads,
        "leaf_tables": numbered(counted(tables.node, width)),
        "data_bytes": numbered(tables.pages.sum(axis=0) * 4096),
        "rebuilt_tables": numbered(counted(tables.node[inside], width)),
        "rebuilt_bytes": sum(one.resident for one in planned.moved),
        "far_tables": far(planned, tables),
        "left_out": [
            {"why": why, "bytes": size, "ranges": number[why]} for why, size in resident.most_common()
        ],
    }


def described(planned: Plan, tables: Tables) -> list[str]:
    """What relocation would do: a line each."""
    plan, of = plan_record(planned, tables), pt.errors.plural(len(planned.moved), "range")
    rebuilt, mib = plan["rebuilt_tables"], numbered(tables.pages.sum(axis=0) * 4096 >> 20)
    number, resident = sum(rebuilt.values()), pt.errors.size_in_words(plan["rebuilt_bytes"])
    name = " ".join(pt.live.command_line(planned.pid))[:80]
    lines = [
        f"PID {planned.pid}{f' ({name})' if name else ''}: {pt.errors.plural(planned.threads, 'thread')}, "
        f"most on node {planned.node}; leaf tables would be rebuilt there",
        f"leaf tables    {by_node(plan['leaf_tables'])}",
        f"data           {by_node(mib)} (MiB, in pages of 4 KiB)",
        f"rebuilt        {pt.errors.plural(number, 'leaf table')} of {resident} in {of}: {by_node(rebuilt)}; "
        f"the other {len(tables.base) - number:,} map what is left out",
    ]
    for one in plan["left_out"]:
        size, ranges = pt.errors.size_in_words(one["bytes"]), pt.errors.plural(one["ranges"], "range")
        lines.append(f"left out       {size} in {ranges}: {one['why']}")
    return lines


def far(planned: Plan, tables: Tables) -> int:
    """Leaf tables of what would be moved that are elsewhere than its threads, or on no known node."""
    return int(np.count_nonzero(tables.node[tables.inside(planned.moved)] != planned.node))


def at_home(planned: Plan, tables: Tables) -> str:
    """Why none is `far`."""
    if there := int(np.count_nonzero(tables.inside(planned.moved))):
        return f"{pt.errors.plural(there, 'leaf table')} could be rebuilt, all on node {planned.node} already"
    whys = dict.fromkeys(one.left for one in planned.ranges if one.left and one.resident)
    return f"no leaf table can be rebuilt ({', '.join(whys)})"


def proof(done: Relocated) -> list[str]:
    """What the dumps before and after show, and what it cost the process."""
    was, now = done.before.inside(done.plan.moved), done.after.inside(done.plan.moved)
    width, tally = done.before.pages.shape[1], done.tally
    frames = dict(zip(done.before.base[was].tolist(), done.before.frame[was].tolist(), strict=True))
    there = [
        frames[base] != page
        for base, page in zip(done.after.base[now].tolist(), done.after.frame[now].tolist(), strict=True)
        if base in frames
    ]
    lines = [
        f"leaf tables before  {by_node(numbered(counted(done.before.node[was], width)))}",
        f"leaf tables after   {by_node(numbered(counted(done.after.node[now], width)))}",
        f"rebuilt             {sum(there):,} of {len(there):,} lie in another page frame than before",
        f"stops               {tally['stops']:,}, longest {tally['longest_held_us'] / 1000:.2f} ms "
        f"(all threads but one: {tally['longest_us'] / 1000:.2f} ms), "
        f"{pt.errors.size_in_words(tally['bytes'])} of addresses moved in {tally['moving_us'] / 1000:.1f} ms",
        f"areas               {'as before' if not done.changed else f'{len(done.changed)} not as before'}: "
        "addresses, rights, names, flags, locks, policies",
    ]
    if width == 2:
        lines.append("this machine has one node, so tables are on it before and after")
    if tally["late"]:
        lines.append(f"{pt.errors.plural(tally['late'], 'stop')} took longer than --max-pause")
    if tally["retries"]:
        lines.append(f"{pt.errors.plural(tally['retries'], 'way')} back had to be tried again")
    if tally["interrupted"]:
        lines.append(
            f"{pt.errors.plural(tally['interrupted'], 'time')} a thread's timed system call ended early "
            "(EINTR): no other thread could carry it"
        )
    return lines
