"""A graph analysis in a VM whose memory a co-runner scatters (PTEMagnet, sections 3.3 and 6.3)."""

from functools import cache

import numpy as np

from ..capture.synth.patterns import Random
from ..capture.synth.process import START, new_group
from ..core.machine import load_machine
from ..cost.result import Result
from ..formats.capture import Capture
from ..world.address_space import address_space
from ..world.fragmentation import Fragmentation, measure
from .bench import Bench
from .designs import LINUX
from .script import PAGE, Script
from .traversal import scaled

DATASET = 16 << 30  # bytes, published
SCALE = 8  # the modelled dataset and the caches are this much smaller
THREADS = 8  # published
RUN = 12  # neighbouring pages of a stream: fitted, see ptemagnet.py
SKEW = 0.6  # of the popularity of places where streams begin: assumed
TURN, TURNS = 4096, 32  # pages of a turn; turns of each thread
ALONE, BESIDE_OBJDET, BESIDE_STRESS = 2.8, 3.4, 6.8  # ePT lines per gPT line, published


def corunner(lines: float) -> float:
    """Share of faults after which a co-runner takes the rest of 8 frames, so that the metric is `lines`.

    The inverse of synth.expected.fragmentation, 1.875 < lines < 8.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 + 7 * new_group(middle) < lines else (low, middle)
    return high


class Graph:
    """Captures, and the same trace over them, on a Bench; machine ptemagnet-broadwell, one socket, scaled."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.pages = bench, bench.size(DATASET, DATASET >> 6) // SCALE // PAGE
        self.turns = bench.size(TURNS, 1)
        share = self.pages * PAGE / DATASET
        self.machine = scaled(load_machine("ptemagnet-broadwell").resized(1), share)
        self.replayed = cache(self.replay)

    def capture(self, lines: float) -> Capture:
        return self.bench.capture(
            trace=False, size=self.pages * PAGE, nodes=1, guest="visible", threads=THREADS,
            fragmentation=corunner(lines),
        )  # fmt: skip

    def scattered(self, lines: float) -> Fragmentation:
        """Fragmentation of the capture."""
        return measure(address_space(self.capture(lines).snapshot, np.zeros(0, np.uint64)))

    def replay(self, lines: float) -> dict[str, Result]:
        """{policy: Result} of the trace, as captured and with PTEMagnet."""
        capture, script = self.capture(lines), streams(self.pages, self.turns)
        return script.replay_on(
            capture.snapshot, {"linux": LINUX, "ptemagnet": ("ptemagnet", {})}, self.machine
        )


def streams(pages: int, turns: int, run: int = RUN) -> Script:
    """Script of threads that read runs of neighbouring pages, from places of uneven popularity."""
    script, first = Script([0] * THREADS), START // PAGE
    script.premapped()
    begin = [Random(np.random.default_rng([7, t]), 0, pages, pages, 0.0, SKEW, 7) for t in range(THREADS)]
    for _ in range(turns):
        for thread in range(THREADS):
            starts = begin[thread](-(-TURN // run))
            touched = (starts[:, None] + np.arange(run)).ravel()[:TURN] % pages
            script.touch(thread, first + touched, write=False)
    return script
