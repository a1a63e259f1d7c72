"""Part of a trace that stands for all of it: which part was asked for."""

import re
from dataclasses import dataclass

from .errors import UsageError

MOST = {"sets": 16, "regions": 1024}  # 1 of so many at the least
ASKED = re.compile(r"(sets|regions):1/(\d{1,4})(?:@(\d{1,4}))?")


@dataclass(frozen=True)
class Sample:
    """One of `one_in` samples that together are the whole.

    unit   "sets": page numbers modulo 16, which share no set of a TLB; "regions": regions of 2 MiB
           "windows": of time, in which alone the trace was recorded
    which  0 ... one_in - 1
    name   of windows: how they were asked for
    """

    unit: str
    one_in: int
    which: int = 0
    name: str = ""

    def __str__(self) -> str:
        return self.name or f"{self.unit}:1/{self.one_in}" + (f"@{self.which}" if self.which else "")


def windows_sample(every_ns: int, window_ns: int, one_in: int) -> Sample:
    """Sample of windows: "windows:1s of 10s"."""
    return Sample("windows", one_in, name=f"windows:{window_ns / 1e9:g}s of {every_ns / 1e9:g}s")


def sample_of(text: "str | Sample | None") -> Sample | None:
    """Sample that "sets:1/8", "regions:1/16" or, for another one of the 16, "regions:1/16@3" stands for.

    None or "": no sample. UsageError for other words and rates.
    """
    if not text or isinstance(text, Sample):
        return text or None
    found = ASKED.fullmatch(text.strip())
    if not found:
        raise UsageError(f"sample = {text}: write sets:1/8 or regions:1/16")
    unit, one_in, which = found[1], int(found[2]), int(found[3] or 0)
    if one_in < 2 or one_in > MOST[unit] or one_in & (one_in - 1):
        raise UsageError(f"sample = {text}: a rate is 1/2, 1/4, 1/8 and so on, for {unit} to 1/{MOST[unit]}")
    if which >= one_in:
        raise UsageError(f"sample = {text}: there are samples @0 to @{one_in - 1}")
    return Sample(unit, one_in, which)
