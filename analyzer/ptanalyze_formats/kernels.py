"""Text of other tracers and dumps to columns, a block of whole lines at a time; touches to bytes."""

import numpy as np

import ptanalyze as pt

NEWLINE, SPACE, TAB, HASH, COMMA, DASH, COLON, SLASH, DOT, BAR = 10, 32, 9, 35, 44, 45, 58, 47, 46, 124
OPEN, CLOSE = 91, 93  # brackets
NO_THREAD, GONE = np.int64(-2), np.int64(-1)  # none so far; of a task that had exited, as perf prints it
TOO_BIG = np.int64(1 << 57)  # beyond the user half even of five levels
LATEST = 9_223_372_036  # second whose nanoseconds fit into 63 bits
NOT_TOLD, BY_NAME, TLB_HIT, TLB_MISSED = np.int8(0), np.int8(1), np.int8(2), np.int8(4)
STLB_MISS_LOADS = np.frombuffer(b"stlb_miss_loads", np.uint8)
STLB_MISS_STORES = np.frombuffer(b"stlb_miss_stores", np.uint8)
TLB_MISS = np.frombuffer(b"tlb-miss", np.uint8)
STOR = np.frombuffer(b"stor", np.uint8)
OP_STORE = np.frombuffer(b"|OP STORE", np.uint8)
TLB = np.frombuffer(b"|TLB ", np.uint8)
NOT_KNOWN = np.frombuffer(b"N/A", np.uint8)
MISS = np.frombuffer(b" miss", np.uint8)
L1_MISS = np.frombuffer(b"L1 miss", np.uint8)
HEX = np.full(256, -1, np.int8)
HEX[48:58] = np.arange(10)
HEX[65:71] = HEX[97:103] = np.arange(10, 16)


@pt.jit.called_hook
def line_end(data, at):
    while at < len(data) and data[at] != NEWLINE:
        at += 1
    return at


@pt.jit.called_hook
def number(data, at, end, base):
    """(value, position after it) of a number; the position is `at` when there is none. At most TOO_BIG."""
    value = np.int64(0)
    while at < end:
        digit = HEX[data[at]]
        if digit < 0 or digit >= base:
            break
        value = min(value * base + digit, TOO_BIG)
        at += 1
    return value, at


@pt.jit.called_hook
def blank(data, at, end):
    """Position after the blanks at `at`."""
    while at < end and data[at] == SPACE:
        at += 1
    return at


@pt.jit.called_hook
def find(data, at, end, text):
    """Position of `text` (uint8[n]) in data[at:end], or -1."""
    for start in range(at, end - len(text) + 1):
        same = 0
        while same < len(text) and data[start + same] == text[same]:
            same += 1
        if same == len(text):
            return start
    return -1


@pt.jit.called_hook
def counts_tlb_misses(data, at, end):
    """Whether data[at:end] names an event of which each sample is a TLB miss.

    Loads and stores that missed every TLB: Intel's PEBS (mem_inst_retired.stlb_miss_loads; before Skylake
    mem_uops_retired), and what perf makes of Arm's SPE records with a table walk (tlb-miss, perf-arm-spe(1)).
    """
    loads, stores = find(data, at, end, STLB_MISS_LOADS), find(data, at, end, STLB_MISS_STORES)
    return loads >= 0 or stores >= 0 or find(data, at, end, TLB_MISS) == at


@pt.jit.called_hook
def data_source(data, at, end):
    """(TLB_HIT, TLB_MISSED or NOT_TOLD, whether it is a store) of what perf's field data_src says.

    Text of tools/perf/util/mem-events.c: "|OP LOAD|LVL L3 or L3 hit|SNP None|TLB L2 miss|LCK No|BLK  N/A".
    A miss of a named level beyond the first, or of the walker, or of no named level, is a walk.
    """
    store = find(data, at, end, OP_STORE) >= 0
    start = find(data, at, end, TLB) + len(TLB)
    if start < len(TLB):
        return NOT_TOLD, store
    stop = start
    while stop < end and data[stop] != BAR:
        stop += 1
    while stop > start and data[stop - 1] == SPACE:
        stop -= 1
    if stop == start or (stop == start + len(NOT_KNOWN) and find(data, start, stop, NOT_KNOWN) == start):
        return NOT_TOLD, store
    missed = find(data, start, stop, MISS) == stop - len(MISS) and find(data, start, stop, L1_MISS) < 0
    return (TLB_MISSED if missed else TLB_HIT), store


@pt.jit.called_hook
def process(data, at, end):
    """(number or GONE, position after it); the position is `at` when there is none."""
    if at + 1 < end and data[at] == DASH and data[at + 1] == 49:
        return GONE, at + 2
    return number(data, at, end, 10)


@pt.jit.kernel
def parse_perf(data, tid, cpu, time, page, period, write, walk):
    """Parse `perf script` lines with a thread, a time, an address and, if present, a CPU and an event.

    A line: anything, TID or PID/TID (-1: GONE), [CPU], SECONDS.FRACTION: then, after an optional period and
    event name that ends in a colon, the address in hexadecimal. An event with "stor" in its name is a store,
    and what the data source says is one. An address is followed by another number (a data source, or an
    instruction's address, which comes before its symbol), else the address was the instruction's itself. tid,
    cpu (-1 unknown), time (ns), page int64 (0: no address, or the kernel's); period int64 (-1: not printed;
    at most TOO_BIG); write bool; walk int8: BY_NAME if the event counts TLB misses, and TLB_HIT or TLB_MISSED
    if the data source tells. Returns (rows, position of the first bad line or -1). Lines that are empty or
    begin with "#" are skipped.
    """
    n = at = 0
    while at < len(data):
        start = at
        end = line_end(data, at)
        at = end + 1
        if end == start or data[start] == HASH:
            continue
        word = start
        state = 0  # 0: before the time, 1: after it, 2: after the address, 3: after another number
        thread, on = NO_THREAD, np.int64(-1)
        counted, first = np.int64(-1), start
        kind = np.int8(0)
        store = False
        while word < end and state < 3:
            while word < end and (data[word] == SPACE or data[word] == TAB):
                word += 1
            after = word
            while after < end and data[after] != SPACE and data[after] != TAB:
                after += 1
            if after == word:
                break
            if state == 0:
                value, stop = process(data, word, after)
                if stop > word and stop < after and data[stop] == SLASH:
                    value, stop = process(data, stop + 1, after)
                if stop == after:  # the last before the time: numbers may be part of a name
                    thread, on = value, np.int64(-1)
                elif data[word] == OPEN and thread != NO_THREAD:  # [CPU]; a name may have brackets, too
                    value, stop = number(data, word + 1, after, 10)
                    if stop > word + 1 and stop == after - 1 and data[stop] == CLOSE:
                        on = value
                elif (
                    stop > word
                    and data[stop] == DOT
                    and data[after - 1] == COLON
                    and thread != NO_THREAD
                    and value < LATEST
                ):
                    fraction, stop_2 = number(data, stop + 1, after, 10)
                    if stop_2 == after - 1 and stop_2 - stop <= 10 and value < LATEST:
                        for _ in range(10 - (stop_2 - stop)):
                            fraction *= 10
                        time[n] = value * 1000000000 + fraction
                        state = 1
            elif data[after - 1] == COLON:  # the event; the word before it was the period
                if state == 2:
                    counted, stop = number(data, first, word, 10)
                    if data[stop] != SPACE and data[stop] != TAB:
                        return n, start
                state = 1
                store = find(data, word, after, STOR) >= 0
                kind = BY_NAME if counts_tlb_misses(data, word, after) else np.int8(0)
            elif state == 1:
                value, stop = number(data, word, after, 16)
                if stop != after:
                    return n, start
                page[n] = value >> 12 if value < TOO_BIG else 0
                first = word
                state = 2
            else:
                _, stop = number(data, word, after, 16)
                if stop != after:
                    return n, start
                state = 3
            word = after
        if state < 2:
            return n, start
        told, stores = data_source(data, word, end)
        tid[n] = thread
        cpu[n] = on
        period[n] = counted
        write[n] = store or stores
        walk[n] = kind | told
        n += 1
    return n, -1


@pt.jit.called_hook
def touch(page, write, n, address, size, store):
    """Rows after those of an access, one for each page it reaches into; len(page): no more has room."""
    for number_of_page in range(address >> 12, ((address + size - 1) >> 12) + 1):
        if n == len(page):
            break
        page[n], write[n] = number_of_page, store
        n += 1
    return n


@pt.jit.kernel
def parse_lackey(data, instructions, page, write, time):
    """Parse lines of `valgrind --tool=lackey --trace-mem=yes`: "I  addr,size", " L addr,size", S, M alike.

    Blanks may be fewer: handouts of a course (CS:APP's cache lab) have one behind the I.
    data  uint8[bytes] of whole lines; instructions: "I" lines so far
    page int64, write bool, time int64 (instructions so far): a row per access, room for 4 per line; M is a
    load and a store; an access across a page border has a row for each page.
    Returns (rows, instructions, position of the first line that is neither this nor valgrind's own, or -1).
    """
    n = at = 0
    while at < len(data):
        start = at
        end = line_end(data, at)
        at = end + 1
        if end == start or data[start] == 61 or data[start] == 45:  # "==PID== ...", "--PID-- ..."
            continue
        letter = start + np.int64(data[start] == SPACE)
        kind = data[min(letter, end - 1)]
        begin = blank(data, letter + 1, end)
        address, comma = number(data, begin, end, 16)
        size, last = number(data, comma + 1, end, 10)
        if (
            not letter + 1 < begin < comma < end
            or data[comma] != COMMA
            or last != end
            or size == 0
            or address >= TOO_BIG
        ):
            return n, instructions, start
        if kind == 73:  # I
            instructions += 1
        elif kind == 76 or kind == 83 or kind == 77:  # L, S, M
            for stores in range(np.int64(kind == 83), 1 + np.int64(kind != 76)):
                first, n = n, touch(page, write, n, address, size, stores == 1)
                time[first:n] = instructions
                if n == len(page):
                    return n, instructions, start
        else:
            return n, instructions, start
    return n, instructions, -1


# Entries of a row of a vMitosis page-table dump, from text to words.

NUMA, EXECUTABLE, POINTER = 1 << 60, 1 << 61, 1 << 62  # prefixes n, x and p of an entry, above its number
DIGITS = 10  # frames have 40 bits
PREFIX = np.zeros(256, np.int64)
PREFIX[list(b"nxp")] = NUMA, EXECUTABLE, POINTER


@pt.jit.kernel
def parse_entries(text, words):
    """Fill words (int64[n]) from entries: letters n, x and p, 1 to 10 hexadecimal digits, a blank behind.

    text  uint8[bytes] that ends with a blank. Returns whether it is n entries and nothing else.
    """
    n, prefix, number, digits = 0, np.int64(0), np.int64(0), 0
    for byte in text:
        if byte == SPACE and digits > 0 and n < len(words):
            words[n] = prefix | number
            n, prefix, number, digits = n + 1, np.int64(0), np.int64(0), 0
        elif HEX[byte] >= 0 and digits < DIGITS:
            number, digits = number << 4 | HEX[byte], digits + 1
        elif PREFIX[byte] and digits == 0:
            prefix |= PREFIX[byte]
        else:
            return False
    return n == len(words)


# Touches to bytes, in the format of pintool/records.h.

RECENT = 6  # pages that a touch may name by their place


@pt.jit.allocating_kernel
def encode_chunk(page, write, count, out):
    """Encode a chunk's touches; the inverse of kernels/trace_codec.py and the twin of pintool/encode.h.

    page int64[n] (below 2^45), write bool[n], count int64[n] (1..COUNT_MAX), out uint8[>= 10 n].
    Returns the number of bytes written.
    """
    recent = np.zeros(RECENT, np.int64)
    base = np.int64(0)
    other = np.int64(0)
    spelled = np.int64(3)
    at = 0
    for i in range(len(page)):
        number = page[i]
        slot = 0
        while slot < RECENT and recent[slot] != number:
            slot += 1
        for j in range(min(slot, RECENT - 1), 0, -1):
            recent[j] = recent[j - 1]
        recent[0] = number
        start = at
        at += 1
        if slot < RECENT:
            first = slot << 5
        else:
            delta = (number - base) << 1 ^ (number - base) >> 63
            if delta >> 27 == 0:
                extra = 1 if delta >> 11 == 0 else 2 if delta >> 19 == 0 else 3
                first = extra << 3 | (delta & 7) << 5
                bits = delta >> 3
            else:
                base, other = other, base
                delta = (number - base) << 1 ^ (number - base) >> 63
                extra = 4 if delta >> 32 == 0 else 6
                first = (RECENT if extra == 4 else RECENT + 1) << 5
                bits = delta if extra == 4 else number
            base = number
            for j in range(extra):
                out[at + j] = (bits >> (8 * j)) & 255
            at += extra
        code = count[i] - 1 if count[i] < 3 else 2 if count[i] == spelled else 3
        out[start] = first | np.int64(write[i]) | code << 1
        if code == 3:
            spelled = count[i]
            left = count[i] - 3
            while left >= 128:
                out[at] = (left & 127) | 128
                left >>= 7
                at += 1
            out[at] = left
            at += 1
    return at
