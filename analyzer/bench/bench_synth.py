"""Making a synthetic VM of 16 GiB: time and memory; the access phase alone."""

import resource
import tempfile
import time
from pathlib import Path

from ptanalyze_synth.capture import synthesize
from ptanalyze_synth.parameters import Parameters, whole_pages

ACCESSES, SIZE = 4_000_000, "16G"
SMALLEST = {"ACCESSES": 10_000, "SIZE": "64M"}


def seconds(trace=True, **options):
    with tempfile.TemporaryDirectory() as place:
        began = time.perf_counter()
        synthesize(Parameters(**options), Path(place) / "made", trace=trace)
        return time.perf_counter() - began


def anonymous():
    """Bytes of this process's anonymous memory."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return next(int(words[1]) << 10 for words in lines if words[0] == "RssAnon:")


def run():
    seconds(size=whole_pages("8M"), guest="visible", accesses=1)  # compiles
    before = anonymous()
    size = whole_pages(SIZE)
    tables = seconds(trace=False, size=size, guest="visible")
    kept = anonymous() - before
    small = seconds(size=whole_pages("64M"), accesses=1)
    accesses = seconds(size=whole_pages("64M"), accesses=ACCESSES) - small
    native = seconds(trace=False, size=size)
    pages = size >> 12
    return [
        (
            "faults of a VM, tables written",
            pages / tables / 1e6,
            "M pages/s",
            f"{SIZE}, sync and CRC included",
        ),
        (
            "faults of a native process",
            pages / native / 1e6,
            "M pages/s",
            f"{native / tables:.2f} of the time",
        ),
        ("accesses traced", ACCESSES / accesses / 1e6, "M/s", "uniform, 64 MiB"),
        ("anonymous memory kept", kept / 2**20, "MiB", f"after the VM of {SIZE}"),
        (
            "peak resident",
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "MiB",
            "mapped files included",
        ),
    ]
