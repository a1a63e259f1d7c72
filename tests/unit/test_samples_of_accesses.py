"""Samples of accesses weigh the classification by the pages that they touch; no TLB filters them."""

import numpy as np
import pytest

from ptanalyze.analysis.classify import classified, weight_of
from ptanalyze.analysis.setup import Setup
from ptanalyze.capture.import_ import import_capture
from ptanalyze.capture.synth.capture import synthesize
from ptanalyze.capture.synth.plan import Parameters
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_machine
from ptanalyze.formats.capture import load

SETUP = Setup.of(machine=load_machine("sapphire-rapids").resized(2), threads_on="0,1")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A process on two nodes, leaf tables in turn on each."""
    made = tmp_path_factory.mktemp("c") / "tables"
    synthesize(Parameters(size=16 << 20, nodes=2, threads=2, placement="interleave"), made, trace=False)
    return load(made)


def sampled(tables, where, event="cpu/mem-loads/P", count=300):
    """(capture, [(thread, page)]) of samples by two threads of the pages that the tables map."""
    tree = tables.snapshot.guest
    at, slot = np.nonzero((tree.level == 1)[:, None] & (tree.entries & np.uint64(1) != 0))
    pages = (tree.base[at].astype(np.int64) >> 12) + slot
    chosen = np.random.default_rng(1).integers(0, len(pages), count)
    rows = [(7 + k % 2, int(pages[which])) for k, which in enumerate(chosen)]
    rows += rows[:50] * 2  # the same pages again and again: each time a sample
    text = "".join(
        f"{tid} [000] {10 + k}.500000: {event}: {page << 12:x}\n" for k, (tid, page) in enumerate(rows)
    )
    (where / "samples.txt").write_text(text)
    import_capture("perf-script", where / "samples.txt", where / "made", pages=tables.directory)
    return load(where / "made"), rows


def test_each_sample_counts_the_leaf_entry_of_its_page_for_the_socket_of_its_thread(tables, tmp_path):
    capture, rows = sampled(tables, tmp_path)
    assert weight_of(capture.trace.facts) == "samples"
    tree = tables.snapshot.guest
    leaves = np.flatnonzero(tree.level == 1)
    node = dict(zip((tree.base[leaves] >> 21).tolist(), tree.node[leaves].tolist(), strict=True))
    expected = np.zeros((2, 2), np.int64)  # [socket, local or remote]
    for tid, page in rows:
        socket = tid - 7
        expected[socket, int(node[page >> 9] != socket)] += 1
    classes, how = classified(capture, "samples", "all", SETUP)
    assert classes.by_class()[0].tolist() == expected.tolist() and expected.min() > 0
    assert classes.weight == "samples" and "placement" in how and not sum(classes.unresolved.values())
    by_thread, _ = classified(capture, "samples", "thread", SETUP)
    assert by_thread.groups == ("thread 7", "thread 8") and by_thread.by_class().sum() == len(rows)


def test_samples_are_no_walks_and_a_whole_trace_is_no_sample(tables, tmp_path):
    capture, _ = sampled(tables, tmp_path, count=60)
    with pytest.raises(UsageError, match="samples of accesses, from which no TLB miss follows"):
        classified(capture, "walks", "all", SETUP)
    with pytest.raises(UsageError, match="holds all accesses, not samples; use walks"):
        classified(load("sysbench-memory"), "samples", "all", SETUP)


def test_tables_beside_a_trace_are_those_of_the_capture_and_what_is_none_is_refused(tables, tmp_path):
    capture, _ = sampled(tables, tmp_path, count=60)
    assert (capture.snapshot.guest.entries == tables.snapshot.guest.entries).all()
    assert capture.has_trace and not capture.damaged
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError):
        import_capture("perf-script", tmp_path / "samples.txt", tmp_path / "m", pages=tmp_path / "empty")
    assert not (tmp_path / "m").exists()
