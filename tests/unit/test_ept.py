"""NPT to EPT and back: bit by bit on any entry that KVM writes, and on whole recorded tables."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ept_layout import as_ept, converted, ept_to_npt, hardware, npt_to_ept, restored
from naive import ept as naive
from ptanalyze.analysis.leaf_classes import classify_pages
from ptanalyze.capture.check.tables import check_tree
from ptanalyze.capture.vm.join import put_together
from ptanalyze.core import snapshot as bits
from ptanalyze.formats.snapshot import read_snapshot
from ptanalyze.formats.vm import read_vm
from ptanalyze.world.address_space import address_space
from vm_samples import NAMES, unpack

pytestmark = pytest.mark.twin

MMIO_NPT, MMIO_EPT, REMOVED = 1 << 51 | 7 | 0xFEC00 << 12, 6 | 0xFEC00 << 12 | 5 << 52, 0x5A0
FLAG = st.integers(0, 1)


@st.composite
def npt_entries(draw, level=None):
    """(entry, level) as KVM writes them on AMD: user pages, PWT and PCD together or not at all."""
    level = level or draw(st.integers(1, 5))
    leaf = level == 1 or (level < 4 and draw(st.booleans()))
    entry = draw(st.integers(0, (1 << 40) - 1)) << 12
    if leaf:
        entry = entry >> (3 + 9 * level) << (3 + 9 * level)
    entry |= 0x805 | draw(FLAG) << 1 | draw(FLAG) << 5 | draw(FLAG) << 9 | draw(FLAG) << 10 | draw(FLAG) << 63
    entry |= draw(st.integers(0, 2)) << 52
    if leaf:
        entry |= draw(FLAG) << 6 | draw(st.sampled_from([0, 1 << 3, 1 << 4])) | (level > 1) << 7
    return entry, level


def one(entry):
    return np.array([entry], np.uint64)


@given(npt_entries())
def test_every_field_goes_where_intel_has_it(case):
    entry, level = case
    assert int(npt_to_ept(one(entry), level)[0]) == naive.npt_to_ept(entry, level)


@given(npt_entries())
def test_there_and_back_is_the_same_entry(case):
    entry, level = case
    assert int(ept_to_npt(npt_to_ept(one(entry), level), level)[0]) == entry


@given(npt_entries())
def test_intel_accepts_what_is_made_and_every_decoder_reads_the_same_of_it(case):
    entry, level = case
    npt, kept = one(entry), npt_to_ept(one(entry), level)
    seen = hardware(kept)
    assert naive.misconfigured(int(seen[0]), level) == ""
    for words, encoding in ((kept, "kvm"), (seen, "ept")):
        for read in (bits.mapped, bits.leaf, bits.table):
            assert read(words, level, encoding) == read(npt, level, "kvm")
        assert bits.present(words, encoding) == bits.present(npt, "kvm")
        leaf = bool(bits.leaf(npt, level, "kvm")[0])
        assert bits.frame(words, level, encoding, leaf) == bits.frame(npt, level, "kvm", leaf)


@pytest.mark.parametrize("entry", [0, MMIO_NPT, MMIO_EPT, REMOVED])
@pytest.mark.parametrize("level", range(1, 6))
def test_what_maps_nothing_stays_nothing(entry, level):
    words = one(entry)
    assert not bits.mapped(words, level, "kvm")[0] and not bits.present(words, "kvm")[0]
    assert npt_to_ept(words, level)[0] == ept_to_npt(words, level)[0] == hardware(words)[0] == 0


@given(npt_entries(level=1))
def test_suspended_access_is_still_a_mapping_that_faults_and_is_restored(case):
    entry = int(npt_to_ept(one(case[0]), 1)[0]) & ~2
    suspended = one(entry & ~7 | (entry & 5) << 54)
    assert bits.mapped(suspended, 1, "kvm")[0] and not bits.present(suspended, "kvm")[0]
    assert bits.frame(suspended, 1, "kvm")[0] == bits.frame(one(entry), 1, "kvm")[0]
    assert hardware(suspended)[0] == 0
    assert restored(suspended)[0] == entry and restored(one(entry))[0] == entry


@pytest.fixture(scope="module", params=NAMES[1:])
def recorded(request, tmp_path_factory):
    """(HostDump, guest Snapshot) of a recorded VM on AMD."""
    place = unpack(request.param, tmp_path_factory.mktemp("ept"))
    return read_vm(place / "host"), read_snapshot(place / "guest")


def test_recorded_tables_come_back_bit_by_bit_but_for_what_maps_nothing(recorded):
    tree = recorded[0].tree
    back = converted(converted(tree, "kvm", npt_to_ept), "kvm", ept_to_npt)
    mapped = tree.entries & np.uint64(1 << 11) != 0
    assert mapped.any() and np.array_equal(back.entries, np.where(mapped, tree.entries, 0))


def test_intel_would_accept_every_recorded_entry(recorded):
    tree = as_ept(recorded[0].tree)
    for level in range(1, 5):
        for entry in np.unique(tree.entries[tree.level == level]).tolist():
            assert naive.misconfigured(entry, level) == ""


def test_classification_of_recorded_guests_is_the_same_on_intels_tables(recorded):
    host, guest = recorded
    nowhere = np.zeros(0, np.uint64)
    snapshot = put_together(host, guest, "vm.json").snapshot
    expected = classify_pages(address_space(snapshot, nowhere), weight="4k")
    trees = [as_ept(host.tree), converted(host.tree, "kvm", npt_to_ept)]
    for tree in trees:
        assert [f.name for f in check_tree(tree, "ept", host.topology) if f.wrong] == []
        same = put_together(replace(host, tree=tree), guest, "vm.json").snapshot
        found = classify_pages(address_space(same, nowhere), weight="4k")
        assert np.array_equal(found.counts, expected.counts) and found.unresolved == expected.unresolved
