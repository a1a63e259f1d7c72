"""Groups of CPUs by brute force: every threshold, the closure of what lies below it, every pair looked at."""

from itertools import combinations, pairwise, product


def levels(latency, cpus, gap):
    """[groups] of each consistent threshold, coarsest first. latency: {(a, b): ns}, each known pair once.

    None stands for a threshold whose groups the known pairs do not tell apart.
    """
    values = sorted(set(latency.values()))
    found = []
    for below, above in pairwise(values):
        if above / below < gap:
            continue
        near = closure({pair for pair, ns in latency.items() if ns <= below}, cpus)
        if any(near[pair] for pair, ns in latency.items() if ns > below):
            continue
        groups = sorted({tuple(b for b in sorted(cpus) if near[a, b]) for a in cpus})
        found.append(groups if all_told_apart(groups, latency) else None)
    return sorted(found, key=lambda groups: len(groups) if groups else len(cpus) + 1)


def closure(joined, cpus):
    """{(a, b): whether a chain of joined pairs leads from a to b} (Warshall)."""
    near = {(a, b): a == b or (a, b) in joined or (b, a) in joined for a, b in product(cpus, cpus)}
    for via, a, b in product(cpus, cpus, cpus):
        near[a, b] |= near[a, via] and near[via, b]
    return near


def all_told_apart(groups, latency):
    return all(
        any((a, b) in latency or (b, a) in latency for a, b in product(one, other))
        for one, other in combinations(groups, 2)
    )
