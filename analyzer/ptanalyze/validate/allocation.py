"""Threads of a VM fill memory page by page in turn (PTEMagnet, section 6.2)."""

from ..capture.synth.process import START
from ..core.machine import load_machine
from .bench import Bench
from .designs import LINUX, Design
from .script import PAGE, Script

THREADS = 8
SIZE = 64 << 20  # bytes


def unused_bytes(bench: Bench) -> int:
    """The most bytes that PTEMagnet holds reserved and not yet used at any time."""
    size = bench.size(SIZE, SIZE >> 2)
    capture = bench.capture(trace=False, size=size, nodes=1, guest="visible", threads=THREADS)
    script, part = Script([0] * THREADS), size // PAGE // THREADS
    for page in range(part):
        for thread in range(THREADS):
            script.touch(thread, START // PAGE + thread * part + page)
    machine = load_machine("ptemagnet-broadwell").resized(1)
    designs: dict[str, Design] = {"linux": LINUX, "ptemagnet": ("ptemagnet", {})}
    results = script.replay_on(capture.snapshot, designs, machine)
    return int(results["ptemagnet"].facts["unused_bytes_peak"])
