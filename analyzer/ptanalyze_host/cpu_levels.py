"""Virtual NUMA groups: which CPUs share a socket, from latencies of cache-line transfers between them.

Two CPUs of a socket hand a cache line over faster than CPUs of different sockets (Panwar et al., vMitosis,
3.3.4). A guest that sees no NUMA nodes groups its vCPUs by that: fast within a group, slow across. A machine
may have more than two latencies: between hyperthreads of a core, cores of a socket, sockets. Each gap is a
level.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import numpy as np

import ptanalyze as pt

# Neighbours in the sorted latencies that differ by less belong to the same level. vMitosis, Table 4:
# 62 / 50 = 1.24 is the whole spread of the level within sockets, 125 / 62 = 2.02 the gap to the level across.
GAP = 1.3
LEAST_NS, MOST_NS = 0.1, 1e9  # below a clock cycle, above a second: no transfer of a cache line


@dataclass(frozen=True)
class Level:
    """A partition that the latencies support: every known pair within a group takes at most `within_ns`,
    every known pair across groups at least `across_ns` (None: there is only one group).

    groups  sorted CPUs of each, sorted by their first CPU
    """

    groups: list[tuple[int, ...]]
    within_ns: float
    across_ns: float | None


def level(
    matrix: np.ndarray,
    cpus: Sequence[int],
    *,
    nodes: int | None = None,
    one_group_ok: bool = False,
    name: str | PathLike[str] = "latency matrix",
) -> Level:
    """The Level whose groups are the virtual NUMA groups.

    matrix  float[n, n] in ns, row and column i for cpus[i]; nan where a pair was not measured, [a][b] or
            [b][a] is enough; the diagonal is ignored
    nodes   take the level with this number of groups; None: the level with the fewest, at least two
    UsageError where the matrix has no groups, or not `nodes` of them (one_group_ok: without any gap all CPUs
    are one group); CaptureError where it contradicts itself. Both begin with `name`.
    """
    ns = known_pairs(matrix, cpus, name)
    candidates = levels(ns, cpus, name)
    if not candidates and one_group_ok:
        candidates = [one_group(ns, cpus, name)]
    if not candidates:
        raise pt.UsageError(f"{name}: {why_no_groups(ns)}")
    if nodes is None:
        return candidates[0]
    for candidate in candidates:
        if len(candidate.groups) == nodes:
            return candidate
    counts = ", ".join(str(len(candidate.groups)) for candidate in candidates)
    raise pt.UsageError(f"{name}: no level has {nodes} groups; there are levels with {counts}")


def levels(
    matrix: np.ndarray, cpus: Sequence[int], name: str | PathLike[str] = "latency matrix"
) -> list[Level]:
    """Every Level of two or more groups, the coarsest first; [] where no gap is as wide as GAP.

    Thresholds are the gaps between sorted latencies; CPUs joined by faster pairs are one group (single
    linkage). UsageError where none of them holds for every known pair, or known pairs leave groups open.
    """
    ns = known_pairs(matrix, cpus, name)
    partitions: list[Level] = []
    broken = []
    for below, above in sorted(gaps(ns), reverse=True):
        group = linked(ns <= below)
        slow = np.argwhere((group[:, None] == group) & (ns >= above))
        if len(slow):
            broken.append((above / below, below, slow[0]))
            continue
        if open_pair := undecided(ns, group, cpus):
            if partitions:
                break  # finer levels leave the same groups open
            raise pt.UsageError(f"{name}: {open_pair}")
        partitions.append(Level(partition(group, cpus), below, above))
    if broken and not partitions:
        _, below, pair = max(broken, key=lambda gap: gap[0])
        raise pt.UsageError(f"{name}: {contradiction(ns, cpus, below, *pair)}")
    return partitions


def gaps(ns: np.ndarray) -> list[tuple[float, float]]:
    """[(slowest latency below, fastest above)] of each gap at least GAP wide."""
    sorted_ns = np.unique(ns[~np.isnan(ns)])
    wide = np.flatnonzero(sorted_ns[1:] >= GAP * sorted_ns[:-1])
    return [(float(sorted_ns[at]), float(sorted_ns[at + 1])) for at in wide]


def linked(close: np.ndarray) -> np.ndarray:
    """int64[n]: the same number for all that are joined by a chain of `close`, bool[n, n], symmetric."""
    group = np.full(len(close), -1)
    for first in range(len(close)):
        edge = (np.arange(len(close)) == first) & (group < 0)
        while edge.any():
            group[edge] = first
            edge = close[edge].any(axis=0) & (group < 0)
    return group


def undecided(ns: np.ndarray, group: np.ndarray, cpus: Sequence[int]) -> str | None:
    """Words that name a pair to measure, None if known pairs prove that all groups are distinct."""
    numbers = np.unique(group, return_inverse=True)[1]
    met = np.eye(numbers.max() + 1, dtype=bool)
    a, b = np.nonzero(~np.isnan(ns))
    met[numbers[a], numbers[b]] = True
    for first, second in np.argwhere(~met)[:1]:
        a, b = (cpus[np.flatnonzero(numbers == number)[0]] for number in (first, second))
        return f"no known pair shows whether CPUs {a} and {b} share a group: measure that pair too"
    return None


def one_group(ns: np.ndarray, cpus: Sequence[int], name: str | PathLike[str]) -> Level:
    if open_pair := undecided(ns, linked(~np.isnan(ns)), cpus):
        raise pt.UsageError(f"{name}: {open_pair}")
    return Level([tuple(sorted(int(cpu) for cpu in cpus))], float(np.nanmax(ns)), None)


def partition(group: np.ndarray, cpus: Sequence[int]) -> list[tuple[int, ...]]:
    members: dict[int, list[int]] = {}
    for cpu, number in sorted(zip(cpus, group.tolist(), strict=True)):
        members.setdefault(number, []).append(int(cpu))
    return sorted(tuple(own) for own in members.values())


def why_no_groups(ns: np.ndarray) -> str:
    known = ns[~np.isnan(ns)]
    if not len(known):
        return "no pair is known: all are nan or -"
    if len(ns) == 2:
        return f"two CPUs are one pair ({known[0]:.4g} ns), and one pair cannot be grouped: give more CPUs"
    low, high = known.min(), known.max()
    span = f"latencies lie between {low:.4g} and {high:.4g} ns"
    return f"the matrix has no groups: {span} without a gap of {GAP} times"


def contradiction(ns: np.ndarray, cpus: Sequence[int], below: float, a: int, b: int) -> str:
    """Words for a slow pair whose CPUs a chain of pairs, each at most `below` ns, puts into one group."""
    before = {a: a}
    edge = [a]
    for at in edge:
        for to in np.flatnonzero(ns[at] <= below).tolist():
            if to not in before:
                before[to] = at
                edge.append(to)
    chain = [b]
    while chain[-1] != a:
        chain.append(before[chain[-1]])
    steps = zip(chain[::-1], chain[-2::-1], strict=False)
    fast = ", ".join(f"{cpus[x]}-{cpus[y]} {ns[x, y]:.4g}" for x, y in steps)
    return (
        f"CPUs {cpus[a]} and {cpus[b]} take {ns[a, b]:.4g} ns, as CPUs of two groups do, "
        f"but fast pairs join them ({fast} ns): measure again"
    )


def mean_latencies(
    matrix: np.ndarray, cpus: Sequence[int], members: Iterable[tuple[int, ...]]
) -> list[tuple[float | None, float | None]]:
    """[(mean ns within, mean ns to other groups)] of each group in `members`; None where no pair is known."""
    ns, cpus = known_pairs(matrix, cpus), list(cpus)
    means = []
    for group in members:
        own = np.isin(cpus, group)
        means.append((mean_known(ns[np.ix_(own, own)]), mean_known(ns[np.ix_(own, ~own)])))
    return means


def mean_known(ns: np.ndarray) -> float | None:
    known = ns[~np.isnan(ns)]
    return float(known.mean()) if len(known) else None


def known_pairs(
    matrix: np.ndarray, cpus: Sequence[int], name: str | PathLike[str] = "latency matrix"
) -> np.ndarray:
    """float64[n, n], symmetric: the faster direction of each pair (interference only slows), nan where none
    is known and on the diagonal. CaptureError names the CPUs of a pair with an impossible latency, or with
    two different ones."""
    ns, cpus = np.array(matrix, np.float64), [int(cpu) for cpu in cpus]
    if ns.shape != (len(cpus), len(cpus)):
        why = f"must be square, one row and column per CPU ({len(cpus)})"
        raise pt.errors.CaptureError(name, "shape", ns.shape, why)
    if len(cpus) < 2:
        raise pt.errors.CaptureError(name, "CPUs", len(cpus), "a pair needs two")
    if len(set(cpus)) < len(cpus):
        raise pt.errors.CaptureError(
            name, "CPU", next(cpu for cpu in cpus if cpus.count(cpu) > 1), "named twice"
        )
    np.fill_diagonal(ns, np.nan)
    for a, b in np.argwhere((ns < LEAST_NS) | (ns > MOST_NS))[:1]:
        why = f"expected ns from {LEAST_NS} to {MOST_NS:.0e}, or - where a pair was not measured"
        raise pt.errors.CaptureError(name, f"[{cpus[a]}][{cpus[b]}]", ns[a, b], why)
    for a, b in np.argwhere(ns > GAP * ns.T)[:1]:
        why = f"but [{cpus[b]}][{cpus[a]}] = {ns[b, a]}, more than noise ({GAP} times) apart: measure again"
        raise pt.errors.CaptureError(name, f"[{cpus[a]}][{cpus[b]}]", ns[a, b], why)
    return np.fmin(ns, ns.T)


# Groups of CPUs that share a node, socket, cache or core, according to this machine's kernel.

SHARED = {  # of /sys/devices/system/cpu/cpuN, Documentation/ABI/stable/sysfs-devices-system-cpu
    "sockets": "topology/core_siblings_list",
    "L3 caches": "cache/index3/shared_cpu_list",
    "cores (hyperthreads)": "topology/thread_siblings_list",
}
Groups: TypeAlias = list[tuple[int, ...]]


def kernel_groups(cpus: Sequence[int], system: Path = pt.sysfs.SYSTEM) -> dict[str, Groups]:
    """{"NUMA nodes" or another shared resource: groups of these CPUs, as in a Level}

    Resources that the kernel does not show are left out. UsageError for a CPU that it does not know.
    """
    for cpu in cpus:
        if not (system / f"cpu/cpu{cpu}").is_dir():
            raise pt.UsageError(
                f"CPU {cpu}: not of this machine, so there is nothing to compare its group with"
            )
    lists = {"NUMA nodes": sorted((system / "node").glob("node[0-9]*/cpulist"))}
    for kind, name in SHARED.items():
        lists[kind] = [system / f"cpu/cpu{cpu}" / name for cpu in cpus]
    return {
        kind: restricted(paths, cpus)
        for kind, paths in lists.items()
        if paths and all(path.exists() for path in paths)
    }


def restricted(paths: Iterable[Path], cpus: Sequence[int]) -> Groups:
    lists = {
        tuple(sorted(set(pt.sysfs.parse_cpus(pt.sysfs.text_of(path), path)) & set(cpus))) for path in paths
    }
    return sorted(group for group in lists if group)


def mirrored(groups: Groups, kernel: Mapping[str, Groups]) -> list[str]:
    """Kinds with exactly these groups."""
    return [kind for kind, own in kernel.items() if own == groups]
