"""Sizes as people write them ("64M"), and limits on extra memory and updates."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import UsageError

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
NO_LIMIT = float("inf")
PAGE = 4096  # bytes of a table page


def parse_size(text: str) -> float | None:
    """Bytes of "64M", "64MiB", "1.5 T" or "67108864"; None for any other text, and beyond all numbers."""
    found = SIZE.fullmatch(text.strip())
    size = float(found[1]) * UNITS.get(found[2].upper(), 1) if found else float("inf")
    return None if size == float("inf") else size


def show_size(size: float) -> str:
    """ "64M" of bytes, to four digits."""
    for unit, factor in reversed(UNITS.items()):
        if size >= factor:
            return f"{size / factor:.4g}{unit}"
    return str(size)


def size_in_words(size: int) -> str:
    """Bytes for people: 76 KiB, 62.4 MiB, 9.1 GiB."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 1024:,.0f} KiB"


def size_as_read(size: int) -> float:
    """Bytes of the size that size_in_words writes: what policies are compared by; below 0 where they are
    saved."""
    number, unit = size_in_words(abs(size)).split()
    bytes_read = float(number.replace(",", "")) * UNITS[unit[0]]
    return -bytes_read if size < 0 else bytes_read


@dataclass(frozen=True)
class Budget:
    """Limits: extra bytes, and extra management cycles as a share of the baseline's run."""

    bytes: float = NO_LIMIT
    updates: float = NO_LIMIT


def budget(memory: float | str, updates: float | str, mapped: int) -> Budget:
    """A Budget from numbers or texts: memory as "64M" or as "1%" of `mapped` bytes, updates as "2%".

    UsageError for any other text.
    """
    return Budget(
        bytes_of(memory, mapped) if isinstance(memory, str) else memory,
        share_of(updates) if isinstance(updates, str) else updates,
    )


def bytes_of(text: str, whole: int) -> float:
    """Bytes of "64M" or of "1%" of `whole`."""
    if (size := parse_size(text)) is not None:
        if 0 < size < PAGE:
            raise UsageError(f"--memory {text}: less than a table page; write 1M, or 1% for a share")
        return size
    if percent := PERCENT.fullmatch(text.strip()):
        return float(percent[1]) / 100 * whole
    raise UsageError(f"--memory {text}: write a size as 64M or 2G, or a share as 1%")


def share_of(text: str) -> float:
    if percent := PERCENT.fullmatch(text.strip()):
        return float(percent[1]) / 100
    raise UsageError(f"--updates {text}: write a share of the run as 2%")


def show_duration(seconds: float) -> str:
    """Time for people: at once, 35 ms, 2.5 s, 12 min, 3.1 h."""
    if not seconds:
        return "at once"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{1e3 * seconds:.3g} ms"
