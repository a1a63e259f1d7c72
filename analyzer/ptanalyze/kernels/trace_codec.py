"""Touches to bytes and back, and the frames around them, in the format of pintool/records.h."""

import numpy as np

from .jit import called_hook, hook, kernel

FRAME_BYTES = 48
FRAME_MAGIC = 0x46545450
LOW = (1 << 32) - 1
RECENT = 6
PAGE_BITS = 45
COUNT_MAX = (1 << 18) - 1
EMPTY = -1
ID_BITS = 23  # Touches.page is 32 bits: region id, then 9 bits of slot
HASH_BITS = 33
HASH_FACTOR = 5308871583  # 2^33 / golden ratio (Knuth, TAOCP 3, 6.4); no overflow for 30-bit keys

OK, PAST_END, BAD_LENGTH, BAD_PAGE, BAD_COUNT, BAD_SUM, MANY_REGIONS, UNKNOWN_REGION = range(8)
DAMAGE = {
    PAST_END: "the touches run past the chunk's end",
    BAD_LENGTH: "bytes are left over after the last touch",
    BAD_PAGE: "a page number beyond 57-bit addresses",
    BAD_COUNT: "a touch of more than 2^18 - 1 accesses",
    BAD_SUM: "the touches do not add up to the chunk's accesses",
    UNKNOWN_REGION: "memory that the trace's index lacks",
}


@kernel
def scan_frames(data, start, end, frames, offset):
    """Find the whole frames in data[start:end]; with room in `offset`, also copy their headers.

    data    uint8[bytes]
    frames  uint8[n, 48]  filled with the frame headers
    offset  int64[n]      filled with the position of each frame; length 0: only count
    Returns (number of frames, end of the last frame): short of `end` where the rest is no whole frame.
    """
    n, at = 0, start
    while at + FRAME_BYTES <= end and eight_bytes(data, at) & LOW == FRAME_MAGIC:
        after = at + FRAME_BYTES + (eight_bytes(data, at + 8) & LOW)
        if after > end:
            break
        if n < len(offset):
            offset[n] = at
            for i in range(FRAME_BYTES):
                frames[n, i] = data[at + i]
        n += 1
        at = after
    return n, at


@kernel
def number_pages(number, n, table, regions, known, most, page):
    """Region ids of number[:n] (page numbers), new ones from `known` on: page[i] = id << 9 | number[i] & 511.

    table  int64[2^k + 1]: open-addressed, region << ID_BITS | id, EMPTY where free; last, below 2^30, what
           keys are xored with, so that no one can choose addresses that collide.
    Returns `known` afterwards, most + 1 at a region beyond `most`: once they are known, nothing but `page` is
    written, and threads may share a table. A loop of its own, apart from decoding: its cache misses overlap.
    """
    mask = len(table) - 2
    salt = table[mask + 1]
    shift = HASH_BITS
    while 1 << (HASH_BITS - shift) <= mask:
        shift -= 1
    for i in range(n):
        region = number[i] >> 9
        key = (region ^ region >> 30 ^ salt) & ((1 << 30) - 1)
        at = (key * HASH_FACTOR >> shift) & mask
        while table[at] >> ID_BITS != region:
            if table[at] == EMPTY:
                if known == most:
                    return most + 1
                table[at] = region << ID_BITS | known
                regions[known] = region
                known += 1
                break
            at = (at + 1) & mask
        page[i] = (table[at] & ((1 << ID_BITS) - 1)) << 9 | (number[i] & 511)
    return known


@called_hook
def decode_touches(data, at, end, n, base_page, number, write, count):
    """Decode a chunk's n touches from data[at:end].

    number int64[>= n] page numbers, base_page added; write bool, count uint32
    Returns (accesses, OK or the reason why the chunk is damaged).
    """
    base = other = np.int64(0)
    recent = base, base, base, base, base, base
    spelled = np.int64(3)
    total = np.int64(0)
    for touch in range(n):
        if at >= end:
            return total, PAST_END
        record = eight_bytes(data, at)
        at += 1
        kind = (record >> 3) & 3
        low = (record >> 5) & 7
        if kind == 0 and low < RECENT:
            recent = to_front(recent, low)
        else:
            extra = kind if kind else (4 if low == RECENT else 6)
            at += extra
            if at > end:
                return total, PAST_END
            if kind:
                bits = (record >> 5) & ((np.int64(8) << (8 * extra)) - 1)
            else:
                bits = (record >> 8) & ((np.int64(1) << (8 * extra)) - 1)
                base, other = other, base
            base = bits if extra == 6 else base + ((bits >> 1) ^ -(bits & 1))
            if base < 0 or (base + base_page) >> PAGE_BITS:
                return total, BAD_PAGE
            first, second, third, fourth, fifth, _ = recent
            recent = base, first, second, third, fourth, fifth
        code = (record >> 1) & 3
        times = code + 1 if code < 2 else spelled
        if code == 3:
            times, shift, more = np.int64(3), 0, True
            while more:
                if at >= end:
                    return total, PAST_END
                times += (np.int64(data[at]) & 127) << shift
                more = data[at] >= 128
                at += 1
                shift += 7
                if shift > 21 or times > COUNT_MAX:
                    return total, BAD_COUNT
            spelled = times
        number[touch] = recent[0] + base_page
        write[touch] = record & 1
        count[touch] = times
        total += times
    return total, OK if at == end else BAD_LENGTH


@hook
def eight_bytes(data, at):
    """int64: data[at : at + 8], little-endian, 0 beyond the end."""
    at, bits = np.uint64(at), np.uint64(0)
    if at + np.uint64(8) <= np.uint64(len(data)):  # the compiler makes one load of these
        for i in range(np.uint64(8)):
            bits |= np.uint64(data[at + i]) << (np.uint64(8) * i)
    else:
        for i in range(np.uint64(len(data)) - at):
            bits |= np.uint64(data[at + i]) << (np.uint64(8) * i)
    return np.int64(bits)


@hook
def to_front(recent, slot):
    """Six pages, the one at `slot` moved to their front: kept in registers."""
    a, b, c, d, e, f = recent
    f = e if slot > 4 else f
    e = d if slot > 3 else e
    d = c if slot > 2 else d
    c = b if slot > 1 else c
    return recent[slot], a if slot > 0 else b, c, d, e, f


@kernel
def decode_chunks(
    data, offset, length, touches, accesses, first, last, base_page, table, regions, known, most,
    page, write, count, number,
):  # fmt: skip
    """Decode chunks first..last-1 in order.

    data              uint8[bytes]   the file
    offset, length    int64[chunks]  payload of each chunk
    touches, accesses int64[chunks]  expected counts of each chunk
    base_page         int64          added to every page (the header's guest_base >> 12)
    table             int64[2^k + 1] see number_pages
    regions           int64[half of 2^k]  region of each id, `known` of them so far, of `most` there may be
    page, write, count  filled in order: uint32, bool, uint32, as ptanalyze.trace.Touches
    number            room: int64[touches of the longest chunk]

    Returns (chunk, known, error): decoded up to before `chunk`. Stops early with MANY_REGIONS when the table
    might become more than half full, UNKNOWN_REGION beyond `most`, or the reason why a chunk is damaged.
    """
    out = 0
    for chunk in range(first, last):
        n = touches[chunk]
        if known < most and known + n > len(regions):
            return chunk, known, MANY_REGIONS
        start = offset[chunk]
        total, error = decode_touches(
            data, start, start + length[chunk], n, base_page, number, write[out:], count[out:]
        )
        if error == OK and total != accesses[chunk]:
            error = BAD_SUM
        if error != OK:
            return chunk, known, error
        known = number_pages(number, n, table, regions, known, most, page[out:])
        if known > most:
            return chunk, most, UNKNOWN_REGION
        out += n
    return last, known, OK
