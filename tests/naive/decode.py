"""Records of other formats and of ours, one at a time."""

import re
from fractions import Fraction

# The touch encoding of pintool/records.h, word for word, in plain Python.

RECENT = 6


def encode(touches):
    """bytes of one chunk from [(page, write, count)]."""
    recent, base, other, spelled, out = [0] * RECENT, 0, 0, 3, bytearray()
    for page, write, count in touches:
        tail = b""
        if page in recent:
            kind, low = 0, recent.index(page)
            recent.remove(page)
        else:
            recent.pop()
            delta = zigzag(page - base)
            if delta < 1 << 27:
                kind = next(k for k in (1, 2, 3) if delta < 1 << (3 + 8 * k))
                low, tail = delta & 7, (delta >> 3).to_bytes(kind, "little")
            else:
                base, other = other, base
                kind, delta = 0, zigzag(page - base)
                if delta < 1 << 32:
                    low, tail = 6, delta.to_bytes(4, "little")
                else:
                    low, tail = 7, page.to_bytes(6, "little")
            base = page
        recent.insert(0, page)
        code = count - 1 if count < 3 else 2 if count == spelled else 3
        out.append(write | code << 1 | kind << 3 | low << 5)
        out += tail
        if code == 3:
            spelled = count
            out += leb128(count - 3)
    return bytes(out)


def decode(data, n):
    """[(page, write, count)] of the first n touches of a chunk, and the bytes left over."""
    recent, base, other, spelled, touches = [0] * RECENT, 0, 0, 3, []
    for _ in range(n):
        first, data = data[0], data[1:]
        kind, low = first >> 3 & 3, first >> 5
        if kind == 0 and low < RECENT:
            page = recent.pop(low)
        else:
            size = kind or (4 if low == 6 else 6)
            bits, data = int.from_bytes(data[:size], "little"), data[size:]
            if kind:
                bits = bits << 3 | low
            else:
                base, other = other, base
            page = bits if size == 6 else base + (bits >> 1 if bits % 2 == 0 else -(bits >> 1) - 1)
            base = page
            recent.pop()
        recent.insert(0, page)
        code = first >> 1 & 3
        count = code + 1 if code < 2 else spelled
        if code == 3:
            count = 3
            shift = 0
            while True:
                byte, data = data[0], data[1:]
                count += (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
            spelled = count
        touches.append((page, bool(first & 1), count))
    return touches, data


def zigzag(delta):
    return 2 * delta if delta >= 0 else -2 * delta - 1


def leb128(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


# Rows of a vMitosis page-table dump, by regular expressions.

ROW = re.compile(r'<level([1-4]) b="([0-9a-f]*)">((?:[npx]*[0-9a-f]{1,10} ){512})</level[1-4]>\n')
PREFIXES = {"n": 1 << 60, "x": 1 << 61, "p": 1 << 62}


def parse_rows(text):
    """[(level, frame, [512 numbers with prefix bits])] of the whole text."""
    rows = []
    for level, frame, entries in ROW.findall(text):
        words = []
        for entry in entries.split():
            digits = entry.lstrip("npx")
            prefix = sum(PREFIXES[letter] for letter in set(entry[: len(entry) - len(digits)]))
            words.append(prefix | int(digits, 16))
        rows.append((int(level), int(frame or "0", 16), words))
    return rows


# Twin of ptanalyze_formats.perf_samples: one sample after the other, in fractions.


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
