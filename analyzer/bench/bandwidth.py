"""Memory-read bandwidth of a core at this moment: the reference for every other rate."""

import time

import numpy as np

BYTES = 1 << 28


def best(function, rounds=3, clock=time.process_time):
    """Seconds, of CPU time unless the clock is another, of the fastest, least disturbed, of several runs."""
    times = []
    for _ in range(rounds):
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)


def read_bandwidth():
    """Bytes per second that np.sum reads from an array of uint64 far larger than a core's caches."""
    array = np.ones(BYTES // 8, np.uint64)
    return BYTES / best(array.sum, rounds=5)


def run():
    return [("memory read, one core", read_bandwidth() / 1e9, "GB/s", "np.sum of uint64, 256 MiB, best of 5")]
