"""check --live: pages of a dump against pagemap, with this very process as the VMM; naive twin beside it."""

import mmap
import os
import subprocess
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptanalyze.capture.check.tables import FAILED, OK, PARTIAL
from ptanalyze.capture.check.vm import check_host, check_live, pagemap
from ptanalyze.core.errors import CaptureError, PartialDataError, UsageError
from ptanalyze.core.snapshot import Topology, Tree
from ptanalyze.formats.snapshot import HostDump, Root, Slot

PAGE, REGION = 4096, 1 << 21
GPA = 3 << 30  # where the slot begins
PRESENT = 0x801


class Memory:
    """2 MiB of this process's memory at an aligned address, its pages written or only read."""

    def __init__(self, regions=1):
        self.map = mmap.mmap(-1, (regions + 1) * REGION, flags=mmap.MAP_PRIVATE)
        self.map.madvise(mmap.MADV_NOHUGEPAGE)
        start = np.frombuffer(self.map, np.uint8).ctypes.data
        self.address = -(-start // REGION) * REGION
        self.offset = self.address - start

    def write(self, page):
        self.map[self.offset + page * PAGE] = 1

    def read(self, page):
        return self.map[self.offset + page * PAGE]

    def frames(self, count=512):
        """What pagemap says, page by page; -1 for pages that are not there."""
        found = []
        with open("/proc/self/pagemap", "rb", buffering=0) as file:
            for page in range(count):
                word = int.from_bytes(os.pread(file.fileno(), 8, (self.address // PAGE + page) * 8), "little")
                found.append(word & (1 << 55) - 1 if word >> 63 else -1)
        return found


def dump_of(frames, address, *, kind="tdp_mmu", huge=False, slots=None, facts=None):
    """HostDump of four tables in a row that map `frames` from GPA on, or a 2 MiB page of frames[0]."""
    entries = np.zeros((4, 512), np.uint64)
    entries[0, 0], entries[1, GPA >> 30] = PRESENT | 1 << 12, PRESENT | 2 << 12
    if huge:
        entries[2, 0] = PRESENT | 0x80 | frames[0] << 12
    else:
        entries[2, 0] = PRESENT | 3 << 12
        entries[3] = [PRESENT | frame << 12 if frame >= 0 else 0x5A0 for frame in frames]
    count = 3 if huge else 4
    tree = Tree(
        entries=entries[:count],
        base=np.array([0, 0, GPA, GPA], np.uint64)[:count],
        frame=np.arange(count),
        parent=np.arange(-1, count - 1, dtype=np.int32),
        node=np.zeros(count, np.int16),
        level=np.array([4, 3, 2, 1], np.uint8)[:count],
        flags=np.zeros(count, np.uint8),
        levels=4,
        encoding="kvm",
    )
    slots = (Slot(gpa=GPA, bytes=REGION, hva=address),) if slots is None else slots
    root = Root(frame=0, kind=kind, table=0, levels=4)
    return HostDump(tree, Topology(()), slots, (), (root,), facts or {})


def reasons(host):
    """(the first check, {first word of a reason: pages})"""
    first, *others = check_live(host, os.getpid())
    return first, {each.reason.split()[0]: each.wrong for each in others}


def kvms_count(host):
    """The check of KVM's count of leaf entries, None where there is none."""
    return next((each for each in check_host(host) if each.name == "ept: KVM's count"), None)


@pytest.fixture
def memory():
    here = Memory()
    for page in range(512):
        here.write(page)
    return here


def test_every_page_agrees_when_nothing_has_moved(memory):
    first, why = reasons(dump_of(memory.frames(), memory.address))
    assert (first.verdict, first.examined, first.wrong) == (OK, 512, 0) and not why


def test_a_page_that_moved_makes_the_check_partial_and_many_make_it_fail(memory):
    frames = memory.frames()
    frames[3] += 1
    first, why = reasons(dump_of(frames, memory.address))
    assert (first.verdict, first.wrong, why) == (PARTIAL, 1, {"have": 1})
    first, _ = reasons(dump_of([frame + 1 for frame in frames], memory.address))
    assert (first.verdict, first.wrong) == (FAILED, 512)


def test_a_huge_leaf_is_compared_page_by_page(memory):
    frames = memory.frames()
    first, why = reasons(dump_of([frames[0] & -512], memory.address, huge=True))
    expected = sum(frame != (frames[0] & -512) + i for i, frame in enumerate(frames))
    assert first.examined == 512 and first.wrong == expected and why == {"have": expected}


def test_kvms_own_count_of_leaves_is_held_against_ours(memory):
    for pages, verdict in ((512, OK), (511, PARTIAL)):
        counts = {"pages_4k": pages, "pages_2m": 0, "pages_1g": 0}
        facts = {"quiescence": {"before": counts, "after": counts, "quiet": True}}
        check = kvms_count(dump_of(memory.frames(), memory.address, facts=facts))
        assert check.verdict == verdict and check.wrong == 512 - pages
    assert kvms_count(dump_of(memory.frames(), memory.address)) is None


def test_tables_that_two_roots_share_count_once(memory):
    counts = {"pages_4k": 512, "pages_2m": 0, "pages_1g": 0}
    facts = {"quiescence": {"before": counts, "after": counts, "quiet": True}}
    host = dump_of(memory.frames(), memory.address, facts=facts)
    names = ("entries", "base", "frame", "node", "level", "flags")
    twice = {name: np.concatenate([getattr(host.tree, name)] * 2) for name in names}
    twice["frame"][4] = 9  # a root of its own
    tree = Tree(**twice, parent=np.array([-1, 0, 1, 2, -1, 4, 5, 6], np.int32), levels=4, encoding="kvm")
    roots = tuple(Root(frame=frame, kind="tdp_mmu", table=at, levels=4) for frame, at in ((0, 0), (9, 4)))
    host = replace(host, tree=tree, roots=roots)
    first, check = reasons(host)[0], kvms_count(host)
    assert (first.examined, check.examined, check.verdict) == (512, 512, OK)


def test_tables_that_map_nothing_prove_nothing(memory):
    first, why = reasons(dump_of([-1] * 512, memory.address))
    assert first.verdict == PARTIAL and not why


def test_a_slot_beyond_user_space_holds_no_page(memory):
    slots = (Slot(gpa=GPA, bytes=REGION, hva=(1 << 64) - REGION),)
    first, why = reasons(dump_of(memory.frames(), memory.address, slots=slots))
    assert first.verdict == FAILED and why == {"are": 512}


def test_a_vmm_that_ends_while_it_is_compared_is_told():
    child = subprocess.Popen(["sleep", "60"])
    with pagemap(child.pid) as words:
        child.kill()
        child.wait()
        with pytest.raises(PartialDataError, match="ended while its pages were compared"):
            words(0x400000, 1)


def test_shadow_tables_are_refused(memory):
    with pytest.raises(CaptureError, match="no root maps guest-physical addresses"):
        list(check_live(dump_of(memory.frames(), memory.address, kind="shadow"), os.getpid()))


def test_a_process_that_is_gone_is_refused(memory):
    with pytest.raises(UsageError, match="no such process"):
        list(check_live(dump_of(memory.frames(), memory.address), 2**22 + 1))


def naive(frames, slots):
    """Verdict counts of the pages of one region, one page at a time."""
    counts = Counter()
    with pagemap(os.getpid()) as words:
        for page, frame in enumerate(frames):
            address = GPA + page * PAGE
            homes = [slot for slot in slots if slot.gpa <= address < slot.gpa + slot.bytes]
            if frame < 0 or not homes:
                continue
            word = int(words(homes[0].hva + address - homes[0].gpa, 1)[0])
            if word >> 63 and word & (1 << 55) - 1 == frame:
                continue
            counts["have" if word >> 63 else "may" if homes[0].flags & 4 else "are"] += 1
    return dict(counts)


pages = st.integers(0, 511)


@settings(max_examples=25, deadline=None)
@given(cuts=st.sets(pages, max_size=4), drop=st.sets(pages, max_size=4), moved=st.sets(pages, max_size=4))
def test_the_reasons_are_those_of_the_naive_twin(cuts, drop, moved):
    memory = Memory()
    for page in range(512):
        memory.write(page)
    frames = memory.frames()
    for page in moved:
        frames[page] += 1
    for page in drop:
        memory.map.madvise(mmap.MADV_DONTNEED, memory.offset + page * PAGE, PAGE)
    spans = list(pairwise([0, *sorted(cuts - {0}), 512]))[::-1]
    slots = tuple(
        Slot(gpa=GPA + a * PAGE, bytes=(b - a) * PAGE, hva=memory.address + a * PAGE, flags=b % 2 * 4)
        for a, b in spans[: 1 + len(spans) // 2]
    )
    assert reasons(dump_of(frames, memory.address, slots=slots))[1] == naive(frames, slots)


def test_slots_of_another_address_space_do_not_count(memory):
    slots = (Slot(gpa=GPA, bytes=REGION, hva=memory.address, space=1),)
    first, why = reasons(dump_of(memory.frames(), memory.address, slots=slots))
    assert (first.verdict, first.examined, why) == (PARTIAL, 0, {})
