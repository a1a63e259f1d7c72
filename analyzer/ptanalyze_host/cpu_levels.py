"""Virtual NUMA groups: which CPUs share a socket, from latencies of cache-line transfers between them.

Two CPUs of a socket hand a cache line over faster than CPUs of different sockets (Panwar et al., vMitosis,
3.3.4). A guest that sees no NUMA nodes groups its vCPUs by that: fast within a group, slow across. A machine
may have more than two latencies: between hyperthreads of a core, cores of a socket, sockets. Each gap is a
level.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike

import numpy as np

import ptanalyze as pt


@dataclass(frozen=True)
class Level:
    """A partition that the latencies support: every known pair within a group takes at most `within_ns`,
    every known pair across groups at least `across_ns` (None: there is only one group)."""

    groups: list[tuple[int, ...]]
    within_ns: float
    across_ns: float | None


def groups(
    matrix: np.ndarray,
    cpus: Sequence[int],
    *,
    nodes: int | None = None,
    one_group_ok: bool = False,
    name: str | PathLike[str] = "latency matrix",
) -> list[tuple[int, ...]]:
    """CPUs of each virtual NUMA group: sorted tuples, sorted by their first CPU.

    matrix  float[n, n] in ns, row and column i for cpus[i]; nan where a pair was not measured, [a][b] or
            [b][a] is enough; the diagonal is ignored
    nodes   take the level with this number of groups; None: the level with the fewest, at least two
    UsageError where the matrix has no groups, or not `nodes` of them (one_group_ok: without any gap all CPUs
    are one group); CaptureError where it contradicts itself. Both begin with `name`.
    """
    return level(matrix, cpus, nodes=nodes, one_group_ok=one_group_ok, name=name).groups


def level(
    matrix: np.ndarray,
    cpus: Sequence[int],
    *,
    nodes: int | None = None,
    one_group_ok: bool = False,
    name: str | PathLike[str] = "latency matrix",
) -> Level:
    """The Level of the groups that groups() returns."""
    ns = pt.machine.known_pairs(matrix, cpus, name)
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
    ns = pt.machine.known_pairs(matrix, cpus, name)
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
    wide = np.flatnonzero(sorted_ns[1:] >= pt.machine.GAP * sorted_ns[:-1])
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
    return f"the matrix has no groups: {span} without a gap of {pt.machine.GAP} times"


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
    ns, cpus = pt.machine.known_pairs(matrix, cpus), list(cpus)
    means = []
    for group in members:
        own = np.isin(cpus, group)
        means.append((mean_known(ns[np.ix_(own, own)]), mean_known(ns[np.ix_(own, ~own)])))
    return means


def mean_known(ns: np.ndarray) -> float | None:
    known = ns[~np.isnan(ns)]
    return float(known.mean()) if len(known) else None
