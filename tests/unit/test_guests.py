"""Guests read from outside: BTF, processes, tables, QMP."""

import os
import re
import shutil
import socket
import struct
import subprocess
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guest_memories import (
    COMM,
    DIRECT,
    LEADER,
    MM,
    PAGE,
    TABLE,
    TASKS,
    TYPES,
    Memory,
    btf,
    header,
    hostile_memory,
    linux,
    memory_of,
    reader,
)
from naive.trees import read_guest_tables as naive
from ptanalyze.capture.check.tables import check_tree
from ptanalyze.capture.live import qmp as client
from ptanalyze.capture.live import survey_guest
from ptanalyze.capture.live.guests import (
    BEYOND,
    LIMIT,
    SEEN,
    SELF_MAP,
    GuestMemory,
    Space,
    address_spaces,
    is_pti_pair,
    read_guest_tables,
)
from ptanalyze.capture.live.process import Process
from ptanalyze.capture.live.qmp import Qmp, Registers, registers, slots_of
from ptanalyze.capture.live.survey_guest import (
    GuestSurvey,
    Host,
    btfs,
    by_cr3,
    by_kernel,
    count_tables,
    find_kernel,
    tasks_of,
)
from ptanalyze.cli.survey import survey_guest_answer as answer
from ptanalyze.core import snapshot
from ptanalyze.core.errors import UsageError
from ptanalyze.formats.btf import MOST_BYTES, NoBtf, read_btf
from ptanalyze.formats.snapshot import read_tree, write_tree
from ptanalyze.show import plots
from strategies import Page, build_tree, trees

# Guest tables read from outside: sane ones as they are, hostile ones in bounded time into a closed tree.

VA = 0x7F00_0000_0000


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from([4, 5]))
def test_sane_tables_are_read_as_they_are(data, levels):
    pages = [page for page in data.draw(trees(levels)) if page.va < 1 << (11 + 9 * levels)]
    tree = build_tree(pages, iter(range(1 << 20, 1 << 21)), levels=levels)
    found = read_guest_tables(reader(memory_of(tree)), 1 << 20, levels)
    assert found.dropped == {} and found.kernel == {}
    for column in ("entries", "base", "frame", "parent", "level"):
        assert np.array_equal(getattr(found.tree, column), getattr(tree, column)), column


def kept_of(tree):
    return [memory_of(replace(tree, frame=np.zeros(1, int), entries=row[None]))[0] for row in tree.entries]


@settings(max_examples=300, deadline=None)
@given(hostile_memory(), st.sampled_from([4, 5]), st.sampled_from([1, 3, 100]))
def test_hostile_tables_become_what_the_naive_reader_keeps_of_them(memory, levels, limit):
    root = min(memory)
    found, expected = (
        read_guest_tables(reader(memory), root, levels, limit),
        naive(memory, root, levels, limit),
    )
    rows = zip(*(getattr(found.tree, c).tolist() for c in ("base", "frame", "parent", "level")), strict=True)
    assert list(rows) == expected[0]
    assert kept_of(found.tree) == expected[1]
    assert found.dropped == expected[2]


@settings(max_examples=100, deadline=None)
@given(hostile_memory(), st.sampled_from([4, 5]))
def test_whatever_a_guest_holds_becomes_a_closed_tree_that_can_be_stored(tmp_path_factory, memory, levels):
    place = tmp_path_factory.mktemp("hostile")
    tree = read_guest_tables(reader(memory), min(memory), levels).tree
    write_tree(place, "gpt", tree)
    assert [f.name for f in check_tree(read_tree(place), "gpt", None) if f.wrong] == []
    assert len(tree) <= len(memory)


def test_a_root_beyond_memory_is_none():
    assert read_guest_tables(reader({}), 5, 4) is None
    assert read_guest_tables(lambda gpa, n: b"short", 5, 4) is None


def test_a_self_map_is_dropped_and_named():
    memory = {1: {0: 1 << 12 | TABLE, 3: 2 << 12 | TABLE}, 2: {}}
    found = read_guest_tables(reader(memory), 1, 4)
    assert found.dropped == {SELF_MAP: 1} and found.tree.frame.tolist() == [1, 2]
    assert found.tree.entries[0, 0] == 0


def test_tables_shared_and_beyond_memory_are_dropped_and_named():
    memory = {1: {0: 2 << 12 | TABLE, 1: 2 << 12 | TABLE, 2: 99 << 12 | TABLE}, 2: {}}
    assert read_guest_tables(reader(memory), 1, 4).dropped == {SEEN: 1, BEYOND: 1}


def test_the_kernels_half_is_counted_not_kept():
    memory = {
        1: {0: 2 << 12 | TABLE, 256: 3 << 12 | TABLE, 511: 1 << 12 | TABLE},
        2: {},
        3: {7: 4 << 12 | TABLE},
        4: {},
    }
    found = read_guest_tables(reader(memory), 1, 4)
    assert found.kernel == {2: 1, 3: 1} and found.dropped == {}
    assert found.tree.frame.tolist() == [1, 2] and not found.tree.entries[0, 256:].any()


@pytest.mark.parametrize("fan", ["every table is every table's child", "a new table in every entry"])
def test_work_on_the_worst_memory_is_bounded(fan):
    """Full tables all the way down: the limits hold whatever the entries are."""
    reads = [0]

    def read(gpa, n):
        reads[0] += 1
        frame = gpa >> 12
        step = 1 if fan.startswith("a new") else 0
        targets = (frame * 512 * step + np.arange(1, 513)) & ((1 << 40) - 1)
        return (targets.astype(np.uint64) << np.uint64(12) | np.uint64(TABLE)).tobytes()

    began = time.perf_counter()
    found = read_guest_tables(read, 0, 5, limit=300)
    assert time.perf_counter() - began < 10
    assert len(found.tree) <= 300 and reads[0] <= 2 * 4 * 300 + 2
    assert set(found.dropped) <= {LIMIT, SEEN, SELF_MAP} and LIMIT in found.dropped


def vcpu(number, cr3, cr0=1 << 31, cr4=0, efer=1 << 10):
    return Registers(number, 100 + number, cr0, cr3, cr4, efer)


def test_registers_say_levels_and_root():
    assert vcpu(0, 0x1234_5FFF).root == 0x12345
    assert vcpu(0, 1 << 63 | 3 << 61 | 0x5001).root == 5
    assert (vcpu(0, 0).levels, vcpu(0, 0, cr4=1 << 12).levels) == (4, 5)
    assert vcpu(0, 0, cr0=0).levels == vcpu(0, 0, efer=0).levels == 0


PTI = {
    6: {0: 9 << 12 | 1 << 63 | 0x67, 300: 8 << 12 | TABLE},
    7: {0: 9 << 12 | 0x27},
    9: {},
    12: {0: 9 << 12 | TABLE},
    13: {0: 10 << 12 | TABLE},
}  # fmt: skip


def test_two_roots_that_differ_in_bit_12_and_share_their_user_half_are_one_process():
    vcpus = [vcpu(0, 0x6000), vcpu(1, 0x7FFF), vcpu(2, 0xC000), vcpu(3, 0xD000)]
    spaces, left_out = address_spaces(reader(PTI), vcpus)
    assert spaces == [Space(6, 4, (0, 1), True), Space(12, 4, (2,), False), Space(13, 4, (3,), False)]
    assert left_out == []


def test_empty_halves_and_single_roots_are_no_pair():
    assert not is_pti_pair(reader({6: {}, 7: {}}), 6)
    assert not is_pti_pair(reader({6: {0: 9 << 12 | TABLE}}), 6)


def test_vcpus_without_readable_tables_are_told_and_none_at_all_is_an_error():
    read = reader(PTI)
    spaces, left_out = address_spaces(read, [vcpu(0, 0xC000), vcpu(1, 0, efer=0), vcpu(2, 0xFFFF_F000)])
    assert [space.root for space in spaces] == [12]
    assert (
        left_out[0] == "vCPU 1: not in 64-bit mode"
        and "vCPU 2: its root 0xfffff cannot be read" in left_out[1]
    )
    with pytest.raises(UsageError, match="no vCPU's page tables can be read: vCPU 0: not in 64-bit mode"):
        address_spaces(read, [vcpu(0, 0, efer=0)])


def test_memory_of_no_process_is_an_error():
    with pytest.raises(UsageError, match="is PID 0 the VMM"):
        GuestMemory(Process(0, -1, Path("/proc/0")), ())


def test_a_huge_page_at_any_level_ends_the_walk():
    pages = [Page(VA, 7), Page(VA + (1 << 21), 512, 2), Page(VA + (1 << 30), 1 << 18, 3)]
    tree = build_tree(pages, iter(range(1 << 20, 1 << 21)))
    assert len(read_guest_tables(reader(memory_of(tree)), 1 << 20, 4).tree) == len(tree) == 4


# Processes of a guest's Linux, found in its memory.

SOME = [
    (1, "init", None),
    (-2, "kthreadd", None),
    (7, "db \udcff", None),
    (9, "worker", 2),
    (4194303, "x", None),
]


@pytest.mark.parametrize("levels", [4, 5])
@pytest.mark.parametrize("seen", [None, 0, 2])
@pytest.mark.parametrize("huge", [False, True])
def test_processes_with_memory_of_their_own_are_found_from_any_root(levels, seen, huge):
    memory = Memory(levels)
    kernel, roots = linux(memory, SOME, huge=huge)
    found = tasks_of(find_kernel(memory.read, kernel if seen is None else roots[seen], levels))
    assert found.whole
    assert [(task.pid, task.name, task.root) for task in found.tasks] == [
        (1, "init", roots[0]), (7, "db \udcff", roots[2]), (4194303, "x", roots[4]),
    ]  # fmt: skip


def test_without_btf_or_a_first_task_there_is_no_kernel():
    memory = Memory()
    assert find_kernel(memory.read, memory.frame(), 4) is None
    assert find_kernel(memory.read, 5, 4) is None
    without = {"list_head": TYPES["list_head"], "mm_struct": TYPES["mm_struct"]}
    kernel, _ = linux(memory, SOME, without)
    assert find_kernel(memory.read, kernel, 4) is None


def tasks_in(memory, root):
    """Guest-physical addresses of the tasks that `linux` made."""
    kernel = find_kernel(memory.read, root, 4)
    at, found = kernel.first, []
    for _ in range(len(SOME)):
        at = kernel.number(at + TASKS) - TASKS
        found.append(kernel.physical(at))
    return kernel, found


@pytest.mark.parametrize("to", [0, 8, 0xDEAD_BEEF_0000_0000, DIRECT, (1 << 64) - 1])
def test_a_list_that_leads_nowhere_is_cut_short_and_said(to):
    memory = Memory()
    kernel, tasks = tasks_in(memory, linux(memory, SOME)[0])
    memory.word(tasks[2] + TASKS, to)
    found = tasks_of(kernel)
    assert not found.whole and [task.pid for task in found.tasks] == [1, 7]


def test_a_list_that_runs_in_a_circle_ends():
    memory = Memory()
    kernel, tasks = tasks_in(memory, linux(memory, SOME)[0])
    (second,) = struct.unpack("<Q", memory.read(tasks[0] + TASKS, 8))
    memory.word(tasks[3] + TASKS, second)
    assert not tasks_of(kernel).whole


def test_a_list_without_an_end_is_read_once_to_a_limit(monkeypatch):
    memory = Memory()
    kernel, _ = tasks_in(memory, linux(memory, SOME)[0])
    monkeypatch.setattr(survey_guest, "MOST_TASKS", 3)
    steps = []
    monkeypatch.setattr(survey_guest, "task_at", lambda _, task: steps.append(task))
    assert not tasks_of(kernel).whole and len(steps) == 3


def test_tables_that_a_list_leads_through_are_not_all_kept(monkeypatch):
    memory = Memory()
    kernel, _ = tasks_in(memory, linux(memory, SOME)[0])
    monkeypatch.setattr(survey_guest, "GUEST_KERNEL_MOST_TABLES", 2)
    assert tasks_of(kernel).whole and len(kernel.tables) <= 2


def test_an_image_full_of_headers_of_btf_is_searched_for_some_time_only(monkeypatch):
    whole = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, 9, 0, MOST_BYTES - 100)
    read = []
    monkeypatch.setattr(survey_guest, "read_btf", lambda blob: read.append(len(blob)))
    for content in (whole * (MOST_BYTES // 12), struct.pack("<HBB", 0xEB9F, 1, 0) * (1 << 20)):
        list(btfs([(0, content)]))
    assert 0 < sum(read) <= survey_guest.MOST_IMAGE and len(read) <= survey_guest.MOST_TRIED


def test_a_process_that_ends_meanwhile_is_left_out():
    memory = Memory()
    kernel, tasks = tasks_in(memory, linux(memory, SOME)[0])
    memory.word(tasks[2] + MM, 0)
    assert [task.pid for task in tasks_of(kernel).tasks] == [1, 9, 4194303]


@pytest.mark.parametrize("at", [LEADER, TASKS, COMM])
def test_what_only_looks_like_the_first_task_is_none(at):
    memory = Memory()
    root, _ = linux(memory, SOME)
    kernel = find_kernel(memory.read, root, 4)
    memory.word(kernel.physical(kernel.first) + at, DIRECT)
    assert find_kernel(memory.read, root, 4) is None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_garbage_in_memory_ends_in_bounded_time_without_an_error(data):
    memory = Memory()
    root, _ = linux(memory, SOME)
    frames = sorted(memory.pages)
    for _ in range(data.draw(st.integers(1, 8))):
        frame, at = data.draw(st.sampled_from(frames)), data.draw(st.integers(0, 511)) * 8
        memory.word(
            frame * PAGE + at, data.draw(st.sampled_from([0, root << 12 | 0x67, DIRECT, (1 << 64) - 1]))
        )
    if kernel := find_kernel(memory.read, root, 4):
        tasks_of(kernel)


# What a survey of a guest makes of its memory, of the host's nodes, and of the CR3s seen.

MIB = 1 << 20


@pytest.fixture
def guest():
    """(Memory, kernel's root, [root of a process with 600 pages of 4 KiB, of one with 2 MiB and a page])."""
    memory = Memory()
    kernel, roots = linux(memory, [(1, "init", None), (7, "db", None)])
    for k in range(600):
        memory.map(roots[0], 0x7000_0000_0000 + k * PAGE, 0x9000 + k, flags=0x67)
    memory.map(roots[1], 0x4000_0000, 0x200, level=2, flags=0x67)
    memory.map(roots[1], 0x7000_0000_0000, 0x9000, flags=0x67)
    return memory, kernel, roots


def nodes(frames):
    """Odd frames are on node 1."""
    return np.asarray(frames) % 2


def vcpus(*cr3s, efer=0xD01):
    return [Registers(k, 100 + k, 0x80050033, cr3, 0x6A0, efer) for k, cr3 in enumerate(cr3s)]


def spaces(memory, *roots):
    return address_spaces(memory.read, vcpus(*(root * PAGE for root in roots)))[0]


def test_processes_of_the_kernels_list_with_their_tables_by_the_hosts_nodes(guest):
    memory, kernel, roots = guest
    found, whole = by_kernel(memory.read, spaces(memory, kernel), Host(nodes, {0: 0.25, 1: 0.75}))
    one = {each.name: each for each in found}
    assert whole and set(one) == {"init", "db"}
    assert (one["init"].pid, one["init"].cr3) == (1, roots[0] * PAGE)
    assert sum(one["init"].leaf.values()) == 2 and sum(one["init"].upper.values()) == 3
    assert one["init"].mapped_bytes == 600 * PAGE and one["init"].huge_bytes == 0
    assert one["db"].mapped_bytes == 2 * MIB + PAGE and one["db"].huge_bytes == 2 * MIB
    for each in found:
        zero, all_of_them = each.leaf.get(0, 0), sum(each.leaf.values())
        assert each.remote_share == pytest.approx(
            1 - (0.25 * zero + 0.75 * (all_of_them - zero)) / all_of_them
        )
    assert [each.remote_bytes for each in found] == sorted(
        (each.remote_bytes for each in found), reverse=True
    )


def test_processes_that_all_claim_many_tables_are_counted_to_a_limit_for_all_of_them(guest, monkeypatch):
    memory, kernel, _ = guest
    monkeypatch.setattr(survey_guest, "MOST_TABLES", 4)
    found, _ = by_kernel(memory.read, spaces(memory, kernel), Host(nodes, {0: 1.0}))
    assert sum(each.tables for each in found) <= 4 + len(found)
    assert sum(each.unread for each in found) > 0


def test_roots_that_map_no_kernel_are_passed_over(guest):
    memory, kernel, _ = guest
    empty = memory.frame()
    found, _ = by_kernel(
        memory.read, [Space(empty, 4, (0,), False), *spaces(memory, kernel)], Host(nodes, {})
    )
    assert len(found) == 2 and all(one.remote_share is None for one in found)
    assert by_kernel(memory.read, [Space(empty, 4, (0,), False)], Host(nodes, {})) == (None, False)


def test_cr3s_are_counted_once_a_sample_and_those_of_the_kernel_alone_left_out(guest):
    memory, kernel, roots = guest
    a, b = (root * PAGE for root in roots)
    samples = [vcpus(a, a), vcpus(b | 0x18, kernel * PAGE), vcpus(a, efer=0), vcpus(a)]
    found = by_cr3(memory.read, samples, Host(nodes, {0: 1.0}))
    assert {one.cr3: one.seen for one in found} == {a: 2, b: 1}
    assert all(one.pid is None and one.name == "" for one in found)


def said(guest, top, socket=None):
    sections = list(answer(guest, top, socket).view())
    (table,) = (one for one in sections if one.title.startswith("Page tables"))
    return table, [str(line) for one in sections for line in one.lines]


def test_people_are_told_what_was_found_how_and_what_to_type(guest):
    memory, kernel, _ = guest
    found, _ = by_kernel(memory.read, spaces(memory, kernel), Host(nodes, {0: 0.5, 1: 0.5}))
    section, lines = said(GuestSurvey(42, found, True, 1, ("a note",)), 1)
    assert section.title == "Page tables of the guest of PID 42, by its kernel's list"
    assert [row["guest PID"] for row in section.rows] == [str(found[0].pid)]
    assert section.lines[:2] == ["a note", "1 more: --top 2"]
    look = f" dump vm 42 --guest-tables --cr3 {found[0].cr3:#x} -o 42.capture"
    assert lines[-1].endswith(look) and "sudo " in lines[-1]
    other, lines = said(GuestSurvey(42, found, False, 30), 9, "/run/q")
    assert other.title.endswith("by CR3s in 30 samples") and "seen" in other.rows[0]
    assert any(f"--guest-tables --qmp /run/q --cr3 {found[0].cr3:#x}" in line for line in lines)
    assert said(GuestSurvey(42, (), False, 30), 9)[0].rows == []


@pytest.mark.parametrize("by_list", [True, False])
def test_it_is_drawn_and_written_as_json_and_as_a_table(guest, by_list):
    memory, kernel, roots = guest
    host = Host(nodes, {1: 1.0})
    if by_list:
        found, _ = by_kernel(memory.read, spaces(memory, kernel), host)
    else:
        found = by_cr3(memory.read, [vcpus(roots[0] * PAGE)], host)
    made = answer(GuestSurvey(42, found, by_list, 1), 20)
    rows = made.json()["found"]
    assert [row["cr3"] for row in rows] == [f"{one.cr3:#x}" for one in found] == made.table["cr3"].tolist()
    figure = plots.survey(made.plots["survey"]())
    words = " ".join(text.get_text() for text in figure.axes[0].texts + figure.axes[0].get_yticklabels())
    assert (f"init {found[0].pid}" if by_list else f"{roots[0] * PAGE:#x}") in words or "db 7" in words


# Tables of a guest counted level by level, beside those that are read whole.


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from([4, 5]))
def test_counts_are_those_of_the_tables(data, levels):
    pages = [page for page in data.draw(trees(levels)) if page.va < 1 << (11 + 9 * levels)]
    tree = build_tree(pages, iter(range(1 << 20, 1 << 21)), levels=levels)
    found = count_tables(reader(memory_of(tree)), 1 << 20, levels)
    for level in range(1, levels + 1):
        rows = tree.level == level
        assert found.frames[level].tolist() == sorted(tree.frame[rows].tolist())
        assert found.mapped[level] == np.count_nonzero(snapshot.leaf(tree.entries[rows], level))
    bytes_mapped = [found.mapped[level] * (4096 << 9 * (level - 1)) for level in (1, 2, 3)]
    assert found.mapped_bytes == sum(bytes_mapped) and found.huge_bytes == sum(bytes_mapped[1:])
    assert found.unread == 0


@settings(max_examples=200, deadline=None)
@given(hostile_memory(), st.sampled_from([4, 5]), st.sampled_from([1, 3, 100]))
def test_hostile_tables_are_read_at_most_once_a_level(memory, levels, limit):
    reads, whole = count(), reader(memory)

    def read(gpa, n):
        next(reads)
        return whole(gpa, n)

    found = count_tables(read, min(memory), levels, limit)
    assert next(reads) <= 1 + (levels - 1) * limit
    assert all(len(set(frames.tolist())) == len(frames) <= limit for frames in found.frames.values())
    assert {frame for frames in found.frames.values() for frame in frames.tolist()} <= set(memory)


def test_the_kernels_half_is_not_counted_and_what_lies_in_no_memory_is_said():
    memory = {1: {0: 2 << 12 | 0x67, 1: 99 << 12 | 0x67, 256: 3 << 12 | 0x67}, 2: {}, 3: {}}
    found = count_tables(reader(memory), 1, 4)
    assert found.frames[3].tolist() == [2] and found.unread == 1
    assert count_tables(reader(memory), 99, 4) is None


def test_tables_full_of_pointers_take_memory_for_the_most_that_are_read(monkeypatch):
    memory = {1: {k: (10 + k) << 12 | 0x67 for k in range(200)}}
    memory |= {10 + k: {at: (1000 + 512 * k + at) << 12 | 0x67 for at in range(512)} for k in range(200)}
    merged = []

    def at_most(limit, frames):
        merged.append(len(frames))
        return whole(limit, frames)

    whole = survey_guest.at_most
    monkeypatch.setattr(survey_guest, "at_most", at_most)
    monkeypatch.setattr(survey_guest, "AT_ONCE", 8)
    monkeypatch.setattr(survey_guest, "MOST_POINTERS", 10_000)
    found = count_tables(reader(memory), 1, 4, limit=300)
    assert max(merged) <= 10_000 + 8 * 512
    assert len(found.frames[3]) == 200 and not len(found.frames[2])
    assert found.unread == 200 * 512


@pytest.mark.parametrize("tables", [1023, 1024, 1025])
def test_more_tables_than_fit_at_once(tables):
    memory = {1: {0: 2 << 12 | 0x67}, 2: {k: (10 + k) << 12 | 0x67 for k in range(3)}}
    leaves = [1000 + k for k in range(tables)]
    for k in range(3):
        memory[10 + k] = {at: frame << 12 | 0x67 for at, frame in enumerate(leaves[512 * k : 512 * (k + 1)])}
    memory |= {frame: {3: 0x5067, 4: 0x6067} for frame in leaves}
    found = count_tables(reader(memory), 1, 4)
    assert found.frames[1].tolist() == leaves and found.mapped[1] == 2 * tables


# BTF as the kernel's own tools print it, and BTF that is damaged.

OWN = Path("/sys/kernel/btf/vmlinux")
SMALL_TYPES = {
    "list": [("next", 0), ("prev", 64)],
    "task": [("", 64, [("pid", 32), ("", 64, [("comm", 8)])])],
}


def test_members_of_unnamed_structs_count_from_the_outermost():
    types = read_btf(btf(SMALL_TYPES))
    assert types.offset("list", "prev") == 8
    assert (
        types.offset("task", "pid") == (64 + 32) // 8 and types.offset("task", "comm") == (64 + 64 + 8) // 8
    )


@pytest.mark.parametrize(("structure", "member"), [("task", "mm"), ("mm", "pgd"), ("list", ""), ("", "next")])
def test_what_is_not_there_is_said(structure, member):
    with pytest.raises(NoBtf, match=f"no {structure}.{member}"):
        read_btf(btf(SMALL_TYPES)).offset(structure, member)


def test_a_member_inside_a_byte_has_no_offset():
    with pytest.raises(NoBtf):
        read_btf(btf({"task": [("bit", 3)]})).offset("task", "bit")


def test_longer_headers_of_later_kernels_are_read():
    blob = btf(SMALL_TYPES)
    longer = header(blob, extra=8) + bytes(8) + blob[24:]
    assert read_btf(longer).offset("list", "prev") == 8


def one_struct(members, *others, name=b"task\0"):
    """BTF of a struct called `name` with these (name, type) as members, and of structs without a name."""
    strings = b"\0" + name
    body = b""
    for k, rows in enumerate([members, *others]):
        body += struct.pack("<III", k == 0, 4 << 24 | len(rows), 8)
        body += b"".join(struct.pack("<III", *row, 0) for row in rows)
    return struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(body), len(body), len(strings)) + body + strings


@pytest.mark.parametrize("deep", [300, 5000])
def test_structs_within_structs_without_end_are_no_btf(deep):
    blob = one_struct([(0, 2)], *([(0, k + 3)] for k in range(deep)))
    with pytest.raises(NoBtf):
        read_btf(blob).offset("task", "pid")


def test_a_name_without_an_end_is_not_copied_for_each_of_its_members():
    blob = one_struct([(1 + k, 9) for k in range(60_000)], name=b"task\0" + b"x" * (20 << 20))
    began = time.process_time()
    with pytest.raises(NoBtf):
        read_btf(blob).offset("task", "pid")
    assert time.process_time() - began < 5, "copying takes minutes"


@given(st.data())
def test_damaged_btf_is_refused_or_read_in_bounded_time(data):
    blob = bytearray(btf(SMALL_TYPES))
    for _ in range(data.draw(st.integers(1, 4))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(blob)))
    try:
        types = read_btf(bytes(blob[:cut]))
        for structure in SMALL_TYPES:
            types.offset(structure, "comm")
    except NoBtf:
        pass


@pytest.mark.skipif(not OWN.exists(), reason="this kernel has no BTF: its own is not compared")
@pytest.mark.parametrize("name", ["task_struct", "list_head", "mm_struct"])
def test_offsets_are_those_that_bpftool_prints(name):
    tool = shutil.which("bpftool", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if tool is None:
        pytest.skip("no bpftool: the kernel's own BTF is not compared")
    text = subprocess.run(
        [tool, "btf", "dump", "file", OWN], capture_output=True, text=True, check=True
    ).stdout
    block = re.search(rf"^\[\d+\] STRUCT '{name}' .*\n((?:\t.*\n)*)", text, re.M)[1]
    members = re.findall(r"'(\w+)' type_id=\d+ bits_offset=(\d+)(?! bitfield_size)$", block, re.M)
    named = [(member, int(bits)) for member, bits in members if member != "(anon)"]
    types = read_btf(OWN.read_bytes())
    assert [types.offset(name, member) * 8 for member, _ in named] == [bits for _, bits in named]


# The QMP client against whatever may listen on a socket.

GREETING = b'{"QMP": {}}\r\n{"return": {}}\r\n'


@contextmanager
def listening(tmp_path, said):
    """Path of a socket on which a thread says `said` to whoever connects, and hears them out."""
    path = tmp_path / "qmp"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve():
            there, _ = server.accept()
            with there:
                there.sendall(said)
                there.shutdown(socket.SHUT_WR)
                while there.recv(4096):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield path
        thread.join(10)


@pytest.mark.parametrize(
    "said, why",
    [
        (b"", "not a QMP answer: b''"),
        (b"SSH-2.0-OpenSSH\r\n", "not a QMP answer"),
        (b"[" * 100_000, "not a QMP answer"),
        (b"[1, 2]\n", "not a QMP answer"),
        (b'{"hello": 1}\n', "not a QMP socket"),
        (b'{"QMP": {}}\n{"error": {"desc": "no"}}\n', "qmp_capabilities: no"),
        (b'{"QMP": {}}\n{"error": 7}\n', "qmp_capabilities: 7"),
        (b'{"QMP": {}}\n\xff\xfe\n', "not a QMP answer"),
    ],
)
def test_what_is_no_qmp_is_told_in_one_line(tmp_path, said, why):
    with listening(tmp_path, said) as path, pytest.raises(UsageError, match=why):
        Qmp(path)


def test_no_socket_and_silence_are_told(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="cannot talk to QEMU: No such file"):
        Qmp(tmp_path / "none")
    monkeypatch.setattr(client, "TIMEOUT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "mute"))
        server.listen()
        with pytest.raises(UsageError, match="QEMU does not answer"):
            Qmp(tmp_path / "mute")


CPU = b'{"return": [{"cpu-index": 0, "thread-id": 9}]}\n'


@pytest.mark.parametrize(
    "said, why",
    [
        (b'{"return": {}}\n', "names no vCPUs"),
        (b'{"return": []}\n', "names no vCPUs"),
        (b'{"return": [3]}\n', "3 is no vCPU"),
        (b'{"return": [{"cpu-index": "x", "thread-id": 9}]}\n', "is no vCPU"),
        (CPU + b'{"return": "PC=0"}\n', "shows no CR0, CR3, CR4 and EFER"),
        (CPU + b'{"return": 5}\n', "shows no CR0"),
        (CPU, "not a QMP answer"),
    ],
)
def test_answers_without_registers_are_told(tmp_path, said, why):
    with listening(tmp_path, GREETING + said) as path, Qmp(path) as qmp, pytest.raises(UsageError, match=why):
        registers(qmp)


def test_events_between_answers_are_skipped(tmp_path):
    text = b'{"return": "CR0=80050033 CR2=0 CR3=0000000006000 CR4=00001020\\r\\nEFER=0000000000000d01"}\n'
    event = b'{"event": "RESUME", "timestamp": {}}\n'
    with listening(tmp_path, GREETING + event + CPU + event + text) as path, Qmp(path) as qmp:
        (found,) = registers(qmp)
    assert (found.tid, found.root, found.levels) == (9, 6, 5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        'FlatView #0\\n AS \\"I/O\\"\\n  0000000000000000-0000000000000fff (prio 0, ram): x\\n',
        'FlatView #0\\n AS \\"memory\\"\\n  0000000000000000-0000000000000fff (prio 0, i/o): x\\n',
    ],
)
def test_a_monitor_that_shows_no_memory_is_told(tmp_path, text):
    said = GREETING + f'{{"return": "{text}"}}\n'.encode()
    with (
        listening(tmp_path, said) as path,
        Qmp(path) as qmp,
        pytest.raises(UsageError, match="no guest memory"),
    ):
        slots_of(qmp)
