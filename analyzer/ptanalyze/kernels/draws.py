"""Seeded numbers that need no memory: the n-th of a sequence, a permutation of n places."""

from .hooks import hook, kernel

MASK = (1 << 32) - 1
FACTOR = 0x45D9F3B
ROUNDS = 4


@kernel
def draw(key, n):
    """The n-th number of a sequence of 32-bit numbers; key, n int64 in 0..2^32-1. Never beyond 63 bits."""
    x = n ^ key
    for _ in range(2):
        x = ((x >> 16) ^ x) * FACTOR & MASK
        x = ((x >> 16) ^ x) * FACTOR & MASK
        x = ((x >> 16) ^ x) + key & MASK
    return x


@hook
def permuted(x, n, bits, key):
    """The image of x under a permutation of 0..n-1; n <= 4 ** bits.

    A Feistel network on 2 * bits bits, walked until it is back below n (Black and Rogaway, 2002).
    """
    half = (1 << bits) - 1
    inside = False
    while not inside:
        left, right = x >> bits, x & half
        for turn in range(ROUNDS):
            left, right = right, left ^ (draw(key ^ turn, right) & half)
        x = left << bits | right
        inside = x < n
    return x


@kernel
def permute(places, n, bits, key, out):
    """out[i] = the image of places[i] (int64) under a permutation of 0..n-1; n <= 4 ** bits."""
    for i in range(len(out)):
        out[i] = permuted(places[i], n, bits, key)
