"""Phases by trying every cut, and threads at work by counting each thread's walks."""

import itertools


def squared_error(weights, means):
    """Sum of the weights times squared distance of their means from the mean of all."""
    total = sum(weights)
    columns = list(zip(*means, strict=True))
    centre = [sum(w * x for w, x in zip(weights, column, strict=True)) / total for column in columns]
    return sum(
        w * sum((x - c) ** 2 for x, c in zip(mean, centre, strict=True))
        for w, mean in zip(weights, means, strict=True)
    )


def cost(weights, means, cuts, penalty):
    parts = list(itertools.pairwise(cuts))
    return sum(squared_error(weights[a:b], means[a:b]) for a, b in parts) + penalty * (len(parts) - 1)


def long_enough(weights, turns, least, a, b):
    """Whether chunks a..b-1 weigh `least`, and are four turns of the threads that walk in them."""
    weight = sum(weights[a:b])
    usual = sum(w * t for w, t in zip(weights[a:b], turns[a:b], strict=True))
    return weight >= least and (b - a) * weight >= 4 * usual


def turn(threads, walks):
    """By chunk: how far the nearest other chunk of its thread is, of chunks with walks."""
    found = []
    for k, thread in enumerate(threads):
        far = [abs(k - j) for j, one in enumerate(threads) if one == thread and walks[j] and j != k]
        found.append(min(far, default=1) if walks[k] else 1)
    return found


def best_cuts(weights, means, turns, least, penalty):
    """(lowest cost, its cuts) of all partitions whose parts are long enough; None without any."""
    inner = range(1, len(weights))
    found = []
    for count in range(len(weights)):
        for chosen in itertools.combinations(inner, count):
            cuts = [0, *chosen, len(weights)]
            if all(long_enough(weights, turns, least, a, b) for a, b in itertools.pairwise(cuts)):
                found.append((cost(weights, means, cuts, penalty), cuts))
    return min(found, default=None)


def at_work(threads, walks, stray):
    """Number of threads at work in each chunk."""
    counts = [0] * len(threads)
    for thread in set(threads):
        mine = [k for k, one in enumerate(threads) if one == thread]
        total = sum(walks[k] for k in mine)
        if not total:
            continue
        so_far, first, last = 0, None, None
        for k in mine:
            so_far += walks[k]
            if first is None and so_far > stray * total:
                first = k
            if last is None and so_far >= total - stray * total:
                last = k
        for k in range(first, max(first, last) + 1):
            counts[k] += 1
    return counts
