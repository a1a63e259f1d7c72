"""Page tables and VMAs on disk, raw entries, and the frames of nodes."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba import njit

from ptanalyze.core import snapshot as entries
from ptanalyze.core.errors import CaptureError, PtanalyzeError
from ptanalyze.formats import snapshot as snapshot_files
from ptanalyze.formats.snapshot import parse_maps, read_snapshot, read_tree, write_snapshot, write_tree
from ptanalyze.kernels import walker as kernel
from strategies import Page, build_snapshot, build_tree, frames_on, snapshots, trees

COLUMNS = ("entries", "base", "frame", "parent", "node", "level", "flags")
FILES = ("gpt.tables", "gpt.entries", "maps", "snapshot.json")
PAGES = [Page(0x1000, 7), Page(0x200000, 512, 2), Page(1 << 39, 9), Page((1 << 39) + (1 << 30), 1 << 18, 3)]


def same(one, other):
    columns = all(np.array_equal(getattr(one, c), getattr(other, c)) for c in COLUMNS)
    return columns and one.levels == other.levels and one.encoding == other.encoding


@pytest.fixture
def tree():
    return build_tree(PAGES, frames_on([0, 1]))


@pytest.fixture
def capture(tmp_path):
    write_snapshot(tmp_path, build_snapshot(PAGES, facts={"pid": 42}))
    return tmp_path


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trees(), st.sampled_from([4, 5]), st.sampled_from(["x86", "ept", "kvm"]))
def test_a_tree_is_read_as_it_was_written(tmp_path, pages, levels, encoding):
    tree = build_tree(pages, frames_on([1, 0]), levels=levels, encoding=encoding)
    write_tree(tmp_path, "gpt", tree)
    assert same(read_tree(tmp_path), tree)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(snapshots())
def test_a_snapshot_is_read_as_it_was_written(tmp_path, snapshot):
    for old in tmp_path.glob("ept.*"):
        old.unlink()
    write_snapshot(tmp_path, snapshot)
    read = read_snapshot(tmp_path)
    assert same(read.guest, snapshot.guest) and np.array_equal(read.vmas, snapshot.vmas)
    assert read.vma_names == tuple(snapshot.vma_names) and read.facts == snapshot.facts
    assert (read.host is None) == (snapshot.host is None)
    assert read.host is None or same(read.host, snapshot.host)
    for ours, theirs in zip(read.topology.nodes, snapshot.topology.nodes, strict=True):
        assert (ours.id, ours.cpus, ours.distance) == (theirs.id, theirs.cpus, theirs.distance)
        assert np.array_equal(ours.frames, theirs.frames)


def test_entries_stay_in_the_file_and_cannot_be_written(tmp_path, tree):
    write_tree(tmp_path, "gpt", tree)
    entries = read_tree(tmp_path).entries
    assert isinstance(entries, np.memmap) and not entries.flags.writeable


def test_files_are_private_and_nothing_else_is_left(capture):
    assert sorted(os.listdir(capture)) == sorted(FILES)
    assert all(stat.S_IMODE((capture / name).stat().st_mode) == 0o600 for name in FILES)


def test_extra_facts_come_back_and_areas_of_the_tracer_are_marked(tmp_path):
    snapshot = build_snapshot(PAGES)
    vma = snapshot.vmas[0]
    facts = {"emulator": [[int(vma["start"]), int(vma["end"])]], "colour": "red"}
    write_snapshot(tmp_path, replace(snapshot, facts=facts))
    read = read_snapshot(tmp_path)
    assert read.facts["colour"] == "red" and read.vmas["emulator"][0] and not read.vmas["emulator"][1:].any()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FILES), st.data())
def test_a_flipped_bit_is_refused_or_leaves_something_readable(capture, name, data):
    good = (capture / name).read_bytes()
    at = data.draw(st.integers(0, min(len(good), 4096) * 8 - 1))
    bad = bytearray(good)
    bad[at // 8] ^= 1 << at % 8
    (capture / name).write_bytes(bad)
    try:
        snapshot = read_snapshot(capture)
        assert (snapshot.guest.parent < np.arange(len(snapshot.guest))).all()
        assert (snapshot.guest.level >= 1).all() and (snapshot.guest.level <= snapshot.guest.levels).all()
    except PtanalyzeError:
        pass
    finally:
        (capture / name).write_bytes(good)


HEADER_FAULTS = [
    *(("magic", b"WRONGMAG"), ("version", 2), ("byte_order", 0x04030201), ("header_bytes", 64)),
    *(("record_bytes", 40), ("count", 0), ("count", 1 << 40), ("levels", 3), ("encoding", b"arm")),
]


@pytest.mark.parametrize("name", ["gpt.tables", "gpt.entries"])
@pytest.mark.parametrize(("field", "value"), HEADER_FAULTS)
def test_a_wrong_header_field_is_named_with_its_value(capture, name, field, value):
    data = bytearray((capture / name).read_bytes())
    np.frombuffer(data, snapshot_files.HEADER_DTYPE, 1)[field] = value
    (capture / name).write_bytes(data)
    with pytest.raises(CaptureError, match=f"{name}: {field}"):
        read_snapshot(capture)


RECORD_FAULTS = [
    *((0, "parent", 0), (0, "level", 3), (1, "parent", 2), (1, "level", 0), (1, "level", 7)),
    *((2, "base", 4096), (2, "base", 1 << 47), (3, "base", 1 << 63), (3, "node", -2)),
    *((3, "frame", -2), (3, "frame", 1 << 41), (3, "flags", 128)),
]


@pytest.mark.parametrize(("table", "field", "value"), RECORD_FAULTS)
def test_a_wrong_record_is_named_with_table_and_value(capture, table, field, value):
    path = capture / "gpt.tables"
    data = bytearray(path.read_bytes())
    records = np.frombuffer(data, snapshot_files.TABLE_DTYPE, offset=snapshot_files.HEADER_DTYPE.itemsize)
    records[table : table + 1][field] = value
    path.write_bytes(data)
    said = r"gpt\.tables: (parent|level|base|node|frame|flags) of table \d+ = "
    with pytest.raises(CaptureError, match=said):
        read_snapshot(capture)


def test_a_table_below_none_is_refused_whatever_it_says(tmp_path):
    tree = build_tree([Page(0, 1)], frames_on([0]))
    one = {
        name: getattr(tree, name)[:1].copy() for name in ("base", "frame", "parent", "node", "level", "flags")
    }
    one |= {"level": one["level"] - 1, "parent": one["parent"] - 1}
    write_tree(tmp_path, "gpt", replace(tree, entries=tree.entries[:1], **one))
    with pytest.raises(CaptureError, match="parent of table 0 = -2"):
        read_tree(tmp_path)


def test_siblings_out_of_order_are_refused(tmp_path):
    tree = build_tree([Page(0, 1), Page(1 << 21, 2)], frames_on([0]))
    tree.base[-2:] = tree.base[-2:][::-1].copy()
    write_tree(tmp_path, "gpt", tree)
    with pytest.raises(CaptureError, match="elder sibling"):
        read_tree(tmp_path)


JSON_FAULTS = [
    *((("format",), "else"), (("version",), 99), (("levels",), 5), (("encoding",), "ept")),
    *((("colour",), "red"), (("facts", "pid"), "four"), (("facts", "unknown"), 3)),
    *((("nodes", 0, "id"), "zero"), (("nodes", 1, "id"), 0), (("nodes", 0, "cpus"), [-1])),
    *((("nodes", 0, "frames"), [[5, 5]]), (("nodes", 0, "frames"), [[0, 1 << 39]])),
]


@pytest.mark.parametrize(("path", "value"), JSON_FAULTS)
def test_a_wrong_field_of_the_json_is_refused(capture, path, value):
    file = capture / "snapshot.json"
    document = json.loads(file.read_text())
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    file.write_text(json.dumps(document))
    with pytest.raises(CaptureError, match=r"snapshot\.json"):
        read_snapshot(capture)


def test_nothing_is_left_of_a_tree_that_could_not_be_written(tmp_path, tree, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_tree(tmp_path, "gpt", tree)
    assert os.listdir(tmp_path) == []


# /proc/PID/maps as VMAs.

LINE = (
    "7f0000000000-7f0000002000 r-xs 00001000 fe:00 42                         /lib/a b\\012c.so (deleted)\n"
)


def test_one_line_gives_addresses_protection_sharing_and_name():
    vmas, names = parse_maps(LINE)
    assert vmas[0].tolist() == (0x7F0000000000, 0x7F0000002000, 5, True, False)
    assert names == ("/lib/a b\\012c.so (deleted)",)


def test_our_own_maps_parse_and_are_in_order():
    vmas, names = parse_maps(Path("/proc/self/maps").read_bytes())
    assert len(vmas) == len(names) and "[stack]" in names
    assert (vmas["end"][:-1] <= vmas["start"][1:]).all()


@pytest.mark.parametrize(
    "text",
    [
        LINE[:-1],
        LINE.replace("r-xs", "rwxq"),
        LINE.replace("-7f0000002000", "-7f0000000000"),
        LINE.replace("7f0000002000", "7f0000002001"),
        LINE + LINE,
        "# no maps\n",
        "\n",
    ],
)
def test_what_is_no_maps_file_is_refused_with_its_line(text):
    with pytest.raises(CaptureError, match="maps: line"):
        parse_maps(text)


AREA = st.tuples(st.integers(1, 1 << 20), st.integers(1, 50), st.integers(0, 7), st.booleans())


@given(st.lists(AREA, max_size=8))
def test_formatted_vmas_parse_as_they_were(rows):
    at, lines = 0, []
    for gap, pages, prot, shared in rows:
        start = at + gap * 4096
        at = start + pages * 4096
        flags = "".join(c if prot >> i & 1 else "-" for i, c in enumerate("rwx")) + ("s" if shared else "p")
        lines.append(f"{start:x}-{at:x} {flags} 00000000 00:00 0\n")
    vmas, names = parse_maps("".join(lines))
    assert snapshot_files.format_maps(vmas, names) == "".join(lines)


# What raw entries say: present, mapped, leaf and frame, by encoding; against bit-by-bit twins.

WORDS = st.integers(0, (1 << 64) - 1)
LEVELS = st.integers(1, 5)
ENCODINGS = st.sampled_from(["x86", "ept", "kvm"])


def naive(entry, level, encoding):
    """(present, mapped, leaf, table, frame) of one entry, by the manuals."""
    if encoding == "x86":
        present = entry & 1 == 1
        mapped = present or (entry >> 8 & 1 == 1 or (level > 1 and entry >> 7 & 1 == 1))
        address = entry ^ (1 << 64) - 1 if mapped and not present else entry
    else:
        mapped = entry & 7 != 0 if encoding == "ept" else entry >> 11 & 1 == 1
        present = mapped if encoding == "ept" else mapped and entry & 1 == 1
        address = entry
    leaf = mapped and (level == 1 or (level <= 3 and entry >> 7 & 1 == 1))
    frame = (address >> 12) & ((1 << 40) - 1)
    if level > 1:
        frame = frame >> 9 * (level - 1) << 9 * (level - 1)
    return present, mapped, leaf, present and level > 1 and not leaf, frame


@given(WORDS, LEVELS, ENCODINGS)
def test_every_word_reads_as_the_manual_says(entry, level, encoding):
    words = np.array([entry], np.uint64)
    present, mapped, leaf, table, frame = naive(entry, level, encoding)
    assert entries.present(words, encoding)[0] == present
    assert entries.mapped(words, level, encoding)[0] == mapped
    assert entries.leaf(words, level, encoding)[0] == leaf
    assert entries.table(words, level, encoding)[0] == table
    if leaf:
        assert entries.frame(words, level, encoding)[0] == frame


# The decoders inside kernels agree with those for arrays, for any bits.

ENTRY = st.integers(0, (1 << 64) - 1) | st.sampled_from([0, 1, 0x80, 0x100, 0x180, 0x800, 0x801, 7, 6])


@njit
def decoded(raw, level, code):
    return kernel.mapped(raw, level, code), kernel.leaf(raw, level, code), kernel.frame(raw, level, code)


@pytest.mark.twin
@pytest.mark.parametrize("encoding", list(kernel.CODES))
@given(entry=ENTRY, level=st.integers(1, 5))
def test_mapped_leaf_and_frame_agree_with_the_array_decoders(encoding, entry, level):
    code, raw = kernel.CODES[encoding], np.array([entry], np.uint64)
    mapped, leaf, frame = decoded(raw[0], level, code)
    assert bool(mapped) == bool(entries.mapped(raw, level, encoding)[0])
    assert bool(leaf) == bool(entries.leaf(raw, level, encoding)[0])
    if leaf:
        assert frame == entries.frame(raw, level, encoding)[0]
