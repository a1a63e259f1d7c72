"""Every 4 KiB page of a dumped process against /proc/PID/pagemap, both ways; uses none of the package.

Usage: python tests/native/leaf_check.py CAPTURE PID, while the process stands still. Files are read as
analyzer/docs/explanation/formats.md has them.
"""

import json
import os
import sys
from collections import Counter

import numpy as np

RECORD = [("base", "<u8"), ("frame", "<i8"), ("parent", "<i4")]
RECORD += [("node", "<i2"), ("level", "u1"), ("flags", "u1")]
# of pagemap: Documentation/admin-guide/mm/pagemap.rst
HERE, FRAME = np.uint64(1 << 63), np.uint64((1 << 55) - 1)
ADDRESS = np.uint64((1 << 52) - (1 << 12))
PIECE = 1 << 20


def dumped(capture):
    """(page numbers, sorted; their frames) of the leaf entries of gpt.tables and gpt.entries."""
    tables = np.fromfile(f"{capture}/gpt.tables", RECORD, offset=512)
    entries = np.fromfile(f"{capture}/gpt.entries", "<u8", offset=4096).reshape(-1, 512)
    pages, frames = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for level in (1, 2, 3):
        ids = np.flatnonzero(tables["level"] == level)
        raw, size = entries[ids], 512 ** (level - 1)
        present = raw & np.uint64(1) != 0
        hidden = ~present & (raw & np.uint64(0x100 if level == 1 else 0x180) != 0)
        at, slot = np.nonzero((present | hidden) & ((raw & np.uint64(0x80) != 0) if level > 1 else True))
        word = np.where(hidden[at, slot], ~raw[at, slot], raw[at, slot]) & ADDRESS
        first = (tables["base"][ids[at]] >> np.uint64(12)).astype(np.int64) + slot * size
        frame = (word >> np.uint64(12)).astype(np.int64) // size * size
        pages.append((first[:, None] + np.arange(size)).ravel())
        frames.append((frame[:, None] + np.arange(size)).ravel())
    page, frame = np.concatenate(pages), np.concatenate(frames)
    order = np.argsort(page)
    return page[order], frame[order]


def shown(pid):
    """(page numbers, sorted; their frames) of pagemap, below the kernel's half."""
    pages, frames = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
        for line in maps:
            start, end = (int(word, 16) >> 12 for word in line.split()[0].split("-"))
            for at in range(start, end if start < 1 << 44 else start, PIECE):
                length = min(at + PIECE, end) - at
                words = np.frombuffer(os.pread(pagemap.fileno(), 8 * length, 8 * at), "<u8")
                here = np.flatnonzero(words & HERE)
                pages.append(at + here)
                frames.append((words[here] & FRAME).astype(np.int64))
    return np.concatenate(pages), np.concatenate(frames)


def compare(capture, pid):
    """{"dumped", "equal", "other frame", "not in pagemap": {VMA: pages}, "not dumped"}."""
    (page, frame), (seen, seen_frame) = dumped(capture), shown(pid)
    at = np.minimum(np.searchsorted(seen, page), max(len(seen) - 1, 0))
    known = seen[at] == page if len(seen) else np.zeros(len(page), bool)
    same = known & (seen_frame[at] == frame) if len(seen) else known
    return {
        "dumped": len(page),
        "equal": int(same.sum()),
        "other frame": int((known & ~same).sum()),
        "not in pagemap": dict(Counter(map(vma_of(pid), page[~known].tolist()))),
        "not dumped": int(np.count_nonzero(~np.isin(seen, page))),
    }


def vma_of(pid):
    with open(f"/proc/{pid}/maps") as maps:
        areas = [
            (*(int(word, 16) >> 12 for word in line.split()[0].split("-")), line.split()[-1]) for line in maps
        ]
    return lambda page: next((name for start, end, name in areas if start <= page < end), "no VMA")


if __name__ == "__main__":
    print(json.dumps(compare(sys.argv[1], int(sys.argv[2]))))
