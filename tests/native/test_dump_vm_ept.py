"""EPT without Intel hardware: real NPT and shadow entries rewritten bit by bit as EPT entries, and back.

The bits are those of the Intel SDM, volume 3, "EPT paging-structure entries", and of AMD's nested paging,
which uses the CPU's own format (AMD APM 2, 15.25); KVM's marks are in arch/x86/kvm/mmu/spte.h.
"""

import re
from dataclasses import replace

import numpy as np
import pytest

from native.dumping import REPOSITORY, assert_closed, leaves, running
from native.vms import MIB, need_kvm, ptdump_vm
from ptanalyze.core import snapshot as E
from ptanalyze.formats.tables import read_tree, write_tree
from ptanalyze.formats.vm import read_vm
from vm_samples import NAMES, unpack

pytestmark = pytest.mark.native
# Paging format -> EPT: present to read, write to write; the meanings that sit at other bits
MOVED = {0: 0, 1: 1, 5: 8, 6: 9, 7: 7, 11: 11}
KEPT = np.uint64(((1 << 52) - (1 << 12)) | ((1 << 63) - (1 << 52)))  # address, KVM's own bits 52-62
NO_EXECUTE, EXECUTE, USER = 63, 2, 2
MEMORY_TYPE = np.uint64(6 << 3)  # write back, of leaves
NOT_MAPPINGS = {
    "frozen (FROZEN_SPTE)": 0x5A0,
    "frozen since Linux 6.10, #VE suppressed": 1 << 63 | 0x5A0,
    "empty since Linux 6.10 (SHADOW_NONPRESENT_VALUE)": 1 << 63,
    "MMIO on EPT: a misconfiguration, write and execute": 0b110 | 7 << 3 | 0xFEE00 << 12,
    "MMIO on NPT: a reserved bit": 1 << 51 | 1 | 0xFEE00 << 12,
    "empty": 0,
}


def bit(words, number):
    return words >> np.uint64(number) & np.uint64(1)


def to_ept(words, leaf):
    """Present SPTEs in the CPU's format as EPT entries."""
    found = words & KEPT
    for here, there in MOVED.items():
        found |= bit(words, here) << np.uint64(there)
    found |= (bit(words, NO_EXECUTE) ^ np.uint64(1)) << np.uint64(EXECUTE)
    return np.where(leaf, found | MEMORY_TYPE, found)


def from_ept(words):
    found = words & KEPT | np.uint64(1 << USER)
    for here, there in MOVED.items():
        found |= bit(words, there) << np.uint64(here)
    return found | (bit(words, EXECUTE) ^ np.uint64(1)) << np.uint64(NO_EXECUTE)


@pytest.fixture(scope="module", params=["this machine's KVM", *NAMES])
def dumped(request, tmp_path_factory, vmm):
    """Tree of KVM's entries: of a guest here and now, or of the NPT of a recorded one."""
    if request.param in NAMES:
        return read_vm(unpack(request.param, tmp_path_factory.mktemp("recorded")) / "host").tree
    need_kvm()
    directory = tmp_path_factory.mktemp("dump") / "d"
    with running(vmm, 64, 8192) as (process, _):
        assert ptdump_vm(process.pid, directory, "--stop").returncode == 0
    return read_vm(directory).tree


def rewritten(tree, change):
    """The tree with change(words, leaf) instead of its present entries, level by level."""
    words = np.zeros_like(np.asarray(tree.entries))
    for level, ids, raw in E.blocks(tree, range(1, tree.levels + 1)):
        here = E.present(raw, tree.encoding)
        words[ids] = np.where(here, change(raw, E.leaf(raw, level, tree.encoding)), 0)
    return replace(tree, entries=words)


def test_every_entry_comes_back_from_ept_as_it_was(dumped):
    ignored = ~np.uint64(1 << 3 | 1 << 4 | 1 << 8 | 3 << 9 | 1 << USER)  # caching, global, KVM's, always user
    there = rewritten(dumped, to_ept)
    back = rewritten(there, lambda words, leaf: from_ept(words))
    present = E.present(np.asarray(dumped.entries), "kvm")
    assert present.sum() > 300
    assert np.array_equal(np.where(present, dumped.entries & ignored, 0), back.entries & ignored)


@pytest.mark.parametrize("encoding", ["kvm", "ept"])
def test_the_same_tables_pages_and_frames_are_found_in_ept_entries(dumped, tmp_path, encoding):
    there = replace(rewritten(dumped, to_ept), encoding=encoding)
    write_tree(tmp_path, "ept", there)
    there = read_tree(tmp_path, "ept")
    assert_closed(there)
    assert np.array_equal(leaves(there), leaves(dumped))
    for level, ids, raw in E.blocks(dumped, range(1, dumped.levels + 1)):
        assert np.array_equal(E.table(raw, level, "kvm"), E.table(there.entries[ids], level, encoding))


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_what_kvm_writes_where_nothing_is_mapped_is_neither_page_nor_table(level):
    words = np.array([*NOT_MAPPINGS.values()], np.uint64)
    for verdict in (E.present, E.mapped, E.leaf, E.table):
        arguments = (words, "kvm") if verdict is E.present else (words, level, "kvm")
        assert not verdict(*arguments).any()


def test_a_page_whose_access_kvm_suspended_stays_a_page():
    """Without EPT accessed bits KVM takes away read, write and execute, but not bit 11 (spte.c)."""
    words = np.array([0x12345000 | 1 << 11 | 6 << 3 | 5 << 54], np.uint64)
    assert E.leaf(words, 1, "kvm").all() and not E.present(words, "kvm").any()
    assert E.frame(words, 1, "kvm").tolist() == [0x12345]


def test_levels_are_numbered_as_kvm_numbers_them():
    text = (REPOSITORY / "dumps/build/vmlinux.h").read_text()
    levels = dict(re.findall(r"\bPG_LEVEL_(4K|2M|1G|512G) = (\d)", text))
    assert levels == {"4K": "1", "2M": "2", "1G": "3", "512G": "4"}
    assert 1 << (3 + 9 * int(levels["1G"])) == MIB << 10
