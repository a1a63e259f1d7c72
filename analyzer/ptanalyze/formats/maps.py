"""`maps`: the text of /proc/PID/maps, byte for byte, as a VMA array."""

import re
from collections.abc import Sequence
from os import PathLike

import numpy as np

from ..core.errors import CaptureError
from ..core.snapshot import VMA_DTYPE

LINE = re.compile(
    r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ([r-])([w-])([x-])([ps]) [0-9a-f]+ [0-9a-f]+:[0-9a-f]+ [0-9]+ *(.*)"
)


def parse_maps(text: str | bytes, file: str | PathLike[str] = "maps") -> tuple[np.ndarray, tuple[str, ...]]:
    r"""(VMA_DTYPE[V], names) of the text (str or bytes) of /proc/PID/maps (proc(5)).

    Names are the last column, "" for anonymous memory; a byte that is no UTF-8 is \xNN in them. CaptureError
    names the first line that does not parse or overlaps the one before it.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    lines = text.split("\n")
    if lines.pop():
        raise CaptureError(file, f"line {len(lines) + 1}", "end of file", "the last line is cut short")
    vmas = np.zeros(len(lines), VMA_DTYPE)
    names = []
    end = 0
    for i, line in enumerate(lines):
        match = LINE.fullmatch(line)
        if not match:
            raise CaptureError(file, f"line {i + 1}", line[:60], "not a line of /proc/PID/maps")
        start, stop = int(match[1], 16), int(match[2], 16)
        if not end <= start < stop or start % 4096 or stop % 4096:
            raise CaptureError(file, f"line {i + 1}", line[:33], "empty, not whole pages, or out of order")
        end = stop
        prot = sum(1 << bit for bit in range(3) if match[3 + bit] != "-")
        vmas[i] = (start, stop, prot, match[6] == "s", False)
        names.append(match[7])
    return vmas, tuple(names)


def format_maps(vmas: np.ndarray, names: Sequence[str]) -> str:
    """Text of /proc/PID/maps for `vmas`; offset, device and inode are zero."""
    lines = []
    for vma, name in zip(vmas, names, strict=True):
        flags = "".join(letter if vma["prot"] >> bit & 1 else "-" for bit, letter in enumerate("rwx"))
        flags += "s" if vma["shared"] else "p"
        lines.append(f"{vma['start']:x}-{vma['end']:x} {flags} 00000000 00:00 0 {name}".rstrip(" ") + "\n")
    return "".join(lines)
