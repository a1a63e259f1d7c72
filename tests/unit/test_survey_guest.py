"""What a survey of a guest makes of its memory, of the host's nodes, and of the CR3s seen."""

import numpy as np
import pytest

from kernel_memory import PAGE, Memory, linux
from ptanalyze.capture.live import survey_guest
from ptanalyze.capture.live.guests import Space, address_spaces
from ptanalyze.capture.live.qmp import Registers
from ptanalyze.capture.live.survey_guest import GuestSurvey, Host, by_cr3, by_kernel
from ptanalyze.cli.survey import survey_guest_answer as answer
from ptanalyze.show import plots

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


def registers(*cr3s, efer=0xD01):
    return [Registers(k, 100 + k, 0x80050033, cr3, 0x6A0, efer) for k, cr3 in enumerate(cr3s)]


def spaces(memory, *roots):
    return address_spaces(memory.read, registers(*(root * PAGE for root in roots)))[0]


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
    samples = [registers(a, a), registers(b | 0x18, kernel * PAGE), registers(a, efer=0), registers(a)]
    found = by_cr3(memory.read, samples, Host(nodes, {0: 1.0}))
    assert {one.cr3: one.seen for one in found} == {a: 2, b: 1}
    assert all(one.pid is None and one.name == "" for one in found)


def said(guest, top, socket=None):
    (section,) = answer(guest, top, socket).view()
    return section


def test_people_are_told_what_was_found_how_and_what_to_type(guest):
    memory, kernel, _ = guest
    found, _ = by_kernel(memory.read, spaces(memory, kernel), Host(nodes, {0: 0.5, 1: 0.5}))
    section = said(GuestSurvey(42, found, True, 1, ("a note",)), 1)
    assert section.title == "Page tables of the guest of PID 42, by its kernel's list"
    assert [row["guest PID"] for row in section.rows] == [str(found[0].pid)]
    assert section.lines[:2] == ["a note", "1 more; --top 2 prints all"]
    look = f"look closer: ptanalyze dump vm 42 --guest-tables --cr3 {found[0].cr3:#x} -o 42.capture"
    assert look in section.lines
    other = said(GuestSurvey(42, found, False, 30), 9, "/run/q")
    assert other.title.endswith("by CR3s in 30 samples") and "seen" in other.rows[0]
    assert any(f"--guest-tables --qmp /run/q --cr3 {found[0].cr3:#x}" in line for line in other.lines)
    assert said(GuestSurvey(42, (), False, 30), 9).rows == []


@pytest.mark.parametrize("by_list", [True, False])
def test_it_is_drawn_and_written_as_json_and_as_a_table(guest, by_list):
    memory, kernel, roots = guest
    host = Host(nodes, {1: 1.0})
    if by_list:
        found, _ = by_kernel(memory.read, spaces(memory, kernel), host)
    else:
        found = by_cr3(memory.read, [registers(roots[0] * PAGE)], host)
    made = answer(GuestSurvey(42, found, by_list, 1), 20)
    rows = made.json()["found"]
    assert [row["cr3"] for row in rows] == [f"{one.cr3:#x}" for one in found] == made.table["cr3"].tolist()
    figure = plots.survey(made.plots["survey"]())
    words = " ".join(text.get_text() for text in figure.axes[0].texts + figure.axes[0].get_yticklabels())
    assert (f"init {found[0].pid}" if by_list else f"{roots[0] * PAGE:#x}") in words or "db 7" in words
