"""Checks and description of VM captures: what fits passes, every kind of damage has its finding."""

from dataclasses import replace

import numpy as np
import pytest
from test_vm_join import VA, host_dump, two_roots, write_both

from ptanalyze.capture.check import FAILED, NOTE, PARTIAL, check_capture
from ptanalyze.capture.check.vm import check_host, check_joined
from ptanalyze.capture.describe import describe
from ptanalyze.capture.vm.join import join, put_together
from ptanalyze.cli import run
from ptanalyze.core.errors import UsageError
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.manifest import seal
from ptanalyze.formats.vm import Root, Slot, Vcpu
from strategies import PAGE, Page, build_snapshot, build_tree, frames_on


def wrong(findings):
    return {finding.name: (finding.wrong, finding.verdict) for finding in findings if finding.wrong}


@pytest.fixture
def snapshot():
    return build_snapshot([(VA + k * PAGE, 900 + k) for k in range(40)], [], table_nodes=(0, 1))


@pytest.fixture
def capture(tmp_path, snapshot):
    join(*write_both(tmp_path, snapshot), tmp_path / "vm")
    return open_capture(tmp_path / "vm")


def together(snapshot, host):
    return put_together(host, replace(snapshot, host=None), "vm.json")


def test_a_joined_capture_passes_every_check(capture):
    assert wrong(check_capture(capture)) == {}
    assert {"vm: tables in ept", "vm: pages in ept", "ept: inside slots"} <= {
        f.name for f in check_capture(capture)
    }


def test_a_hosts_dump_passes_every_check_of_its_own(tmp_path, snapshot):
    host, _ = write_both(tmp_path, snapshot)
    seal(host, "vm-host", {})
    capture = open_capture(host)
    assert wrong(check_capture(capture)) == {}
    with pytest.raises(UsageError, match="join it with its guest's capture"):
        _ = capture.snapshot


def test_two_roots_may_map_the_same_addresses(snapshot):
    other = build_tree([Page(900 << 12, 5)], frames_on([1], 1 << 23), encoding="ept")
    roots = tuple(
        Root(frame=int(tree.frame[0]), kind="tdp_mmu", table=at, smm=at > 0)
        for at, tree in ((0, snapshot.host), (len(snapshot.host), other))
    )
    host = host_dump(snapshot, roots=roots)
    assert wrong(check_host(replace(host, tree=two_roots(snapshot, other)))) == {}


def test_a_page_that_the_host_does_not_map_is_a_note_a_table_makes_the_capture_partial(snapshot):
    joined = together(snapshot, host_dump(snapshot))
    host, leaf = joined.host, np.flatnonzero(snapshot.host.level == 1)
    assert len(leaf) == 2
    snapshot.host.entries[leaf[0], 900 & 511] = 0
    assert wrong(check_joined(joined.snapshot, host)) == {"vm: pages in ept": (1, NOTE)}
    snapshot.host.entries[leaf[1], 1] = 0
    found = wrong(check_joined(joined.snapshot, host))
    assert found["vm: tables in ept"] == (1, PARTIAL) and found["gpt: nodes agree"] == (1, FAILED)


def test_a_leaf_outside_every_slot_is_found(snapshot):
    slots = (Slot(gpa=0, bytes=930 << 12, hva=0), Slot(gpa=1 << 32, bytes=1 << 32, hva=0))
    assert wrong(check_host(host_dump(snapshot, slots=slots)))["ept: inside slots"] == (10, PARTIAL)
    assert wrong(check_host(host_dump(snapshot, slots=())))["vm: slots known"] == (1, PARTIAL)


def test_roots_left_out_and_vcpus_without_a_node_are_noted(snapshot):
    root = int(snapshot.host.frame[0])
    roots = (Root(frame=root, kind="tdp_mmu", table=0), Root(frame=9, kind="shadow", why="PAE guest"))
    found = list(check_host(host_dump(snapshot, roots=roots, vcpus=(Vcpu(tid=1),))))
    assert wrong(found) == {"ept: roots": (1, NOTE), "vm: vCPUs placed": (1, NOTE)}
    assert next(f for f in found if f.name == "ept: roots").reason == "are not here: PAE guest"


def test_shadow_tables_alone_and_a_moving_vm_are_partial(snapshot):
    roots = (Root(frame=int(snapshot.host.frame[0]), kind="shadow", table=0),)
    facts = {"quiescence": {"before": {"seq": 1}, "after": {"seq": 2}, "quiet": False}}
    found = wrong(check_host(host_dump(snapshot, roots=roots, facts=facts)))
    assert found == {"ept: guest-physical": (1, PARTIAL), "dump: quiet": (1, PARTIAL)}


def test_info_says_what_host_and_guest_have(capture, tmp_path, capsys):
    sections = describe(capture)
    assert sections["VM"] == {
        "memory slots": 1, "memory in slots (MiB)": 1 << 24, "vCPUs": 2, "vCPUs on node 0": 1,
        "vCPUs on node 1": 1, "roots: tdp_mmu": "1, 1 of them here",
    }  # fmt: skip
    assert sections["host and guest"]["guest tables: mapped"] == 4
    assert sections["host and guest"]["guest sees NUMA"] == "no"
    seal(tmp_path / "host", "vm-host", {"pid": 7})
    assert run(["info", str(tmp_path / "host")]) == 0
    assert "ePT" in capsys.readouterr().out
