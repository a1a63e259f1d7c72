"""Rows of a vMitosis page-table dump, by regular expressions."""

import re

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
