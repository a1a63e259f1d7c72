"""Cache lines that a program uses of a page: a twin of pintool/lines.h for tests."""

PLACES = 4096


def is_sampled(page):
    return page * 0x9E3779B1 % 2**32 < 2**32 // 64


def ranked(page):
    """Hash of a page; the least in a place is kept."""
    mixed = page * 0xBF58476D1CE4E5B9 % 2**64
    return (mixed ^ mixed >> 32) * 0x94D049BB133111EB % 2**64


def count_lines(accesses):
    """[pages, those both halves of the chunks saw, their lines, the same] of (chunk, address)."""
    sampled = {address >> 12 for _, address in accesses if is_sampled(address >> 12)}
    least = {}
    for page in sorted(sampled, key=ranked):
        least.setdefault(ranked(page) % PLACES, page)
    seen = {page: (set(), set()) for page in least.values()}
    for chunk, address in accesses:
        if address >> 12 in seen:
            seen[address >> 12][chunk * 0x9E3779B1 % 2**32 >> 31].add(address >> 6 & 63)
    both = list(seen.values())
    return [
        len(both),
        sum(bool(one and other) for one, other in both),
        sum(len(one | other) for one, other in both),
        sum(len(one & other) for one, other in both),
    ]
