"""`check` and whatever else reads a capture notice what is damaged."""

import json
import os
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from test_vm import host_dump, write_both

from ptanalyze import classify
from ptanalyze.capture.check import FAILED, NOTE, PARTIAL, Check, check_capture, check_trace, exit_code
from ptanalyze.capture.check.tables import check_tables, check_tree
from ptanalyze.capture.check.vm import check_host, check_joined
from ptanalyze.capture.vm.join import join, put_together
from ptanalyze.cli import run
from ptanalyze.core.errors import CaptureError, UsageError, bundled
from ptanalyze.core.snapshot import TORN
from ptanalyze.core.trace import Event
from ptanalyze.formats import record as records
from ptanalyze.formats.capture import load, open_capture
from ptanalyze.formats.record import MANIFEST, damaged_files, manifest_crc, new_capture, read_manifest, seal
from ptanalyze.formats.snapshot import Root, Slot, Vcpu
from ptanalyze.kernels.jit import load_code, save_code
from ptanalyze_formats.redact import redact
from strategies import PAGE, REGION, Page, build_snapshot, build_trace

# What is damaged in a capture is noticed by whatever reads it, not by `check` alone.


@pytest.fixture
def copy(tmp_path):
    cache = shutil.ignore_patterns(".cache")
    return lambda name: shutil.copytree(bundled("samples") / name, tmp_path / "c", ignore=cache)


def flip(path, at, bit=1):
    content = bytearray(path.read_bytes())
    content[at] ^= bit
    path.write_bytes(content)


@pytest.mark.parametrize("file", ["gpt.entries", "gpt.tables", "maps", "snapshot.json", "trace.ptt"])
def test_a_flipped_bit_is_refused_by_what_reads_the_file(copy, file, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    capture, weight = copy("sysbench-memory"), "walks" if file == "trace.ptt" else "leaf"
    assert len(classify(capture, weight=weight))
    flip(capture / file, (capture / file).stat().st_size // 2)
    with pytest.raises(CaptureError, match=file):
        classify(capture, weight=weight)


@pytest.mark.parametrize("command", ["classify", "check", "redact", "report", "diff"])
def test_a_capture_of_another_user_is_refused_in_our_words(copy, command, capsys, monkeypatch):
    capture = copy("sysbench-memory")
    monkeypatch.setattr(os, "access", lambda path, *_, **__: str(path) != str(capture))

    def refused(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("ptanalyze.core.safe_files.read_inside", refused)
    assert run([command, *[str(capture)] * (1 + (command == "diff"))]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ptanalyze: {capture}: ") and "Error" not in line


def test_a_damaged_capture_is_not_sealed_anew_without_its_secrets(copy, tmp_path):
    capture = copy("sysbench-memory")
    flip(capture / "gpt.entries", (capture / "gpt.entries").stat().st_size - 9)
    with pytest.raises(CaptureError, match=r"gpt\.entries.*damaged"):
        redact(load(capture), tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_tables_that_nobody_sealed_are_no_part_of_a_capture(copy):
    capture = copy("sysbench-memory")
    whole = classify(capture)
    for name in ("ept.tables", "ept.entries.xz"):
        shutil.copy(bundled("samples") / "vm-numa-visible" / name, capture)
    assert classify(capture).equals(whole) and load(capture).snapshot.native


def test_no_flipped_bit_of_a_cache_changes_what_is_read_from_it(tmp_path):
    tmp_path.chmod(0o700)
    path, noticed = tmp_path / "loop.ptcode", 0
    save_code(path, whole := ("machine code", b"\x90" * 100))
    for at in range(0, path.stat().st_size, 3):
        flip(path, at, 1 << at % 8)
        found = load_code(path)
        noticed += found is None
        assert found in (None, whole), at
        flip(path, at, 1 << at % 8)
    assert load_code(path) == whole and noticed > 50


@pytest.fixture
def sealed(tmp_path):
    (tmp_path / "gpt.entries").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "maps").write_bytes(b"")
    seal(tmp_path, "process", {"command": "true"})
    return tmp_path


def test_a_truncated_and_a_missing_file_are_found(sealed):
    os.truncate(sealed / "gpt.entries", 17)
    (sealed / "maps").unlink()
    found = {"gpt.entries": "17 bytes, sealed with 10240", "maps": "missing"}
    assert dict(damaged_files(sealed, read_manifest(sealed))) == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "version = 99: this release reads version 1"),
        ({"format": "tarball"}, "format = tarball"),
        ({"kind": "core"}, "kind = core"),
        ({"files": {"../passwd": {"bytes": 1, "crc32": 0}}}, "must stay inside"),
        ({"surprise": 1}, "surprise: no such field"),
        ({"files": {"maps": {"bytes": "many", "crc32": 0}}}, r"files.*\.bytes: Expected `int`"),
    ],
)
def test_a_foreign_or_hostile_manifest_is_named_by_field_and_value(sealed, change, message):
    manifest = json.loads((sealed / MANIFEST).read_text()) | change
    manifest["crc32"] = manifest_crc(json.dumps(manifest).encode())
    (sealed / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CaptureError, match=message):
        read_manifest(sealed)


def test_every_flipped_bit_of_a_manifest_is_noticed(sealed):
    seal(sealed, "process", {"command": ["caf\u00e9", "\n"], "seconds": 1.5e300, "interrupted": False})
    whole = (sealed / MANIFEST).read_bytes()
    for bit in range(8 * len(whole)):
        text = bytearray(whole)
        text[bit // 8] ^= 1 << bit % 8
        (sealed / MANIFEST).write_bytes(text)
        with pytest.raises(CaptureError, match=re.escape(f"{sealed / MANIFEST}: ")):
            read_manifest(sealed)
    (sealed / MANIFEST).write_bytes(whole)
    assert read_manifest(sealed).kind == "process"


def test_a_new_capture_appears_whole_and_private(tmp_path):
    with new_capture(tmp_path / "a") as inside:
        (inside / "maps").write_bytes(b"")
        seal(inside, "process", {})
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    assert list(damaged_files(tmp_path / "a", read_manifest(tmp_path / "a"))) == []


def test_an_interrupted_capture_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), new_capture(tmp_path / "a"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_capture_is_never_overwritten(sealed):
    with pytest.raises(UsageError, match="never overwritten"), new_capture(sealed):
        pass
    assert read_manifest(sealed).kind == "process"


def test_a_link_to_nothing_is_in_the_way_before_anything_runs(tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "gone")
    with pytest.raises(UsageError, match="out: exists already"):
        records.must_be_new(tmp_path / "out")


VA = 0x7F00_0000_0000


def wrong(findings):
    return {finding.name: finding.wrong for finding in findings if finding.wrong}


@pytest.fixture
def snapshot():
    return build_snapshot([(VA + k * PAGE, 900 + k) for k in range(600)] + [Page(VA + 8 * REGION, 1024, 2)])


@pytest.mark.parametrize("host", [None, []])
def test_a_whole_tree_passes_every_check(host):
    pages = [(VA, 9), (VA + REGION, 10), Page(VA + 8 * REGION, 1024, 2)]
    assert wrong(check_tables(build_snapshot(pages, host))) == {}


def test_an_entry_that_points_elsewhere_is_a_broken_link(snapshot):
    upper = int(np.flatnonzero(snapshot.guest.level == 2)[0])
    snapshot.guest.entries[upper, np.flatnonzero(snapshot.guest.entries[upper])[0]] += np.uint64(1 << 12)
    assert wrong(check_tables(snapshot)) == {"gpt: links": 1}


def test_a_table_that_was_not_dumped_leaves_the_tree_open(snapshot):
    snapshot.guest.entries[int(np.flatnonzero(snapshot.guest.level == 2)[0]), 300] = 77 << 12 | 0x67
    assert wrong(check_tables(snapshot)) == {"gpt: closed": 1}


def test_a_frame_that_holds_two_tables_is_found(snapshot):
    first, second = np.flatnonzero(snapshot.guest.level == 1)
    snapshot.guest.frame[second] = snapshot.guest.frame[first]
    assert wrong(check_tables(snapshot)) == {"gpt: links": 1, "gpt: frames once": 1}


def test_a_table_of_hugetlb_pages_may_be_linked_twice():
    """huge_pmd_share, mm/hugetlb.c: of a file that is mapped twice a GiB apart."""
    tree = build_snapshot([Page(VA, 1024, 2), Page(VA + 512 * REGION, 1024, 2)]).guest
    upper, (first, second) = int(np.flatnonzero(tree.level == 3)[0]), np.flatnonzero(tree.level == 2)
    one, other = np.flatnonzero(tree.entries[upper])
    tree.frame[second], tree.entries[upper, other] = tree.frame[first], tree.entries[upper, one]
    assert not [check for check in check_tree(tree, "gpt", None) if check.wrong]


def test_a_table_outside_every_node_is_found():
    found = wrong(check_tables(build_snapshot([(VA, 9)], nodes=1, table_nodes=(3,))))
    assert found["gpt: frames in nodes"] == 4


def test_a_page_in_no_vma_is_found():
    snapshot = build_snapshot([(VA, 9), (VA + PAGE, 10)], vmas=[(VA, VA + PAGE, "heap")])
    assert wrong(check_tables(snapshot)) == {"pages: in VMAs": 1}
    assert exit_code(check_tables(snapshot)) == 1
    snapshot.facts["quiescence"] = {"quiet": False}  # read alive, while it mapped and unmapped
    assert exit_code(check_tables(snapshot)) == 3


def test_a_torn_table_makes_the_capture_partial(snapshot):
    snapshot.guest.flags[2] |= TORN
    assert exit_code(list(check_tables(snapshot))) == 3


def test_what_the_dumper_recorded_about_itself_is_judged(snapshot):
    snapshot.facts["quiescence"] = {"quiet": False}
    snapshot.facts["verify"] = {"checked": 10, "mismatched": 2, "hidden": 1}
    verdicts = {finding.name: finding.verdict for finding in check_tables(snapshot) if finding.wrong}
    assert verdicts == {"dump: quiet": PARTIAL, "dump: pagemap agrees": FAILED, "dump: pagemap shows": "note"}


def dumped(levels, beyond, explained):
    """A snapshot with one huge page, of a kernel that counts `beyond` tables more than there are."""
    snapshot = build_snapshot([(VA, 9), Page(VA + 8 * REGION, 1024, 2)], levels=levels)
    snapshot.facts["completeness"] = {
        "tables": len(snapshot.guest), "counted_by_kernel": 3 + beyond, "huge_leaves": 1,
        "difference": 3 + beyond - (len(snapshot.guest) - 1), "explained": explained, "explanation": "so so",
    }  # fmt: skip
    return snapshot


@pytest.mark.parametrize("levels", [4, 5])
@pytest.mark.parametrize(("beyond", "complete"), [(-1, False), (0, True), (1, True), (2, False)])
@pytest.mark.parametrize("explained", [True, False])
def test_tables_are_missing_by_the_kernels_count_of_three_levels(levels, beyond, complete, explained):
    found = [one for one in check_tables(dumped(levels, beyond, explained)) if one.name == "dump: complete"]
    assert [one.verdict for one in found] == ["ok" if complete else PARTIAL]


@pytest.mark.parametrize("explained", [True, False])
def test_without_the_kernels_count_the_dumper_is_believed(explained):
    snapshot = dumped(5, 0, explained)
    snapshot.facts["completeness"] |= {"counted_by_kernel": None, "difference": None}
    assert ("dump: complete" in wrong(check_tables(snapshot))) is not explained


def covered(trace, snapshot):
    return next(found for found in check_trace(trace, snapshot) if found.name == "trace: covered by VMAs")


def test_a_trace_of_another_process_is_not_covered():
    snapshot = build_snapshot([(VA, 9)], vmas=[(VA, VA + REGION, "heap")])
    found = covered(build_trace([(0, [VA, 0x1000, 0x5000])]), snapshot)
    assert (found.wrong, found.verdict) == (2, FAILED)
    assert found.reason.endswith("the first at 0x1000")


@pytest.mark.parametrize("breaks, wrong", [([0], 1), ([0, PAGE], 0)])
def test_a_heap_of_no_bytes_covers_nothing_not_even_below_it(breaks, wrong):
    heap = 1 << 40
    snapshot = build_snapshot([(REGION, 1)], vmas=[(REGION, 2 * REGION, "a")])
    events = [(0, 0, Event.BRK, (heap + more,), heap + more) for more in breaks]
    assert covered(build_trace([(0, [heap - PAGE])], events), snapshot).wrong == wrong


def test_memory_that_the_trace_itself_mapped_and_unmapped_is_covered():
    snapshot = build_snapshot([(VA, 9)], vmas=[(VA, VA + REGION, "heap")])
    trace = build_trace([(0, [VA, 0x10_3000])], [(0, 0, Event.MMAP, (0, 4 * PAGE, 3, 0x22), 0x10_0000)])
    assert covered(trace, snapshot).wrong == 0


@pytest.mark.parametrize(
    ("verdicts", "code"), [(["ok"], 0), (["ok", "note"], 0), (["partial"], 3), (["partial", "failed"], 1)]
)
def test_the_exit_code_is_that_of_the_worst_finding(verdicts, code):
    assert exit_code([Check("x", 1, 1, verdict) for verdict in verdicts]) == code


# Checks and description of VM captures: what fits passes, every kind of damage has its finding.


def verdicts(findings):
    return {finding.name: (finding.wrong, finding.verdict) for finding in findings if finding.wrong}


@pytest.fixture
def guest():
    return build_snapshot([(VA + k * PAGE, 900 + k) for k in range(40)], [], table_nodes=(0, 1))


@pytest.fixture
def capture(tmp_path, guest):
    join(*write_both(tmp_path, guest), tmp_path / "vm")
    return open_capture(tmp_path / "vm")


def test_a_joined_capture_passes_every_check(capture):
    assert verdicts(check_capture(capture)) == {}
    found = {finding.name for finding in check_capture(capture)}
    assert {"vm: tables in ept", "vm: pages in ept", "ept: inside slots"} <= found


def test_a_hosts_dump_passes_every_check_of_its_own(tmp_path, guest):
    host, _ = write_both(tmp_path, guest)
    seal(host, "vm-host", {})
    capture = open_capture(host)
    assert verdicts(check_capture(capture)) == {}
    with pytest.raises(UsageError, match="join it with its guest's capture"):
        _ = capture.snapshot


def test_a_page_that_the_host_does_not_map_is_a_note_a_table_makes_the_capture_partial(guest):
    snapshot, host, _ = put_together(host_dump(guest), replace(guest, host=None), "vm.json")
    leaf = np.flatnonzero(guest.host.level == 1)
    assert len(leaf) == 2
    guest.host.entries[leaf[0], 900 & 511] = 0
    assert verdicts(check_joined(snapshot, host)) == {"vm: pages in ept": (1, NOTE)}
    guest.host.entries[leaf[1], 1] = 0
    found = verdicts(check_joined(snapshot, host))
    assert found["vm: tables in ept"] == (1, PARTIAL) and found["gpt: nodes agree"] == (1, FAILED)


def test_a_leaf_outside_every_slot_is_found(guest):
    slots = (Slot(gpa=0, bytes=930 << 12, hva=0), Slot(gpa=1 << 32, bytes=1 << 32, hva=0))
    assert verdicts(check_host(host_dump(guest, slots=slots)))["ept: inside slots"] == (10, PARTIAL)
    assert verdicts(check_host(host_dump(guest, slots=())))["vm: slots known"] == (1, PARTIAL)


def test_roots_left_out_and_vcpus_without_a_node_are_noted(guest):
    root = int(guest.host.frame[0])
    roots = (Root(frame=root, kind="tdp_mmu", table=0), Root(frame=9, kind="shadow", why="PAE guest"))
    found = list(check_host(host_dump(guest, roots=roots, vcpus=(Vcpu(tid=1),))))
    assert verdicts(found) == {"ept: roots": (1, NOTE), "vm: vCPUs placed": (1, NOTE)}
    assert next(f for f in found if f.name == "ept: roots").reason == "are not here: PAE guest"


def test_shadow_tables_alone_and_a_moving_vm_are_partial(guest):
    roots = (Root(frame=int(guest.host.frame[0]), kind="shadow", table=0),)
    facts = {"quiescence": {"before": {"seq": 1}, "after": {"seq": 2}, "quiet": False}}
    found = verdicts(check_host(host_dump(guest, roots=roots, facts=facts)))
    assert found == {"ept: guest-physical": (1, PARTIAL), "dump: quiet": (1, PARTIAL)}
