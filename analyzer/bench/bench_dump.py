"""The page-table dumper: walk, storing, pagemap alone, and the text importer. Root, after `make -C dumps`."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from ptanalyze.capture.live.locate import native
from ptanalyze.formats.snapshot import read_snapshot
from ptanalyze_formats.ptdump_text import import_ptdump
from ptanalyze_host.dump import dump_process

GIB = 200  # one zero page in each 2 MiB: 102,400 leaf tables, 400 MiB of entries
TARGET = """
import mmap, numpy as np, sys
NORESERVE, size = 0x4000, int(sys.argv[1]) << 30
area = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE, mmap.PROT_READ)
area.madvise(mmap.MADV_NOHUGEPAGE)
np.frombuffer(area, np.uint8)[:: 2 << 20].sum()
print("ready", flush=True)
sys.stdin.read()
"""
REPEATS = 5
LEAF_TABLES = 2048
SMALLEST = {"GIB": 1, "REPEATS": 1, "LEAF_TABLES": 512}


def run():
    words = [sys.executable, "-c", TARGET, str(GIB)]
    target = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    target.stdout.readline()
    try:
        rows = dump_rows(target.pid)
        rows += pagemap_rows(target.pid)
    finally:
        target.kill()
        target.wait()
    return rows + import_rows()


def memory_read():
    block = np.ones(1 << 27, np.uint64)
    block.sum()
    return max(timed(block.sum, block.nbytes) for _ in range(3))


def timed(work, size):
    begun = time.perf_counter()
    work()
    return size / (time.perf_counter() - begun) / 1e9


def dump_rows(pid):
    walks, stores, stops, peak = [], [], [], 0
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as scratch:
            begun = time.perf_counter()
            command = [native("ptdump"), "process", str(pid), "-o", f"{scratch}/d", "--stop", "-q"]
            ended = os.wait4(subprocess.Popen(command).pid, 0)
            total = time.perf_counter() - begun
            snapshot = read_snapshot(f"{scratch}/d")
            size, facts = snapshot.guest.entries.nbytes, snapshot.facts
        walks.append(size / facts["duration_s"] / 1e9)
        stores.append(size / (total - facts["duration_s"]) / 1e9)
        stops.append(facts["stopped_s"] * 1e3)
        peak = max(peak, ended[2].ru_maxrss * 1024 - size)
    walk, store = statistics.median(walks), statistics.median(stores)
    bandwidth = memory_read()  # not before: a child starts with its parent's peak of resident memory
    return [
        ("memory read, one core", bandwidth, "GB/s", "np.sum of 1 GiB"),
        ("walk of page tables", walk, "GB/s", f"{size >> 20} MiB, {walk / bandwidth:.2f} of memory read"),
        ("storing them, fsync included", store, "GB/s", "bounded by the disk; the target runs on"),
        ("target stopped", statistics.median(stops), "ms", "--stop: the walk and the maps, not the writing"),
        (
            "memory beside the entries",
            peak / 2**20,
            "MiB",
            "peak resident, BPF object and libraries included",
        ),
    ]


def pagemap_rows(pid):
    with tempfile.TemporaryDirectory() as scratch:
        begun = time.perf_counter()
        dump_process(pid, f"{scratch}/d", bpf=False)
        elapsed = time.perf_counter() - begun
        size = read_snapshot(f"{scratch}/d").guest.entries.nbytes
    return [("pagemap alone, files included", size / elapsed / 1e9, "GB/s", "entries inferred")]


def import_rows():
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "dump.txt")
        path.write_text(dump_text())
        for name in ("compile", "measure"):
            out = Path(scratch, name)
            out.mkdir()
            begun = time.perf_counter()
            import_ptdump(path, out)
            elapsed = time.perf_counter() - begun
        size = path.stat().st_size
    note = f"{size / elapsed / 1e6:.0f} MB/s of text, files included"
    return [("import of vMitosis dumps", LEAF_TABLES * 512 / elapsed / 1e6, "million entries/s", note)]


def dump_text():
    """A dump of LEAF_TABLES full leaf tables, as the vMitosis dumper prints it."""
    full = " ".join(f"{0x180000 + i:x}" for i in range(512))
    middle = [1024 + i for i in range(LEAF_TABLES // 512)]
    lines = ["<numamap>", f"0 0 {1 << 36}", "</numamap>"]
    lines.append(f'<ptdump process="1" count="{2 + len(middle) + LEAF_TABLES}">')
    lines.append(f'<level4 b="1">2 {"0 " * 511}</level4>')
    lines.append(f'<level3 b="2">{"".join(f"{m:x} " for m in middle)}{"0 " * (512 - len(middle))}</level3>')
    for number, table in enumerate(middle):
        below = "".join(f"p{4096 + number * 512 + i:x} " for i in range(512))
        lines.append(f'<level2 b="{table:x}">{below}</level2>')
    lines += [f'<level1 b="{4096 + i:x}">{full} </level1>' for i in range(LEAF_TABLES)]
    return "\n".join([*lines, "</ptdump>", ""])
