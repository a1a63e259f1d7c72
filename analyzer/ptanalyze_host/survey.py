"""Every process of this host: its page tables by node, counted in the kernel, and where it runs."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ptanalyze as pt

from . import sysfs

# Counted page tables of a process by node, and what share of its walks is expected to be remote.

PAGE = 4096


def remote(tables: dict[int, int], runs: dict[int, float]) -> float | None:
    known = {node: count for node, count in tables.items() if node != pt.errors.UNKNOWN_NODE}
    total = sum(known.values())
    if not total or not runs:
        return None
    return 1 - sum(share * known.get(node, 0) / total for node, share in runs.items())


FAR = 0.8  # of the walks, and of the CPU time of one node: tables left behind, not a program on all nodes
FEW = 64  # leaf tables, of 128 MiB: caches hold the entries of fewer
WATCHED = 1.0  # seconds for which CPU time is compared: 100 of its ticks
PROC, NODES = Path("/proc"), sysfs.SYSTEM / "node"
PROCESSOR = 36  # proc(5): of the fields after the name, from 0


@dataclass(frozen=True)
class Surveyed:
    """A process, or a VM by its VMM.

    pid, name    of the process; of a VM: its name, where QEMU has one
    kind         "process" or "vm"
    cgroup       path of its cgroup, "" unknown
    table_bytes  of page tables, as the kernel counts them; the root is not among them
    rss_bytes    resident memory
    leaf, upper  {node: table pages}: those that map 4 KiB pages, and those above them
    huge_bytes   mapped by entries above the leaf tables
    runs         {node: share of the CPU time of its threads, by the CPU on which each ran last}
    may_use      nodes that its cpuset and the machine let it take memory from; None: unknown
    cpus         that it kept busy during the survey, 1.5: one and a half
    """

    pid: int
    name: str
    kind: str
    cgroup: str
    table_bytes: int
    rss_bytes: int
    leaf: dict[int, int]
    upper: dict[int, int]
    huge_bytes: int
    runs: dict[int, float]
    may_use: frozenset[int] | None = None
    cpus: float = 0.0

    @property
    def remote_share(self) -> float | None:
        """Share of walks whose leaf table is remote if all leaf tables are walked alike; None unknown."""
        return remote(self.leaf, self.runs)

    @property
    def upper_remote_share(self) -> float | None:
        """Share of walks that read a remote table above the leaf table."""
        return remote(self.upper, self.runs)

    @property
    def remote_bytes(self) -> float:
        """Expected bytes of leaf tables that are remote: the worst come first."""
        return PAGE * sum(self.leaf.values()) * (self.remote_share or 0.0)

    @property
    def left_behind(self) -> str:
        """Why most of its leaf tables are far from threads that run on one node, in words; "" they are not.

        Tables stay where they were made: neither the scheduler nor a cpuset that changes moves them, whatever
        it does with data (cpuset_migrate_mm in kernel/cgroup/cpuset.c queues pages on the LRU alone).
        """
        if (self.remote_share or 0.0) < FAR or sum(self.leaf.values()) < FEW or max(self.runs.values()) < FAR:
            return ""
        on = max(self.leaf, key=lambda node: self.leaf[node])
        run = max(self.runs, key=lambda node: self.runs[node])
        if self.may_use is not None and on not in self.may_use:
            return f"its cpuset moved it from node {on} to {run}, its tables stayed"
        return f"its threads run on node {run}, its tables are on node {on}"

    @property
    def mostly_small(self) -> bool:
        """Whether 4 KiB pages map most of its memory, more of it than caches hold the entries of."""
        return sum(self.leaf.values()) >= FEW and 2 * self.huge_bytes < self.rss_bytes


@dataclass(frozen=True)
class Group:
    """Processes that are counted together; fields as in Surveyed, sums of the group's.

    rss_bytes                         pages that processes share count in each of them
    remote_share, upper_remote_share  means, weighed by the tables of each process; None unknown
    """

    name: str
    kind: str
    cgroup: str
    pids: tuple[int, ...]
    cpus: float
    table_bytes: int
    rss_bytes: int
    huge_bytes: int
    leaf: dict[int, int]
    remote_share: float | None
    upper_remote_share: float | None


def grouped(found: Sequence[Surveyed], by: Callable[[Surveyed], Hashable]) -> list[Group]:
    """Group of each value of `by`, in the order of `survey`."""
    groups: defaultdict[Hashable, list[Surveyed]] = defaultdict(list)
    for one in found:
        groups[by(one)].append(one)
    made = [
        Group(
            name=members[0].name,
            kind=members[0].kind,
            cgroup=members[0].cgroup,
            pids=tuple(one.pid for one in members),
            cpus=sum(one.cpus for one in members),
            table_bytes=sum(one.table_bytes for one in members),
            rss_bytes=sum(one.rss_bytes for one in members),
            huge_bytes=sum(one.huge_bytes for one in members),
            leaf=dict(sorted(sum((Counter(one.leaf) for one in members), Counter[int]()).items())),
            remote_share=mean((one.remote_share, sum(one.leaf.values())) for one in members),
            upper_remote_share=mean((one.upper_remote_share, sum(one.upper.values())) for one in members),
        )
        for members in groups.values()
    ]
    far = (sum(one.leaf.values()) * (one.remote_share or 0.0) for one in made)
    ordered = sorted(zip(far, made, strict=True), key=lambda of: (-of[0], -of[1].cpus, -of[1].table_bytes))
    return [group for _, group in ordered]


def mean(weighted: Iterable[tuple[float | None, int]]) -> float | None:
    """Mean of (share, weight), without those that are not known; None where none is."""
    known = [(share, weight) for share, weight in weighted if share is not None and weight]
    total = sum(weight for _, weight in known)
    return sum(share * weight for share, weight in known) / total if total else None


def survey(quiet: bool = False) -> list[Surveyed]:
    """[Surveyed] of all processes that have memory of their own: the worst first, then by CPU time and by
    size. Nothing is stopped.

    An eBPF program counts table pages in the kernel and keeps no entry; leaf tables are not read at all.
    UsageError without the tool, or without the privileges of `dump process`. Processes that end meanwhile are
    left out; so are those whose tables are kept from us, with a line on stderr unless `quiet`.
    """
    began, before = time.monotonic(), {int(proc.name): ticks(proc) for proc in PROC.glob("[0-9]*")}
    ran = subprocess.run([pt.live.native("ptsurvey")], capture_output=True, text=True, check=False)
    if ran.returncode:
        said = ran.stderr.strip().splitlines() or ["ptsurvey failed"]
        raise pt.UsageError(f"survey: {said[-1].removeprefix('ptdump: ')}")
    if ran.stderr and not quiet:
        pt.options.echo(ran.stderr.strip().replace("ptsurvey", "ptanalyze", 1), err=True)
    node_of, found = nodes_of_cpus(), []
    for line in ran.stdout.splitlines():
        with suppress(OSError):  # it has ended
            if (counts := json.loads(line))["pid"] in before.keys() - {os.getpid()}:
                found.append(surveyed(counts, node_of))
    time.sleep(max(began + WATCHED - time.monotonic(), 0))
    after = {one.pid: ticks(PROC / str(one.pid)) for one in found}
    lasted = (time.monotonic() - began) * os.sysconf("SC_CLK_TCK")
    used = {pid: max(count - before[pid], 0) / lasted for pid, count in after.items()}
    found = [replace(one, cpus=round(used[one.pid], 2)) for one in found if one.name != "ptanalyze"]
    return sorted(found, key=lambda one: (-one.remote_bytes, -one.cpus, -one.table_bytes, one.pid))


def ticks(proc: Path) -> int:
    """CPU time of a process directory below /proc; 0 if it has ended."""
    with suppress(OSError):
        return pt.live.cpu_ticks(pt.live.stat_fields(proc))
    return 0


def surveyed(counts: dict[str, Any], node_of: dict[int, int]) -> Surveyed:
    """Counts of ptsurvey with what /proc says; OSError if the process has ended."""
    pid = int(counts["pid"])
    leaf, *above = ({int(node): n for node, n in level.items()} for level in counts["tables"])
    huge = counts["huge"]
    status, command = facts(pid), (pt.live.shown(pid) / "cmdline").read_bytes()
    vm, name = is_vm(pid), (pt.live.shown(pid) / "comm").read_text("utf-8", "surrogateescape")
    allowed, rss = status.get("Mems_allowed_list"), status.get("VmRSS", "0").removesuffix(" kB")
    return Surveyed(
        pid=pid,
        name=(vm_name(command) if vm else "") or name.rstrip("\n"),  # status escapes it
        kind="vm" if vm else "process",
        cgroup=cgroup_of((PROC / str(pid) / "cgroup").read_text("utf-8", "surrogateescape")),
        table_bytes=int(counts["pgtables_bytes"]),
        rss_bytes=1024 * sysfs.whole(f"/proc/{pid}/status", "VmRSS", rss),
        leaf=leaf,
        upper=dict(sum(map(Counter, above), Counter[int]())),
        huge_bytes=sum(n << (12 + 9 * level) for level, n in enumerate(huge)),
        runs=runs_on(pid, node_of),
        may_use=None if allowed is None else frozenset(sysfs.parse_cpus(allowed)),
    )


def facts(pid: int) -> dict[str, str]:
    """Fields of /proc/PID/status."""
    text = (pt.live.shown(pid) / "status").read_text("utf-8", "surrogateescape")
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def cgroup_of(text: str) -> str:
    """Path in /proc/PID/cgroup: of version 2, or of version 1's memory where that is the root; "" neither."""
    of = sysfs.control_groups(text)
    unified, memory = of.get("", ""), of.get("memory", "")
    return memory if unified in ("", "/") and memory else unified


def is_vm(pid: int) -> bool:
    """Whether it holds a virtual machine of KVM."""
    for entry in os.scandir(PROC / str(pid) / "fd"):
        with suppress(OSError):
            if os.readlink(entry.path).startswith("anon_inode:kvm-vm"):
                return True
    return False


def vm_name(command: bytes) -> str:
    """The name that -name gives to a VM of QEMU; "" without one."""
    words = command.decode("utf-8", "surrogateescape").split("\0")
    for part in next((words[k + 1] for k, word in enumerate(words[:-1]) if word == "-name"), "").split(","):
        key, _, value = part.rpartition("=")
        if key in ("", "guest"):
            return value
    return ""


def runs_on(pid: int, node_of: dict[int, int]) -> dict[int, float]:
    """{node: share of CPU time}: each thread's time counts for the CPU on which it ran last."""
    time: Counter[int] = Counter()
    for thread in os.scandir(PROC / str(pid) / "task"):
        with suppress(OSError):
            fields = pt.live.stat_fields(thread.path)
            node = node_of.get(int(fields[PROCESSOR]))
            if node is not None:
                time[node] += 1 + pt.live.cpu_ticks(fields)
    total = sum(time.values())
    return {node: ticks / total for node, ticks in sorted(time.items())}


def nodes_of_cpus() -> dict[int, int]:
    """{CPU: node of the memory nearest to it}; without NUMA in /sys all CPUs are on node 0."""
    nodes = sysfs.nodes_of(NODES)
    near = {
        cpu: group[0] for group in sysfs.groups_of(NODES, nodes) for node in group for cpu in nodes[node].cpus
    }
    return near or dict.fromkeys(range(os.cpu_count() or 1), 0)


def host_nodes() -> int:
    """NUMA nodes of this host that have memory, those without CPUs too."""
    return max(len(sysfs.groups_of(NODES, sysfs.nodes_of(NODES))), 1)
