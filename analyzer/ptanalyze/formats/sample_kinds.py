"""Which of perf's samples are TLB misses, and which accesses."""

import re
from os import PathLike

import numpy as np

from ..core.errors import CaptureError
from ..kernels.parse import BY_NAME, TLB_MISSED

EVENT_NAME = re.compile(rb"^[^#\n]*?\d\.\d+:[ \t]+(?:\d+[ \t]+)?([^\s:]\S*):[ \t]", re.MULTILINE)


class Kinds:
    """Whether the samples of a text are TLB misses, over its blocks.

    missed  samples so far that missed by their data source
    """

    def __init__(self, name: str | PathLike[str]) -> None:
        self.name = name
        self.events: set[bytes] = set()
        self.seen: set[int] = set()
        self.missed = 0

    def are_walks(self, walk: np.ndarray, text: bytes) -> bool:
        """Whether all samples so far are: by their data sources, else by their events.

        walk  int8[n] of parse_perf
        Samples of accesses of which some missed are accesses. CaptureError for events that count TLB misses
        among others: what both count would be there twice.
        """
        self.events |= set(EVENT_NAME.findall(text))
        self.seen |= set(np.unique(walk).tolist())
        self.missed += int(np.count_nonzero(walk & TLB_MISSED))
        walks = {kind for kind in self.seen if kind & TLB_MISSED or kind == BY_NAME}
        if walks != self.seen and any(kind & BY_NAME for kind in walks):
            mixture = b", ".join(sorted(self.events)).decode("ascii", "replace")
            why = (
                "some count TLB misses, some do not; import each kind from a file of its own: "
                "grep -E 'stlb_miss|tlb-miss' has the misses"
            )
            raise CaptureError(self.name, "events", mixture, why)
        return bool(walks) and walks == self.seen
