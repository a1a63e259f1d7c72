"""The bundled sample `lookup` is what its script records."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from native import tracing
from native.dumping import make
from needs_root import needs_root
from ptanalyze.core.errors import DEFAULT_SAMPLE, bundled
from ptanalyze.formats.capture import open_capture

pytestmark = needs_root
STORE_PAGES = 170_003 * 8  # 32 KiB per slot


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    tracing.build_plugin()
    make("dumps")
    out = tmp_path_factory.mktemp("samples") / "lookup"
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = tracing.ROOT / "dumps/samples/record_lookup.sh"
    subprocess.run([script, out], check=True, env={**os.environ, **path})
    return open_capture(out)


def looked_up(capture):
    """int64[threads, pages of the store]: touches of each page by each thread."""
    [store] = [vma for vma in capture.snapshot.vmas if vma["end"] - vma["start"] >= STORE_PAGES << 12]
    first, trace = int(store["start"]) >> 12, capture.trace
    found = np.zeros((len(trace.threads), STORE_PAGES), np.int64)
    for batch in trace.batches(1 << 16):
        chunks = trace.chunks[batch.chunks]
        threads = np.repeat(chunks["thread"], chunks["touches"])
        pages = (trace.regions[batch.page >> 9].astype("int64") << 9 | (batch.page & 511)) - first
        inside = (pages >= 0) & (pages < STORE_PAGES)
        np.add.at(found, (threads[inside], pages[inside]), 1)
    return found


def test_recorded_again_each_thread_looks_up_the_same_slots_as_often(again):
    bundled_one = open_capture(bundled("samples") / DEFAULT_SAMPLE)
    seen, stored = looked_up(again), looked_up(bundled_one)
    threads, pages = np.nonzero(stored)
    assert len(set(threads.tolist())) == 4 and not (pages % 8).any()
    assert (stored[threads, pages] == 2).all(), "each slot in each of two rounds"
    assert np.array_equal(seen, stored)


def test_recorded_again_the_store_has_as_many_leaf_tables(again):
    bundled_one = open_capture(bundled("samples") / DEFAULT_SAMPLE)
    leaves = [int((one.snapshot.guest.level == 1).sum()) for one in (again, bundled_one)]
    assert abs(leaves[0] - leaves[1]) < 50  # libraries and the tracer lie elsewhere each time
