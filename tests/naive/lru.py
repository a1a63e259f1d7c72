"""A fully associative LRU cache of lines, exactly."""

from collections import OrderedDict


def lru_misses(lines, size):
    """Misses in the second pass of a stream that a first pass has warmed the cache with."""
    held, misses = OrderedDict(), 0
    for turn in range(2):
        for line in lines.tolist():
            if line in held:
                held.move_to_end(line)
                continue
            misses += turn
            held[line] = True
            if len(held) > size:
                held.popitem(last=False)
    return misses
