"""Rows of a vMitosis page-table dump, `<levelL b="FRAME">ENTRY ENTRY ... </levelL>`, from text to words."""

import numpy as np

from .hooks import called_hook, kernel

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
