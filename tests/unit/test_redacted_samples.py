"""`redact` on a whole capture: what it keeps, and what no byte of it says any more."""

import json
import shutil
import zlib

import numpy as np
import pytest
from test_region_of_interest import both_runs, equal
from test_vm_redact import same_space

from ptanalyze.analysis.leaf_classes import classify_pages
from ptanalyze.analysis.setup import Setup, opened
from ptanalyze.capture.check.tables import check_tables
from ptanalyze.capture.vm.redact import redact
from ptanalyze.cli import run
from ptanalyze.core.errors import UsageError, bundled
from ptanalyze.core.trace import Event
from ptanalyze.formats.capture import bundled_samples, load, open_capture
from ptanalyze.formats.manifest import seal
from ptanalyze.formats.trace import HEADER_BYTES, HEADER_DTYPE, map_file, read_header, read_trace
from ptanalyze.world.address_space import address_space
from ptanalyze.world.captured_world import captured_world
from trace_copy import without_calls_outside


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """(bundled capture, its redacted twin)"""
    place = tmp_path_factory.mktemp("sample") / "shared"
    capture = open_capture(next(path.parent for path in sorted(bundled("samples").glob("*/capture.json"))))
    redact(capture, place)
    return capture, open_capture(place)


def test_a_real_capture_forgets_its_command_and_keeps_its_trace(sample):
    capture, shared = sample
    before, after = (c.directory / "trace.ptt" for c in sample)
    command = bytes(read_header(before, map_file(before))["command"]).split()[0]
    assert len(command) > 4
    for name in shared.manifest.files:
        assert command not in (shared.directory / name).read_bytes(), name
    header = read_header(after, map_file(after))
    assert (header["command"], header["pid"], header["start"]) == (b"", 0, 0)
    one, other = (read_trace(path) for path in (before, after))
    assert np.array_equal(one.chunks, other.chunks) and np.array_equal(one.regions, other.regions)
    assert [batch.page.tobytes() for batch in one.batches(1)] == [b.page.tobytes() for b in other.batches(1)]
    started = one.events["kind"] == Event.THREAD_START
    assert np.array_equal(one.events[~started], other.events[~started])
    for name in set(one.events.dtype.names) - {"a"}:
        assert np.array_equal(one.events[name], other.events[name]), name
    assert other.threads["tid"].tolist() == list(range(len(one.threads)))
    assert "record.json" in capture.manifest.files and "record.json" not in shared.manifest.files


def test_no_byte_of_a_shared_trace_is_of_its_secrets(tmp_path, sample):
    """Also not what a foreign writer left in the header or behind the last frame."""
    secret = b"grace.hopper@example"
    source = shutil.copytree(sample[0].directory, tmp_path / "s", ignore=shutil.ignore_patterns(".cache"))
    path = source / "trace.ptt"
    content = bytearray(path.read_bytes())
    header = np.frombuffer(bytes(content[:HEADER_BYTES]), HEADER_DTYPE).copy()
    for name in ("tracer", "command", "rules"):
        header[name] = secret
    header["arch"], header["pid"], header["crc"] = secret[:16], 987654, 0
    header["crc"] = zlib.crc32(header.tobytes())
    path.write_bytes(header.tobytes() + bytes(content[HEADER_BYTES:]) + secret)
    seal(source, "process", {"who": secret.decode()})
    tids = [int(tid) for tid in load(source).trace.threads["tid"] if tid > 1000]
    redact(load(source), tmp_path / "r")
    whole = b"".join(file.read_bytes() for file in sorted((tmp_path / "r").iterdir()))
    assert secret[:14] not in whole and tids
    before, after = ((place / "trace.ptt").read_bytes() for place in (source, tmp_path / "r"))
    for tid in tids:  # its thread's start is gone; whatever else has the same bytes is no thread ID
        assert after.count(tid.to_bytes(8, "little")) == before.count(tid.to_bytes(8, "little")) - 1
    assert (987654).to_bytes(4, "little") not in after
    assert np.array_equal(load(tmp_path / "r").trace.chunks, load(source).trace.chunks)


def test_a_real_capture_is_classified_and_checked_as_before(sample):
    snapshots = [capture.snapshot for capture in sample]
    leaves = snapshots[0].guest.base[snapshots[0].guest.level <= 2]
    one, other = (address_space(s, np.unique(leaves >> np.uint64(21))) for s in snapshots)
    same_space(one, other)
    assert np.array_equal(classify_pages(one, weight="4k").counts, classify_pages(other, weight="4k").counts)
    verdicts = [{f.name: (f.examined, f.wrong, f.verdict) for f in check_tables(s)} for s in snapshots]
    verdicts[0] = {name: found for name, found in verdicts[0].items() if not name.startswith("dump: pagemap")}
    assert verdicts[0] == verdicts[1]


def test_a_shared_capture_stands_for_a_program_of_the_same_size(tmp_path):
    capture = open_capture("vm-numa-visible")
    redact(capture, tmp_path / "shared")
    assert open_capture(tmp_path / "shared").snapshot.scale == capture.snapshot.scale == 16


def test_the_command_refuses_traces_alone_and_existing_directories(tmp_path, sample, capsys):
    assert run(["redact", str(sample[0].directory), "-o", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out" / "capture.json").read_text())["kind"] == "process"
    assert run(["redact", str(sample[0].directory), "-o", str(tmp_path / "out")]) == 2
    bare = tmp_path / "bare"
    bare.mkdir()
    seal(bare, "trace", {})
    with pytest.raises(UsageError, match="no page tables"):
        redact(open_capture(bare), tmp_path / "again")


@pytest.mark.parametrize("name", bundled_samples())
def test_what_a_loader_and_a_teardown_call_changes_no_walk(name):
    """Real recordings have both: mmaps and mprotects of shared libraries, madvise where threads end."""
    setup, recorded = Setup.of(), opened(name)
    bare = without_calls_outside(recorded.trace)
    assert len(bare.events) < len(recorded.trace.events)
    with_calls, without = (
        captured_world(recorded.snapshot, trace, setup.machine) for trace in (recorded.trace, bare)
    )
    assert equal(both_runs(with_calls), both_runs(without))
