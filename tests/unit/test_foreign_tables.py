"""Page tables from other tools: text and binary dumps, lists of mapped pages."""

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from naive import decode as naive
from ptanalyze.capture.check import check_capture, exit_code
from ptanalyze.cli import run
from ptanalyze.core import snapshot as E
from ptanalyze.core.errors import CaptureError, PtanalyzeError, UsageError
from ptanalyze.formats.capture import load
from ptanalyze.formats.snapshot import read_snapshot, read_tree, write_tree
from ptanalyze_formats import kernels as parse
from ptanalyze_formats.importing import import_capture, infer_tree
from ptanalyze_formats.ptdump_text import import_ptdump
from ptanalyze_formats.recognise import PAIR, read_mapped_pages
from ptanalyze_formats.table_dump import HEADER, RECORD, import_table_dump, read_nodes
from samples import read_dump
from strategies import FRAMES_PER_NODE, Page, build_topology, build_tree, frames_on, trees

# The text dumps of vMitosis: every leaf arrives, repairs are counted, damage is named with its line.

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
    lines += [
        "</numamap>",
        f'<ptdump process="{pid}" count="{len(tree)}">',
        "<numamigrations>0</numamigrations>",
    ]
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


@pytest.mark.twin
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
    level, frame, words = (np.zeros((len(expected), *shape), np.int64) for shape in ((), (), (512,)))
    buffer = np.frombuffer(text.encode(), np.uint8)
    rows, _, wrong = parse.parse_rows(buffer, 0, len(buffer), level, frame, words)
    assert (rows, wrong) == (len(expected), parse.OK)
    assert [(int(a), int(b), c.tolist()) for a, b, c in zip(level, frame, words, strict=True)] == expected


@pytest.mark.twin
def test_what_the_text_lacks_is_said_to_be_unknown(tmp_path):
    path = write(tmp_path / "dump.txt", dump_text(build_tree(PAGES, frames_on([0]))))
    facts = import_ptdump(path, fresh(tmp_path / "out")).facts
    assert facts["pid"] == 77 and facts["method"] == "vMitosis ptdump"
    assert {"entry flags", "vmas", "cpus", "distances"} <= set(facts["unknown"])
    assert facts["import"] == {"inverted": 1, "leaves_1g": 0, "dropped_pointers": 0, "dropped_tables": 0}


@pytest.mark.twin
def test_a_gigabyte_pointer_to_no_table_is_a_leaf_and_counted(tmp_path):
    tree = build_tree([Page(3 << 30, 2 << 18, 3), Page(0, 5)], frames_on([0], first=9))
    snapshot = import_ptdump(write(tmp_path / "d", dump_text(tree)), fresh(tmp_path / "out"))
    assert leaves(snapshot.guest) == leaves(tree) and snapshot.facts["import"]["leaves_1g"] == 1


@pytest.mark.twin
def test_pointers_to_missing_tables_and_tables_without_pointer_are_dropped_and_counted(tmp_path):
    tree = build_tree([Page(0, 5), Page(1 << 21, 6)], frames_on([0], first=9))
    text = dump_text(tree).replace(f'<level1 b="{tree.frame[-1]:x}">', '<level1 b="abcde">')
    snapshot = import_ptdump(write(tmp_path / "d", text), fresh(tmp_path / "out"))
    assert len(snapshot.guest) == len(tree) - 1
    repaired = snapshot.facts["import"]
    assert repaired["dropped_pointers"] == repaired["dropped_tables"] == 1
    assert leaves(snapshot.guest) == {(0, 1, 5, True)}


@pytest.mark.twin
def test_the_kernel_half_of_a_root_is_not_part_of_it(tmp_path):
    tree = build_tree(PAGES, frames_on([0]))
    tree.entries[0, 300] = KERNEL_HALF << 12 | 0x63
    snapshot = import_ptdump(write(tmp_path / "d", dump_text(tree)), fresh(tmp_path / "out"))
    assert snapshot.guest.entries[0, 300] == 0 and snapshot.facts["import"]["dropped_pointers"] == 0


@pytest.mark.twin
def test_last_whole_dump_of_several_is_taken(tmp_path):
    one, two = (build_tree([Page(0x1000, frame)], frames_on([0], first=99)) for frame in (5, 6))
    path, first = tmp_path / "d", dump_text(one, pid=1)
    failed = '<numamap>\n0 0 4096\n</numamap>\n<ptdump process="2" error="-1"></ptdump>\n'
    for k, (rest, tree) in enumerate([(dump_text(two), two), (failed, one), (dump_text(two)[:-99], one)]):
        snapshot = import_ptdump(write(path, first + rest), fresh(tmp_path / f"last{k}"))
        assert leaves(snapshot.guest) == leaves(tree)
        assert "d holds 2 dumps (1: PID 1," in snapshot.facts["dumps"]
        assert import_ptdump(path, fresh(tmp_path / f"first{k}"), dump=1).facts["pid"] == 1
        with pytest.raises(UsageError, match="--dump 3: d holds 2 dumps"):
            import_ptdump(path, fresh(tmp_path / "no"), dump=3)
    with pytest.raises(CaptureError, match="ends before"):
        import_ptdump(path, fresh(tmp_path / "no"), dump=2)


def test_command_says_which_dump_it_took(tmp_path, capsys):
    text = dump_text(build_tree(PAGES, frames_on([0])))
    path = str(write(tmp_path / "d", text + '<ptdump process="2" error="-1"></ptdump>\n'))
    assert run(["import", path, "-o", str(tmp_path / "made")]) == 0
    assert "(1: PID 77, tables: 7, 2: PID 2, error -1); 1 is taken" in capsys.readouterr().out
    assert run(["import", path, "-o", str(tmp_path / "no"), "--dump", "2"]) == 1
    (tmp_path / "l").write_bytes(b" L 1000,8\n")
    assert run(["import", str(tmp_path / "l"), "-o", str(tmp_path / "no"), "--dump", "1"]) == 2


@pytest.mark.twin
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
    ("<level4", "<level9", r"line \d+"),
    ('<level4 b="', '<level4 b="100000000000000000000000', r"line \d+"),
    ("0 0 </level4>", "0 100000000000000000000000 </level4>", r"line \d+"),
    ("<level4", "<level3", "level4"),
    ("\n0 0 ", "\n0 -5 ", "numamap"),
    ("\n1 ", "\n1 4096 1099511627776\n1 ", "overlapping frame range"),
]


@pytest.mark.twin
@pytest.mark.parametrize(("old", "new", "what"), DAMAGE)
def test_a_damaged_dump_is_named_with_its_place(tmp_path, old, new, what):
    text = dump_text(build_tree(PAGES, frames_on([0])))
    assert old in text
    path = write(tmp_path / "dump.txt", text.replace(old, new, 1))
    with pytest.raises(CaptureError, match=what):
        import_ptdump(path, fresh(tmp_path / "out"))
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.twin
@pytest.mark.parametrize("text", ["", "hello", '<ptdump process="x">'])
def test_a_foreign_file_is_refused(tmp_path, text):
    with pytest.raises(UsageError):
        import_ptdump(write(tmp_path / "d", text), fresh(tmp_path / "out"))


@pytest.mark.twin
def test_a_dump_that_failed_says_so(tmp_path):
    with pytest.raises(CaptureError, match="error"):
        import_ptdump(
            write(tmp_path / "d", '<ptdump process="5" error="-2"></ptdump>\n'), fresh(tmp_path / "o")
        )


@pytest.mark.twin
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_changed_byte_is_refused_or_still_makes_a_tree(tmp_path, data):
    text = bytearray(dump_text(build_tree(PAGES, frames_on([0]))).encode())
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "d").write_bytes(text)
    try:
        import_ptdump(tmp_path / "d", fresh(tmp_path / "out"))
        read_snapshot(tmp_path / "out")
    except PtanalyzeError as error:
        assert "\n" not in str(error)


# Binary dumps of a guest's and its nested tables arrive as they are; damage is one line.

DUMPED = [(0x1000, 7), (0x5000, 9), (0x400000, 1024, 2), (1 << 40, 11)]
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
    return dump(tmp_path / "gpt.bin", build_tree(DUMPED, frames_on([0, 1, 0], first=5000)), b"GPTDUMP1")


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


# Pages that other tools list beside a trace become its page tables; damage leaves nothing behind.

LACKEY = "".join(f" L {0x5000_0000 + k * 0x1000:x},8\n" for k in range(700))
MAPPED = 1 << 63


def v2p(*pairs, size=0x1000):
    """Text as DynamoRIO's; an address of None is left out, which means 0."""
    lines = ["# VirtualToPhysical", "address_mapping_group    {", f"  page_size: {size:#x}"]
    for virtual, physical in pairs:
        lines += ["  address_mapping {"]
        lines += [] if virtual is None else [f"    virtual_address: {virtual:#x}"]
        lines += [f"    physical_address: {physical:#x}", "  }"]
    return "\n".join([*lines, "  information {", "    page_count: 0x1", "  }", "}", ""])


def pagemap(*pairs):
    return np.array(list(pairs), PAIR).tobytes()


def read(tmp_path, content, name="pages"):
    file = tmp_path / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_mapped_pages(file)


def imported(tmp_path, content):
    (tmp_path / "pages").write_bytes(content.encode() if isinstance(content, str) else content)
    (tmp_path / "lackey.txt").write_text(LACKEY)
    import_capture("lackey", tmp_path / "lackey.txt", tmp_path / "made", pages=tmp_path / "pages")
    return load(tmp_path / "made")


def test_a_missing_virtual_address_is_page_0_and_decimals_are_numbers(tmp_path):
    text = v2p((0x400000, 0x600000), (None, 0x200000), size=0x200000).replace("0x600000", "6291456")
    pages = read(tmp_path, text)
    assert pages.address.tolist() == [0, 0x400000] and pages.frame.tolist() == [0x200, 0x600]
    assert pages.size == 2 << 20


def test_pages_that_pagemap_says_are_not_there_are_counted_and_left_out(tmp_path):
    pages = read(
        tmp_path, pagemap((0x2000, MAPPED | 7), (0x1000, 1 << 62 | 3), (0x3000, 0)), "pagemap_pre.bin"
    )
    assert pages.address.tolist() == [0x2000] and pages.frame.tolist() == [7] and pages.absent == 2


@pytest.mark.parametrize("size", [0x1000, 0x200000])
def test_listed_pages_become_the_page_tables_of_an_imported_trace(tmp_path, size):
    pairs = [(0x5000_0000 + k * size, 0x4000_0000 + (9 * k) * size) for k in range(3)]
    capture = imported(tmp_path, v2p(*pairs, size=size))
    tree = capture.snapshot.guest
    level = 1 if size == 0x1000 else 2
    found = {
        int(tree.base[at]) + (slot << (3 + 9 * level)): int(
            tree.entries[at, slot] & np.uint64(0xFFFFFFFFF000)
        )
        for at in np.flatnonzero(tree.level == level).tolist()
        for slot in np.flatnonzero(tree.entries[at] & np.uint64(0x80 if level == 2 else 1)).tolist()
    }
    assert found == dict(pairs)
    assert "table node" in capture.snapshot.facts["unknown"] and capture.has_trace
    assert exit_code(list(check_capture(capture))) == 3  # tables are inferred, VMAs unknown


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.integers(0, (1 << 20) - 1), st.integers(0, 1 << 30), min_size=1, max_size=20),
    st.sampled_from([1, 2]),
    st.sampled_from([4, 5]),
)
def test_every_page_is_found_again_below_the_tables_that_it_needs(tmp_path, pages, level, levels):
    size = 1 << (3 + 9 * level)
    address = (1 << 39) + np.array(sorted(pages), np.int64) * size
    frame = np.array([pages[page] for page in sorted(pages)], np.uint64) << np.uint64(9 * (level - 1))
    leaves = frame << np.uint64(12) | E.PRESENT | (E.HUGE if level == 2 else E.NONE)
    tree = infer_tree(address, leaves, level, levels, tmp_path)
    with tempfile.TemporaryDirectory(dir=tmp_path) as where:
        write_tree(where, "gpt", tree)
        read = read_tree(where)
    table, slot = np.nonzero(E.leaf(read.entries, level) & (read.level == level)[:, None])
    found = read.base[table].astype(np.int64) + slot * size
    order = np.argsort(found)
    assert found[order].tolist() == address.tolist()
    assert E.frame(read.entries[table, slot], level)[order].tolist() == frame.tolist()
    assert read.entries.any(axis=1).all() and read.level.min() == level and read.levels == levels


def test_both_forms_of_the_same_pages_make_the_same_tables(tmp_path):
    pairs = [(0x5000_0000 + k * 4096, 4096 * (77 + k)) for k in range(600)]
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir(), other.mkdir()
    text = imported(one, v2p(*pairs)).snapshot.guest
    words = imported(other, pagemap(*((a, MAPPED | p >> 12) for a, p in reversed(pairs)))).snapshot.guest
    assert (text.entries == words.entries).all() and (text.base == words.base).all()


GOOD = v2p((0x1000, 0x2000), (0x3000, 0x4000))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (v2p((0x123, 0x3), size=0x200000), "line 5: virtual_address = 0x123: not the address of a page"),
        (v2p((0x1000, 0x2001)), "physical_address = 0x2001"),
        (GOOD.replace("page_size: 0x1000", "page_size: 0x4000"), "page_size = 16384: 4096 or 2 MiB"),
        (GOOD.replace("0x3000", "0x1000"), "mapped twice, to different frames"),
        (GOOD.replace("page_size: 0x1000", ""), "no page_size before it"),
        (GOOD.replace("0x4000", "4k"), "physical_address = 4k: no number"),
        (GOOD[: GOOD.rindex("physical")], "no physical_address follows|left open"),
        (GOOD + "\nversion: 3\n", "text = 'version: 3': not a line"),
        (pagemap((0x1000, MAPPED | 7)) + b"\0" * 5, "bytes = 5: left over"),
        (pagemap((0x1234, MAPPED | 7)), "address of pair 0 = 0x1234"),
        (pagemap((0x1000, MAPPED | 1 << 50)), "beyond any machine's memory"),
        (pagemap((0x1000, 0)), "mapped pages = 0: nothing to import"),
        (b"", "nothing to import"),
    ],
)
def test_a_damaged_list_is_one_line_and_leaves_nothing(tmp_path, content, why):
    with pytest.raises(CaptureError, match=why) as error:
        imported(tmp_path, content)
    assert "\n" not in str(error.value) and not (tmp_path / "made").exists()


def test_a_list_cut_anywhere_is_read_whole_or_refused(tmp_path):
    whole = read(tmp_path, GOOD)
    for end in range(len(GOOD) - 1):
        try:
            cut = read(tmp_path, GOOD[:end], "v2p.textproto")
        except PtanalyzeError as error:
            assert "\n" not in str(error)
        else:
            assert cut.address.tolist() == whole.address.tolist()


def test_page_tables_themselves_get_no_list(tmp_path):
    (tmp_path / "pages").write_text(GOOD)
    (tmp_path / "dump.txt").write_text("<ptdump>")
    with pytest.raises(UsageError, match="vmitosis is no trace"):
        import_capture("vmitosis", tmp_path / "dump.txt", tmp_path / "m", pages=tmp_path / "pages")
    with pytest.raises(UsageError, match="no such file"):
        import_capture("lackey", tmp_path / "dump.txt", tmp_path / "m", pages=tmp_path / "gone")


def test_a_line_without_an_end_is_no_line(tmp_path):
    with pytest.raises(CaptureError, match="line 1: text"):
        read(tmp_path, "x" * (1 << 20), "v2p.textproto")
    (tmp_path / "hole.textproto").write_bytes(b"")
    os.truncate(tmp_path / "hole.textproto", 1 << 40)
    with pytest.raises(CaptureError, match="line 1: text"):
        read_mapped_pages(tmp_path / "hole.textproto")
