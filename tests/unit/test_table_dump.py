"""Binary dumps of a guest's and its nested tables arrive as they are; damage is one line."""

import time
from pathlib import Path

import numpy as np
import pytest

from ptanalyze.capture.import_ import import_capture
from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.formats.capture import load
from ptanalyze.formats.foreign.table_dump import HEADER, RECORD, import_table_dump, read_nodes
from samples import read_dump
from strategies import FRAMES_PER_NODE, build_topology, build_tree, frames_on

PAGES = [(0x1000, 7), (0x5000, 9), (0x400000, 1024, 2), (1 << 40, 11)]
NODES = "".join(
    f"{n} {n * FRAMES_PER_NODE << 12:#x} {(((n + 1) * FRAMES_PER_NODE) << 12) - 1}\n" for n in range(2)
)


def dump(path, tree, magic):
    records = np.zeros(len(tree), RECORD)
    records["address"], records["base"] = tree.frame.astype(np.uint64) << np.uint64(12), tree.base
    records["level"], records["entries"] = tree.level, tree.entries
    records = records[np.random.default_rng(1).permutation(len(records))]
    path.write_bytes(magic + len(records).to_bytes(8, "little") + records.tobytes())
    return path


@pytest.fixture
def guest(tmp_path):
    return dump(tmp_path / "gpt.bin", build_tree(PAGES, frames_on([0, 1, 0], first=5000)), b"GPTDUMP1")


@pytest.fixture
def nested(tmp_path, guest):
    """Backs the guest's table pages, which are around frame 5000, with memory of node 1."""
    frames = (np.fromfile(guest, RECORD, offset=HEADER)["address"] >> np.uint64(12)).tolist()
    pages = [(frame << 12, FRAMES_PER_NODE + k) for k, frame in enumerate(sorted(frames))]
    tree = build_tree(pages, frames_on([0], first=9000), encoding="kvm")
    return dump(tmp_path / "npt.bin", tree, b"NPTDUMP1")


def same(tree, other):
    assert (tree.entries == other.entries).all() and (tree.parent == other.parent).all()
    for column in ("base", "frame", "level", "node"):
        assert getattr(tree, column).tolist() == getattr(other, column).tolist(), column


def test_a_guests_dump_is_recognised_and_read_as_the_reader_of_the_tests_reads_it(tmp_path, guest):
    (tmp_path / "nodes").write_text(NODES.replace("0 0x0 ", "0 00 "))
    assert import_capture(None, guest, tmp_path / "made", nodes=tmp_path / "nodes") == "gptdump"
    same(load(tmp_path / "made").snapshot.guest, read_dump(guest, build_topology()))


def test_with_nested_tables_nodes_are_those_of_the_host(tmp_path, guest, nested):
    (tmp_path / "nodes").write_text(f"# of the host\n\n{NODES}")
    import_capture("gptdump", guest, tmp_path / "vm", nested, nodes=tmp_path / "nodes")
    snapshot = load(tmp_path / "vm").snapshot
    same(snapshot.host, read_dump(nested, build_topology()))
    assert set(snapshot.guest.node.tolist()) == {1} and snapshot.host.encoding == "kvm"


def test_without_nodes_one_has_all_memory_and_the_capture_says_so(tmp_path, guest):
    import_capture("gptdump", guest, tmp_path / "made")
    snapshot = load(tmp_path / "made").snapshot
    assert set(snapshot.guest.node.tolist()) == {0} and "nodes (one assumed)" in snapshot.facts["unknown"]


def changed(file, field, value, at=0):
    raw = bytearray(file.read_bytes())
    records = np.frombuffer(raw, RECORD, offset=HEADER)
    records[field][at] = value
    file.write_bytes(raw)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda file: file.write_bytes(b"GPTDUMP2" + file.read_bytes()[8:]), "expected GPTDUMP1"),
        (lambda file: file.write_bytes(file.read_bytes() + b"x"), "tables make"),
        (lambda file: changed(file, "level", 5), "level of table 0 = 5: 1 to 4"),
        (lambda file: changed(file, "address", 0x1001), "address of table 0 = 4097"),
        (lambda file: changed(file, "base", 1 << 45, slice(None)), "the tables above it lead to"),
        (lambda file: changed(file, "level", 1, slice(None)), "exactly one root"),
    ],
)
def test_a_damaged_dump_is_one_line_and_leaves_nothing(tmp_path, guest, change, why):
    change(guest)
    with pytest.raises(CaptureError, match=why) as error:
        import_capture("gptdump", guest, tmp_path / "made")
    assert "\n" not in str(error.value) and not (tmp_path / "made").exists()


def test_a_dump_cut_anywhere_is_refused(tmp_path, guest):
    whole = guest.read_bytes()
    for end in [*range(0, 40), *range(40, len(whole), 1777), len(whole) - 1]:
        guest.write_bytes(whole[:end])
        with pytest.raises(CaptureError):
            import_table_dump(guest, tmp_path)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("0 0", "line 1 = '0 0': write NODE FIRST LAST"),
        ("0 9 5", "write NODE"),
        (f"{NODES}1 0 4095", "line 3 = .* overlaps"),
        ("0 0 8191\n1 8192 16383\n0 4096 8200\n", "line 3 = .* overlaps"),
        ("0 0 0xffffffffffffffff", "write NODE"),
        ("\n", "no line NODE"),
    ],
)
def test_wrong_lists_of_nodes_are_named_by_line(tmp_path, guest, lines, why):
    (tmp_path / "nodes").write_text(lines)
    with pytest.raises(CaptureError, match=why):
        import_capture("gptdump", guest, tmp_path / "made", nodes=tmp_path / "nodes")


def test_options_that_do_not_belong_are_refused(tmp_path, guest, nested):
    with pytest.raises(CaptureError, match="expected GPTDUMP1"):
        import_capture("gptdump", nested, tmp_path / "made")
    with pytest.raises(UsageError, match="only gptdump"):
        import_capture("lackey", guest, tmp_path / "made", nodes=guest)
    with pytest.raises(UsageError, match="no such file"):
        import_capture("gptdump", guest, tmp_path / "made", tmp_path / "gone")


def test_a_list_of_nodes_without_an_end_is_refused():
    with pytest.raises(CaptureError, match="more than such a file may have"):
        read_nodes(Path("/dev/zero"))


def test_a_long_list_of_nodes_is_read_in_time(tmp_path):
    lines = "".join(f"{k % 2} {k * 8192} {k * 8192 + 4095}\n" for k in range(100_000))
    (tmp_path / "nodes").write_text(lines)
    began = time.process_time()
    assert len(read_nodes(tmp_path / "nodes").nodes) == 2
    assert time.process_time() - began < 10, "comparing each with each takes minutes"
