"""Pages that other tools list beside a trace become its page tables; damage leaves nothing behind."""

import os
import tempfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptanalyze.capture.check import check_capture, exit_code
from ptanalyze.capture.import_ import import_capture, infer_tree
from ptanalyze.core import snapshot as E
from ptanalyze.core.errors import CaptureError, PtanalyzeError, UsageError
from ptanalyze.formats.capture import load
from ptanalyze.formats.foreign.recognise import PAIR, read_mapped_pages
from ptanalyze.formats.tables import read_tree, write_tree

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
