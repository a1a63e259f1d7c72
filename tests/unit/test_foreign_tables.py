"""The text dumps of vMitosis: every leaf arrives, repairs are counted, damage is named with its line."""

import re
import tempfile
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from naive import decode as naive
from ptanalyze.core import snapshot as E
from ptanalyze.core.errors import CaptureError, PtanalyzeError
from ptanalyze.formats.snapshot import read_snapshot
from ptanalyze_formats.kernels import parse_entries
from ptanalyze_formats.ptdump_text import import_ptdump, read_rows
from strategies import FRAMES_PER_NODE, Page, build_topology, build_tree, frames_on, trees

KERNEL_HALF = 0x1234
PAGES = [Page(0x1000, 7), Page(0x5000, 9, protnone=True), Page(0x400000, 1024, 2), Page(1 << 40, 11)]


def words(tree, table, inverted=True):
    """The 512 numbers dodump prints for one table (its loop over entries, level by level)."""
    level = int(tree.level[table])
    for entry in (int(e) for e in tree.entries[table]):
        prefix = ""
        if not entry & 1:
            if not entry & 0x100:
                yield "0"
                continue
            prefix = "n"
            entry = entry if inverted else ~entry & ((1 << 52) - (1 << 12)) | entry & 0xFFF
        frame = (entry & 0xFFFFFFFFF000) >> 12
        runs = "" if entry >> 63 else "x"
        if level == 1:
            yield f"{prefix}{runs}{frame:x}"
        elif level == 2:
            yield f"{prefix}{runs}{frame >> 9:x}" if entry & 0x80 else f"{prefix}p{frame:x}"
        else:
            yield "0" if prefix else f"{frame:x}"


def dump_text(tree, topology=None, pid=77, inverted=True):
    lines = ["Dumping page tables", "<numamap>"]
    for node in (topology or build_topology()).nodes:
        lines += [f"{node.id} {a << 12} {b << 12}" for a, b in node.frames]
    lines += ["</numamap>", f'<ptdump process="{pid}" count="{len(tree)}">']
    lines += ["<numamigrations>0</numamigrations>"]
    for level in range(4, 0, -1):
        for table in np.flatnonzero(tree.level == level):
            row = " ".join(words(tree, table, inverted))
            lines.append(f'<level{level} b="{tree.frame[table]:x}">{row} </level{level}>')
    return "\n".join([*lines, "</ptdump>", ""])


def leaves(tree):
    found = set()
    for table, slot in np.argwhere(tree.entries):
        level, entry = int(tree.level[table]), tree.entries[table, slot]
        if E.leaf(entry, level, tree.encoding):
            va = int(tree.base[table]) + (int(slot) << (3 + 9 * level))
            present = bool(E.present(entry, tree.encoding))
            found.add((va, level, int(E.frame(entry, level, tree.encoding)), present))
    return found


def write(path, text):
    path.write_text(text)
    return path


def fresh(path):
    path.mkdir(exist_ok=True)
    return path


UNIQUE_FRAMES = st.integers(0, 2 * FRAMES_PER_NODE - 1)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trees(frames=UNIQUE_FRAMES), st.booleans())
def test_every_leaf_and_table_of_a_dump_arrives(tmp_path, pages, inverted):
    pages = [page for page in pages if page.level < 3 and page.va < 1 << 47]
    tree = build_tree(pages or PAGES, frames_on([0, 1], first=1000))
    path = write(tmp_path / "dump.txt", dump_text(tree, inverted=inverted))
    snapshot = import_ptdump(path, fresh(tmp_path / "out"))
    assert leaves(snapshot.guest) == leaves(tree)
    for column in ("base", "frame", "parent", "level", "node"):
        assert np.array_equal(getattr(snapshot.guest, column), getattr(tree, column)), column
    assert leaves(read_snapshot(tmp_path / "out").guest) == leaves(tree)


@pytest.mark.twin
@settings(max_examples=15, deadline=None)
@given(trees(frames=UNIQUE_FRAMES), st.booleans())
def test_rows_are_parsed_as_regular_expressions_do(pages, inverted):
    text = dump_text(build_tree(pages, frames_on([0, 1], first=1000)), inverted=inverted)
    expected = naive.parse_rows(text)
    level, frame, words = read_rows("dump", text.encode(), 0, len(text), len(expected), tempfile.gettempdir())
    assert [(int(a), int(b), c.tolist()) for a, b, c in zip(level, frame, words, strict=True)] == expected


ENTRIES = st.lists(st.from_regex("[nxp]{0,3}[0-9a-f]{0,11}[nxp]?", fullmatch=True), min_size=2, max_size=4)


@pytest.mark.twin
@given(ENTRIES)
def test_entries_are_taken_where_a_regular_expression_takes_them(entries):
    text = " ".join([*entries, ""])
    expected = re.fullmatch("(?:[nxp]*[0-9a-f]{1,10} ){3}", text)
    assert parse_entries(np.frombuffer(text.encode(), np.uint8), np.zeros(3, np.int64)) == bool(expected)


def test_what_the_text_lacks_is_said_to_be_unknown(tmp_path):
    path = write(tmp_path / "dump.txt", dump_text(build_tree(PAGES, frames_on([0]))))
    facts = import_ptdump(path, fresh(tmp_path / "out")).facts
    assert facts["pid"] == 77 and facts["method"] == "vMitosis ptdump"
    assert {"entry flags", "vmas", "cpus", "distances"} <= set(facts["unknown"])
    assert facts["import"] == {"inverted": 1, "leaves_1g": 0, "dropped_pointers": 0, "dropped_tables": 0}


def test_a_gigabyte_pointer_to_no_table_is_a_leaf_and_counted(tmp_path):
    tree = build_tree([Page(3 << 30, 2 << 18, 3), Page(0, 5)], frames_on([0], first=9))
    snapshot = import_ptdump(write(tmp_path / "d", dump_text(tree)), fresh(tmp_path / "out"))
    assert leaves(snapshot.guest) == leaves(tree) and snapshot.facts["import"]["leaves_1g"] == 1


def test_pointers_to_missing_tables_and_tables_without_pointer_are_dropped_and_counted(tmp_path):
    tree = build_tree([Page(0, 5), Page(1 << 21, 6)], frames_on([0], first=9))
    text = dump_text(tree).replace(f'<level1 b="{tree.frame[-1]:x}">', '<level1 b="abcde">')
    snapshot = import_ptdump(write(tmp_path / "d", text), fresh(tmp_path / "out"))
    assert len(snapshot.guest) == len(tree) - 1
    repaired = snapshot.facts["import"]
    assert repaired["dropped_pointers"] == repaired["dropped_tables"] == 1
    assert leaves(snapshot.guest) == {(0, 1, 5, True)}


def test_the_kernel_half_of_a_root_is_not_part_of_it(tmp_path):
    tree = build_tree(PAGES, frames_on([0]))
    tree.entries[0, 300] = KERNEL_HALF << 12 | 0x63
    snapshot = import_ptdump(write(tmp_path / "d", dump_text(tree)), fresh(tmp_path / "out"))
    assert snapshot.guest.entries[0, 300] == 0 and snapshot.facts["import"]["dropped_pointers"] == 0


def test_last_whole_dump_of_several_is_taken(tmp_path):
    one, two = (build_tree([Page(0x1000, frame)], frames_on([0], first=99)) for frame in (5, 6))
    path, first = tmp_path / "d", dump_text(one, pid=1)
    failed = '<numamap>\n0 0 4096\n</numamap>\n<ptdump process="2" error="-1"></ptdump>\n'
    for k, (rest, tree) in enumerate([(dump_text(two), two), (failed, one), (dump_text(two)[:-99], one)]):
        snapshot = import_ptdump(write(path, first + rest), fresh(tmp_path / f"last{k}"))
        assert leaves(snapshot.guest) == leaves(tree)


def test_a_nested_dump_becomes_the_host_and_places_the_guests_tables(tmp_path):
    guest = build_tree([Page(0x1000, 0x300)], frames_on([0], first=0x10))
    host_pages = [Page((0x10 + k) << 12, FRAMES_PER_NODE * (k % 2) + k) for k in range(4)]
    host = build_tree([*host_pages, Page(0x300 << 12, 1)], frames_on([1], first=500), encoding="ept")
    gpt, ept = write(tmp_path / "g", dump_text(guest)), write(tmp_path / "e", dump_text(host))
    snapshot = import_ptdump(gpt, fresh(tmp_path / "out"), nested=ept)
    assert leaves(snapshot.host) == leaves(host) and snapshot.host.encoding == "ept"
    assert snapshot.guest.node.tolist() == [0, 1, 0, 1] and (snapshot.host.node == 1).all()


DAMAGE = [
    ("</ptdump>", "", "ends before"),
    ('count="', 'count="9', "count"),
    ("<numamap>", "<nothing>", "numamap"),
    ("0 0 </level4>", "0 </level4>", r"line \d+"),
    ("0 0 </level4>", "0 0 0 </level4>", r"line \d+"),
    ("0 0 </level4>", "0 q </level4>", r"line \d+"),
    ("0 0 </level4>", "0 A </level4>", r"line \d+"),
    ("0 0 </level4>", "0 0 n</level4>", r"line \d+"),
    ("<level4", "<level9", r"line \d+"),
    ('<level4 b="', '<level4 b="100000000000000000000000', r"line \d+"),
    ("0 0 </level4>", "0 100000000000000000000000 </level4>", r"line \d+"),
    ("<level4", "<level3", "level4"),
    ("\n0 0 ", "\n0 -5 ", "numamap"),
    ("\n1 ", "\n1 4096 1099511627776\n1 ", "overlapping frame range"),
]


@pytest.mark.parametrize(("old", "new", "what"), DAMAGE)
def test_a_damaged_dump_is_named_with_its_place(tmp_path, old, new, what):
    text = dump_text(build_tree(PAGES, frames_on([0])))
    assert old in text
    path = write(tmp_path / "dump.txt", text.replace(old, new, 1))
    with pytest.raises(CaptureError, match=what):
        import_ptdump(path, fresh(tmp_path / "out"))
    assert list((tmp_path / "out").iterdir()) == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_changed_byte_is_refused_or_still_makes_a_tree(tmp_path, data):
    text = bytearray(dump_text(build_tree(PAGES, frames_on([0]))).encode())
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "d").write_bytes(text)
    with suppress(PtanalyzeError):
        import_ptdump(tmp_path / "d", fresh(tmp_path / "out"))
        read_snapshot(tmp_path / "out")
