"""The TLB filter beside other tools in one run, on the same accesses; bytes of traces beside drmemtrace.

The figure that counts is the ratio to the C loop (tlb.c). libCacheSim (`pip install ptanalyze[bench]`) is a
cache of 1,536 pages, one level, fully associative: what it does per access differs, and so do its misses.
"""

import io
import subprocess
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from ptanalyze.core.trace import EVENT_DTYPE, read_only
from ptanalyze.kernels import lru as kernels
from ptanalyze.world import tlb_filter
from ptanalyze.world.address_space import address_space
from ptanalyze_formats.drmemtrace import RECORD
from ptanalyze_formats.trace_writer import new_trace

from .bandwidth import best
from .bench_kernels import MACHINE, TABLES, snapshot

ACCESSES, ROUNDS, ENTRIES = 2_000_000, 7, 1536
SMALLEST = {"ACCESSES": 10_000, "ROUNDS": 1}
DRCACHESIM = "its authors' figure, 2015 (issue 1738); none is published for its TLB simulator"


def accesses():
    """{name: uint32[ACCESSES]}: pages of bench_kernels' snapshot."""
    rng = np.random.default_rng(0)
    pages = TABLES * 512
    uniform = rng.integers(0, pages, ACCESSES).astype(np.uint32)
    near = rng.integers(0, 48, ACCESSES)
    return {
        "uniform": uniform,
        "95 % near": np.where(rng.random(ACCESSES) < 0.95, near, uniform).astype(np.uint32),
        "zipf 1.1": (np.minimum(rng.zipf(1.1, ACCESSES), pages) - 1).astype(np.uint32),
    }


def ours(page):
    """(walks, seconds) of the filter's kernel, and of gathering the pages that walk."""
    space = address_space(snapshot(False), np.arange(TABLES, dtype=np.uint64))
    pages = tlb_filter._pages(space.regions)
    shootdowns = tlb_filter._shootdowns(np.zeros(0, EVENT_DTYPE), pages)
    missed, chunks, walked = np.zeros(ACCESSES, bool), np.array([[0, 0, ACCESSES]]), []
    states = tlb_filter._states(
        MACHINE.tlb, ROUNDS + 1, tlb_filter.is_common(MACHINE.tlb)
    )  # each begins empty

    def call():
        kernels.filter_common(read_only(page), chunks, pages, shootdowns, states.pop(), missed)
        walked.append(len(page[missed]))

    call()
    return walked[0], best(call, ROUNDS)


def c_loop(page, place):
    """(walks, seconds) of tlb.c."""
    program = place / "tlb"
    source = Path(__file__).with_name("tlb.c")
    subprocess.run(["gcc", "-O3", "-march=native", "-o", program, source], check=True)
    page.tofile(place / "pages")
    done = subprocess.run(
        [program, place / "pages", str(len(page)), str(ROUNDS)], check=True, capture_output=True, text=True
    )
    walks, seconds = done.stdout.split()
    return int(walks), float(seconds)


def cache_of_pages(page, place):
    """(misses, seconds) of libCacheSim's LRU; None where it is not installed."""
    try:
        from libcachesim import LRU, ReaderInitParam, TraceReader, TraceType
    except ImportError:
        return None
    rows = np.zeros(len(page), np.dtype([("time", "<u4"), ("page", "<u8"), ("size", "<u4"), ("next", "<i8")]))
    rows["time"], rows["page"], rows["size"] = np.arange(len(page)) // 1_000_000, page + 1, 1
    path = place / "pages.oracleGeneral"
    rows.tofile(path)
    shares = []

    def call():
        reader = TraceReader(str(path), TraceType.ORACLE_GENERAL_TRACE, ReaderInitParam(ignore_obj_size=True))
        shares.append(LRU(cache_size=ENTRIES).process_trace(reader)[0])

    return shares, best(call, 2)


def rates(name, page, place):
    walks, own = ours(page)
    c_walks, c = c_loop(page, place)
    assert walks == c_walks, (name, walks, c_walks)
    yield f"{name}: our filter", ACCESSES / own / 1e6, "M/s", f"{walks / ACCESSES:.3f} of accesses walk"
    yield f"{name}: C loop, -O3", ACCESSES / c / 1e6, "M/s", "the same TLB, the same walks"
    yield f"{name}: our filter to the C loop", c / own, "x", "over 1: faster than it"
    if (other := cache_of_pages(page, place)) is None:
        yield f"{name}: libCacheSim", float("nan"), "M/s", "not installed: pip install ptanalyze[bench]"
        return
    shares, seconds = other
    note = f"LRU of {ENTRIES} pages, {shares[0]:.3f} of accesses miss; its file is read, too"
    yield f"{name}: libCacheSim", ACCESSES / seconds / 1e6, "M/s", note
    yield f"{name}: our filter to libCacheSim", seconds / own, "x", ""


def sizes(name, page, place):
    """Bytes per million accesses of trace.ptt, nothing stripped, and of drmemtrace without instructions."""
    path = place / "whole.ptt"
    with new_trace(path, ended="exit") as writer:
        writer.accesses_of(page.astype(np.int64), page % 2 == 0, thread=0, time=np.arange(len(page)))
    yield f"{name}: trace.ptt", per_million(path.stat().st_size), "bytes per M accesses", "nothing stripped"
    records = np.zeros(len(page), RECORD)
    records["type"], records["size"], records["value"] = page % 2 == 0, 8, page.astype(np.uint64) << 12
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("chunk.0000", records.tobytes())
    note = "data records alone, addresses of pages: real ones hold instructions and offsets, too"
    yield f"{name}: drmemtrace, zip", per_million(len(packed.getvalue())), "bytes per M accesses", note


def per_million(size):
    return size * 1e6 / ACCESSES


def run():
    rows = [("DynamoRIO's cache simulator, published", 500, "x native", DRCACHESIM)]
    with tempfile.TemporaryDirectory() as place:
        for name, page in accesses().items():
            rows += rates(name, page, Path(place))
            rows += sizes(name, page, Path(place))
    return rows
