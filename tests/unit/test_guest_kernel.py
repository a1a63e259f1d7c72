"""Processes of a guest's Linux, found in its memory."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_memory import COMM, DIRECT, LEADER, MM, PAGE, TASKS, TYPES, Memory, linux
from ptanalyze.capture.live import survey_guest
from ptanalyze.capture.live.survey_guest import btfs, find_kernel, tasks_of
from ptanalyze.formats.btf import MOST_BYTES

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
