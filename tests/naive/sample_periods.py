"""Twin of formats.foreign.perf_samples: one sample after the other, in fractions."""

from fractions import Fraction


def copies_of(blocks):
    """[[how often a sample is written]] of blocks of (thread, page, period)."""
    first = sorted(period for *_, period in blocks[0])
    few = (len(first) - 1) // 100  # that may be longer
    unit = max(first[len(first) - 1 - few], first[-1] // 1024 + 1)
    credit = Fraction(unit // 2, unit)
    written = []
    for block in blocks:
        often = [0] * len(block)
        for at in sorted(range(len(block)), key=lambda at: (block[at][0], block[at][1], at)):
            credit += Fraction(max(block[at][2], 1), unit)
            often[at] = int(credit)
            credit -= often[at]
        written.append(often)
    return written
