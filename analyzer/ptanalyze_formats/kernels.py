"""Text of other tracers and dumps to columns, a block of whole lines at a time."""

import numpy as np

from ptanalyze.kernels.jit import called_hook, kernel
from ptanalyze.kernels.parse import COLON, COMMA, HASH, HEX, SPACE, TOO_BIG, blank, line_end, number, prefixed


@called_hook
def touch(page, write, n, address, size, store):
    """Rows after those of an access, one for each page it reaches into; len(page): no more has room."""
    for number_of_page in range(address >> 12, ((address + size - 1) >> 12) + 1):
        if n == len(page):
            break
        page[n], write[n] = number_of_page, store
        n += 1
    return n


@kernel
def parse_lackey(data, instructions, page, write, time):
    """Parse lines of `valgrind --tool=lackey --trace-mem=yes`: "I  addr,size", " L addr,size", S, M alike.

    Blanks may be fewer: handouts of a course (CS:APP's cache lab) have one behind the I.
    data  uint8[bytes] of whole lines; instructions: "I" lines so far
    page int64, write bool, time int64 (instructions so far): a row per access, room for 4 per line; M is a
    load and a store; an access across a page border has a row for each page.
    Returns (rows, instructions, position of the first line that is neither this nor valgrind's own, or -1).
    """
    n = 0
    at = 0
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


@kernel
def parse_pinatrace(data, page, write):
    """Parse lines of Pin's pinatrace: "0xip: R 0xaddress", R or W; the last line is "#eof".

    Those of Pin's SimpleExamples are padded and go on with the size in decimal and the value.
    data  uint8[bytes] of whole lines; page int64, write bool: a row per access and page, room for 2 a line
    Returns (rows, position of the first other line, or -1).
    """
    n = 0
    at = 0
    while at < len(data):
        start = at
        end = line_end(data, at)
        at = end + 1
        if end == start or data[start] == HASH:
            continue
        code, colon = prefixed(data, start, end)
        kind = data[min(colon + 2, end - 1)]
        address, last = prefixed(data, blank(data, colon + 3, end), end)
        form = code >= 0 and colon + 4 < end and data[colon] == COLON and data[colon + 1] == SPACE
        if not form or (kind != 82 and kind != 87) or data[colon + 3] != SPACE or address < 0:
            return n, start
        size = np.int64(1)
        if last < end:
            begin = blank(data, last, end)
            size, stop = number(data, begin, end, 10)
            value, padded = prefixed(data, blank(data, stop, end), end)
            if value < 0 and padded < end and data[padded] == 48:  # C++ shows no 0x before a zero
                padded += 1
            while padded < end and (HEX[data[padded]] >= 0 and value >= 0):  # wider than 8 bytes
                padded += 1
            if not last < begin < stop or padded != end or size > 4096:
                return n, start
        n = touch(page, write, n, address, max(size, 1), kind == 87)
        if n == len(page):
            return n, start
    return n, -1


# Rows of a vMitosis page-table dump, `<levelL b="FRAME">ENTRY ENTRY ... </levelL>`, from text to words.

NUMA, EXECUTABLE, POINTER = 1 << 60, 1 << 61, 1 << 62  # prefixes n, x and p of an entry, above its number
DIGITS = 10  # frames have 40 bits
OK, BAD_ROW, BAD_ENTRY, TOO_MANY, CUT_SHORT = range(5)
ROW_END, BLANK, QUOTE, LESS, GREATER, N, P, X = tuple(b'\n "<>npx')
ROW = tuple(b"<level")


VALUE = np.full(256, -1, np.int64)  # of a byte that is a lower-case hexadecimal digit
VALUE[list(b"0123456789abcdef")] = range(16)


@called_hook
def row_head(text, at, end):
    """(level, frame, position behind the head) of the row at `at`; level -1 if it is no row, -2 cut short."""
    for i in range(6):
        if at + i >= end or text[at + i] != ROW[i]:
            return -1, 0, at
    if at + 11 >= end:
        return -2, 0, at
    level, at, frame = VALUE[text[at + 6]], at + 11, 0
    last = at + DIGITS + 1
    while at < end and at < last and VALUE[text[at]] >= 0:
        frame = frame << 4 | VALUE[text[at]]
        at += 1
    if at + 2 >= end:
        return -2, 0, at
    if not 1 <= level <= 4 or text[at] != QUOTE or text[at + 1] != GREATER or frame >> 40:
        return -1, 0, at
    return level, frame, at + 2


@called_hook
def entry_at(text, at, end):
    """(number with prefix bits, position behind it); -1 if there is no entry, -2 cut short."""
    word, number, digits = 0, 0, 0
    while at < end and (text[at] == N or text[at] == X or text[at] == P):
        word |= NUMA if text[at] == N else EXECUTABLE if text[at] == X else POINTER
        at += 1
    while at < end and digits <= DIGITS and VALUE[text[at]] >= 0:
        number = number << 4 | VALUE[text[at]]
        at += 1
        digits += 1
    if at >= end:
        return -2, at
    if digits == 0 or digits > DIGITS or text[at] != BLANK:
        return -1, at
    return word | number, at + 1


@kernel
def parse_rows(text, at, end, level, frame, words):
    """Parse the rows in text[at:end] (uint8) into level[T], frame[T] and words[T, 512] (int64).

    Lines that are no rows are skipped. Returns (rows, position, OK or the error at that position).
    """
    rows = 0
    while at < end:
        if text[at] != LESS or at + 1 >= end or text[at + 1] != ROW[1]:
            while at < end and text[at] != ROW_END:
                at += 1
            at += 1
            continue
        start = at
        height, number, at = row_head(text, at, end)
        if height < 0:
            return rows, start, BAD_ROW if height == -1 else CUT_SHORT
        if rows == len(level):
            return rows, start, TOO_MANY
        level[rows], frame[rows] = height, number
        for slot in range(512):
            word, after = entry_at(text, at, end)
            if word < 0:
                return rows, at, BAD_ENTRY if word == -1 else CUT_SHORT
            words[rows, slot], at = word, after
        if at >= end or text[at] != LESS:
            return rows, at, CUT_SHORT if at >= end else BAD_ENTRY
        rows += 1
        while at < end and text[at] != ROW_END:
            at += 1
        if at >= end:
            return rows, at, CUT_SHORT
        at += 1
    return rows, at, OK
