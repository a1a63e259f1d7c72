"""The lab's own checks: what is wrong must not pass."""

from dataclasses import replace

import numpy as np
import pytest

from ptanalyze.core.snapshot import NO_PARENT, Tree

from .checks import equal_raw_memory, pages_hold_magic, placed_as_asked
from .machine import Machine
from .ram import PAGE, Ram
from .touched import Region, Touched, bind, interleave, magic, translate

SMALL = Machine(nodes=2, node_mib=1)
DATA = 0x80  # frame in node 0
TABLES = np.array([0x10, 0x11, 0x12, 0x101])  # the leaf table is in node 1


def memory(directory, machine):
    """Ram of zeros for `machine`; the files stay sparse."""
    for node in range(machine.nodes):
        with open(directory / str(node), "wb") as file:
            file.truncate(machine.node_bytes)
    return Ram(machine, directory)


@pytest.fixture
def mapped(tmp_path):
    """(Ram, Tree, Touched): one page at 2 MiB, mapped by four tables, all of it in raw memory."""
    entries = np.zeros((4, 512), np.uint64)
    entries[[0, 1, 2], [0, 0, 1]] = TABLES[1:] << 12 | 0x67
    entries[3, 0] = DATA << 12 | 0x67
    ram = memory(tmp_path, SMALL)
    touched = Touched(Region("4k", bind(0), bind(1)), 1 << 21, np.array([1 << 21], np.uint64))
    for frame, words in [*zip(TABLES, entries, strict=True), (DATA, magic(touched.addresses))]:
        node, page = divmod(int(frame), ram.node_pages)
        with open(tmp_path / str(node), "r+b") as file:
            file.seek(page * PAGE)
            file.write(words.tobytes())
    base = np.array([0, 0, 0, 1 << 21], np.uint64)
    parent = np.array([NO_PARENT, 0, 1, 2], np.int32)
    level = np.array([4, 3, 2, 1], np.uint8)
    tree = Tree(entries, base, TABLES, parent, ram.node(TABLES), level, np.zeros(4, np.uint8), 4)
    return ram, tree, touched


def test_the_truth_passes(mapped):
    ram, tree, touched = mapped
    equal_raw_memory(tree, tree.frame, ram)
    assert pages_hold_magic(touched, tree, ram).tolist() == [DATA]
    assert tree.node.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("bit", [0, 6, 12, 63])
@pytest.mark.parametrize("table, slot", [(0, 0), (0, 255), (3, 0), (3, 511)])
def test_one_wrong_bit_of_a_dumped_entry_is_found(mapped, table, slot, bit):
    ram, tree, _ = mapped
    tree.entries[table, slot] ^= np.uint64(1 << bit)
    with pytest.raises(AssertionError, match="1 of 4 tables differ"):
        equal_raw_memory(tree, tree.frame, ram)


def test_accessed_bits_that_changed_since_in_every_table_are_not_compared(mapped):
    ram, tree, _ = mapped
    tree.entries[:] &= ~np.uint64(1 << 5)
    equal_raw_memory(tree, tree.frame, ram)


def test_a_wrong_frame_is_found(mapped):
    ram, tree, touched = mapped
    with pytest.raises(AssertionError, match="tables differ"):
        equal_raw_memory(replace(tree, frame=tree.frame + 1), tree.frame + 1, ram)
    tree.entries[3, 0] += np.uint64(PAGE)
    with pytest.raises(AssertionError, match="1 of 1 pages hold something else"):
        pages_hold_magic(touched, tree, ram)


def test_a_missing_table_is_found(mapped):
    ram, tree, touched = mapped
    fields = ("entries", "base", "frame", "parent", "node", "level", "flags")
    short = replace(tree, **{name: getattr(tree, name)[:3] for name in fields})
    with pytest.raises(AssertionError, match="1 touched pages are not in the tables"):
        pages_hold_magic(touched, short, ram)


def test_a_page_on_another_node_is_found():
    placed_as_asked(bind(2), np.array([2, 2, 2]))
    with pytest.raises(AssertionError):
        placed_as_asked(bind(2), np.array([2, 2, 3]))
    placed_as_asked(interleave(0, 1), np.arange(100) % 2)
    with pytest.raises(AssertionError):
        placed_as_asked(interleave(0, 1), np.arange(100) % 4 // 3)


@pytest.mark.parametrize("leaf_level", [1, 2, 3])
def test_addresses_inside_huge_pages_have_frames_of_their_own(leaf_level):
    levels = np.arange(4, leaf_level - 1, -1, dtype=np.uint8)
    count = len(levels)
    entries = np.zeros((count, 512), np.uint64)
    entries[-1, 3] = np.uint64(1 << 30 | (0x80 if leaf_level > 1 else 0) | 1)
    zeros = np.zeros(count, np.int64)
    tree = Tree(entries, zeros.astype(np.uint64), zeros, zeros - 1, zeros, levels, zeros, 4)
    first = 3 << (3 + 9 * leaf_level)
    last = first + (1 << (3 + 9 * leaf_level)) - PAGE
    frames, found, _ = translate(tree, np.array([first - PAGE, first, last, last + PAGE], np.uint64))
    assert frames.tolist() == [-1, 1 << 18, (1 << 18) + (last - first) // PAGE, -1]
    assert found.tolist() == [0, leaf_level, leaf_level, 0]


def test_memory_above_the_hole_goes_on_at_4_gib(tmp_path):
    ram = memory(tmp_path, Machine(nodes=4, node_mib=1536))
    at = np.array([0x0, 0x5FFFF, 0x60000, 0x7FFFF, 0x80000, 0xFFFFF, 0x100000, 0x13FFFF, 0x140000, 0x1FFFFF])
    assert ram.node(at).tolist() == [0, 0, 1, 1, -1, -1, 1, 1, 2, 3]
    assert ram.node([0x200000, -1]).tolist() == [-1, -1]
    with pytest.raises(ValueError, match="0x80000 is no memory"):
        ram.tables(np.array([0x80000]))
