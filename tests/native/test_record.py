"""record(): the trace and the page tables of one run agree, and no failure leaves half a capture."""

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from captures import pages_of, touches_of
from native import tracing
from native.dumping import PROGRAMS, make
from native.tracing import environment
from needs import needs_root
from ptanalyze.analysis.setup import Setup, asked_of_processes
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.capture.check import check_capture, exit_code
from ptanalyze.capture.describe import describe
from ptanalyze.capture.live.locate import native
from ptanalyze.capture.live.process import huge_pages
from ptanalyze.capture.live.record import finish, record
from ptanalyze.capture.live.supervise import Recording, Tracee, children_of, dump, keep_tables
from ptanalyze.capture.live.tracers import Options
from ptanalyze.cli import run
from ptanalyze.core.errors import PartialDataError, UsageError, bundled
from ptanalyze.core.trace import Event
from ptanalyze.formats.capture import load, open_capture
from ptanalyze.formats.record import damaged_files, read_manifest
from ptanalyze.formats.snapshot import read_snapshot
from ptanalyze.formats.trace import read_trace
from ptanalyze.world.mm_events import advice
from ptanalyze.world.trees import within
from ptanalyze_formats.redact import redact

pytestmark = needs_root


def mapped_pages(snapshot):
    """Page numbers with a present 4 KiB leaf."""
    tree = snapshot.guest
    leaf = np.flatnonzero(tree.level == 1)
    table, slot = np.nonzero(np.asarray(tree.entries[leaf]) & 1)
    return set(((tree.base[leaf[table]] >> np.uint64(12)).astype(np.int64) + slot).tolist())


def touched_pages(trace):
    return {page for page, *_ in touches_of(trace)}


@pytest.mark.parametrize("options", [Options(), Options(marker=True), Options(end_symbol="roi_ends")])
def test_every_page_touched_before_the_snapshot_is_mapped_in_it(known, tmp_path, options):
    recording = record([known, "touch"], tmp_path / "c", options=options)
    roi = options != Options()
    assert recording.exit_status == 0 and recording.held == ("roi_end" if roi else "exit")
    snapshot, trace = read_snapshot(tmp_path / "c"), read_trace(tmp_path / "c" / "trace.ptt")
    assert len(touched_pages(trace) - mapped_pages(snapshot)) < 20  # ld.so unmaps its cache file
    assert snapshot.facts["stopped"] and trace.facts["command"] == f"{known} touch"
    emulator = {name for vma, name in zip(snapshot.vmas, snapshot.vma_names, strict=True) if vma["emulator"]}
    named = zip(snapshot.vmas, snapshot.vma_names, strict=True)
    program = {name for vma, name in named if not vma["emulator"]}
    assert any(name.endswith("qemu-x86_64") for name in emulator) and "[heap]" in emulator
    noted = trace.events[trace.events["kind"] == Event.TRACER_MAP]
    assert len(noted) and not any("/libpt_qemu" in name or "/libglib" in name for name in program)
    assert known in program and known not in emulator
    assert list(damaged_files(tmp_path / "c", read_manifest(tmp_path / "c"))) == []
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "c").iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("__builtin_trap();", "it was killed by SIGILL (QEMU lacks some instructions, AVX-512 among them"),
        ("raise(SIGSEGV);", "it was killed by SIGSEGV (if it runs without record, QEMU is to blame"),
        ("raise(SIGKILL);", "it was killed by SIGKILL (as the kernel does when memory runs out"),
        ("raise(SIGBUS);", "it was killed by SIGBUS"),
    ],
)
def test_a_death_by_signal_names_its_likely_cause(tmp_path, code, says):
    tracing.build_plugin()
    (tmp_path / "dies.c").write_text(f"#include <signal.h>\nint main(void) {{ {code} return 0; }}\n")
    subprocess.run(["gcc", "-o", tmp_path / "dies", tmp_path / "dies.c"], check=True)
    with pytest.raises(PartialDataError) as refused:
        record([tmp_path / "dies"], tmp_path / "c", dump=False)
    assert says in str(refused.value) and len(str(refused.value).splitlines()) == 1
    assert ("(" in str(refused.value)) == ("(" in says)


@pytest.mark.parametrize(
    ("code", "at", "says"),
    [
        ("raise(SIGABRT);", "end", "it died before they were read; --dump-at peak"),
        ('execl("/bin/true", "true", (char *)0);', "peak", "replaced itself and its page tables by another"),
    ],
)
def test_why_there_are_no_page_tables_is_said_once_and_is_so(tmp_path, code, at, says):
    tracing.build_plugin()
    head = "#include <signal.h>\n#include <unistd.h>\n"
    (tmp_path / "ends.c").write_text(f"{head}int main(void) {{ {code} return 0; }}\n")
    subprocess.run(["gcc", "-o", tmp_path / "ends", tmp_path / "ends.c"], check=True)
    with pytest.raises(PartialDataError) as partial:
        record([tmp_path / "ends"], tmp_path / "c", dump_at=at)
    assert says in str(partial.value) and "changed its user" not in str(partial.value)


def test_page_tables_made_before_the_region_of_interest_are_with_the_thread_that_touched_them(tmp_path):
    tracing.build_plugin()
    record([tracing.build(tmp_path, "first_touches")], tmp_path / "c", options=Options(marker=True))
    snapshot, trace = read_snapshot(tmp_path / "c"), read_trace(tmp_path / "c" / "trace.ptt")
    nodes = ",".join(["0", *"1" * (len(trace.threads) - 1)])
    scenario = Setup.of(threads_on=nodes).scenario(snapshot, trace)
    touched = trace.events[trace.events["kind"] == Event.FIRST_TOUCH]
    first = int(touched["a"][touched["thread"] == 4].min()) - (3 << 21)  # its store lies in regions 3 and 4
    tables, homes = scenario.space.tables, {}
    for table in np.flatnonzero(tables.level == 1):
        homes[(int(tables.base[table]) - first) >> 21] = int(scenario.first_homes[table])
    assert [homes[region] for region in range(10)] == [0, 1, 1, 1, 1, 1, 1, 0, 1, 0]
    assert scenario.first_touches_unseen == []


@pytest.fixture(scope="module")
def advised(tmp_path_factory):
    """Captures of a program that asks for huge pages: as it is, forbidden any, and with glibc's tunable."""
    tracing.build_plugin()
    place = tmp_path_factory.mktemp("advised")
    program = tracing.build(place, "advised")
    record([program], place / "asks")
    record([program, "prctl"], place / "forbids")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
        record([program], place / "malloc")
    return {name: load(place / name) for name in ("asks", "forbids", "malloc")}


def regions_by_level(capture, ranges, allowed):
    """{level of the leaf table: number of touched 2 MiB in `ranges`} of the baseline, as if so set."""
    facts = {**capture.snapshot.facts, "huge_pages": allowed}
    regions = Setup.of().scenario(replace(capture.snapshot, facts=facts), capture.trace).space.regions
    inside = within(regions.va << np.uint64(21), 2 << 20, ranges)
    return dict(zip(*np.unique(regions.level[inside], return_counts=True), strict=True))


def test_what_a_program_asks_huge_pages_for_has_them_if_the_machine_gives_them(advised, tmp_path):
    """Under the emulator it has none, unless the machine gives them to all."""
    capture = advised["asks"]
    given = huge_pages()
    assert capture.snapshot.facts["huge_pages"] == capture.manifest.provenance["huge_pages"] == given
    asked = advice(capture.trace.events).asked
    assert (asked[:, 1] - asked[:, 0]).tolist() == [4 * (2 << 20)]
    assert regions_by_level(capture, asked, "madvise") == regions_by_level(capture, asked, None) == {2: 4}
    assert regions_by_level(capture, asked, "never") == {2 if given == "always" else 1: 4}
    linux, thp = whatif_results(capture)
    noted = any("8 MiB have huge pages under every policy" in note for note in linux.notes)
    assert noted == (given == "madvise")
    assert thp.facts["regions_promoted"] < 16
    redact(capture, tmp_path / "shared")
    assert [one.row() for one in whatif_results(load(tmp_path / "shared"))] == [linux.row(), thp.row()]


def test_a_program_that_forbids_itself_huge_pages_gets_none_from_thp(advised):
    capture = advised["forbids"]
    assert (capture.trace.events["kind"] == Event.THP_DISABLE).sum() == 1
    _, thp = whatif_results(capture)
    assert thp.facts["regions_promoted"] == 0 and thp.facts["regions_forbidden"] >= 4
    assert thp.speedup.middle == 1


def whatif_results(capture):
    return replay_snapshot(capture.snapshot, capture.trace, [("thp", {})], Setup.of(baseline="linux"))


def test_followed_children_are_captures_in_the_capture(known, tmp_path):
    record([known, "fork"], tmp_path / "c", options=Options(follow_fork=True))
    capture = open_capture(tmp_path / "c")
    child, grandchild = capture.processes.values()
    for one in (capture, child, grandchild):
        assert one.manifest.kind == "process"
        assert len(touched_pages(one.trace) - mapped_pages(one.snapshot)) < 20
        assert one.trace.facts["ended"] == "exit" and one.snapshot.facts["pid"] == one.trace.facts["pid"]
        assert list(damaged_files(one.directory, one.manifest)) == []
    assert [*capture.members] == [one.trace.facts["pid"] for one in (capture, child, grandchild)]
    shares = {title: rows for title, rows in describe(capture).items() if title.startswith("process ")}
    assert {rows["name"] for rows in shares.values()} == {"known"} and len(shares) == 3


def test_under_sudo_the_capture_belongs_to_the_user_who_typed_it(known, tmp_path, monkeypatch):
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65533")
    record([known, "touch"], tmp_path / "c")
    made = [path.stat() for path in (tmp_path / "c", *(tmp_path / "c").iterdir())]
    assert {(one.st_uid, one.st_gid) for one in made} == {(65534, 65533)}


def test_a_program_can_run_as_another_user_who_owns_nothing_of_the_capture(known):
    with tempfile.TemporaryDirectory() as place:
        program = Path(place) / "touch"
        shutil.copy(known, program)
        for path in (place, program):
            os.chmod(path, 0o755)
        recording = record([program, "touch"], Path(place) / "c", user="nobody")
        assert recording.exit_status == 0 and recording.snapshot
        snapshot = read_snapshot(Path(place) / "c")
        assert snapshot.facts["uid"] == pwd.getpwnam("nobody").pw_uid and snapshot.facts["another_user"]
        assert {path.stat().st_uid for path in (Path(place) / "c").iterdir()} == {os.geteuid()}
        assert not list((Path(place) / "c").glob(".traced"))


def test_a_user_who_cannot_reach_the_capture_is_told_before_anything_runs(known, tmp_path):
    tmp_path.chmod(0o700)
    with pytest.raises(UsageError, match="out of this user's reach"):
        record([known, "touch"], tmp_path / "c", user="nobody")
    assert not (tmp_path / "c").exists()


def test_page_tables_of_the_peak_map_what_was_freed_before_the_end(tmp_path):
    tracing.build_plugin()
    program = tracing.build(tmp_path, "freed")
    found = {}
    for moment in ("end", "peak"):
        words = [program, "stopped"] if moment == "peak" else [program]
        for _ in range(6):  # a reading asked for before it was full may come when it is
            shutil.rmtree(tmp_path / moment, ignore_errors=True)
            recording = record(words, tmp_path / moment, dump_at=moment)
            if recording.held == "peak" or moment == "end":
                break
        findings = check_capture(open_capture(tmp_path / moment))
        found[moment] = next(f for f in findings if f.name == "trace: pages in the dump").verdict
        assert recording.held == ("exit" if moment == "end" else "peak")
    assert found == {"end": "partial", "peak": "ok"}


def test_what_is_freed_is_read_at_the_peak_by_default_and_else_said(tmp_path, capsys):
    tracing.build_plugin()
    phases = tracing.build(tmp_path, "phases")
    words = [phases, "3000000", "2000", "1"]
    at_end = record(words, tmp_path / "end", dump_at="end")
    assert at_end.held == "exit" and at_end.freed > 0.5
    at_peak = record(words, tmp_path / "peak")  # on a busy machine no reading may come before the end
    assert at_peak.held in ("peak", "exit") and at_peak.freed < at_end.freed + 0.1
    facts = read_manifest(tmp_path / "end").provenance
    assert facts["freed_share"] == round(at_end.freed, 4) and not facts["ended_after_region"]
    assert run(["record", "-o", str(tmp_path / "c"), "--dump-at", "end", "--", *words]) == 0
    said = capsys.readouterr().err
    assert "% of the memory that it touched (in 2 MiB) was freed before" in said and "--dump-at peak" in said


def test_a_native_time_narrows_the_share_of_walks(tmp_path):
    tracing.build_plugin()
    record([tracing.build(tmp_path, "phases"), "400000", "100000"], tmp_path / "timed", seconds=0.1)
    capture = load(tmp_path / "timed")
    native, chunks = capture.snapshot.facts["native"], capture.trace.chunks
    assert native["how"] == "given" and native["seconds"] == 0.1 and 0.1 <= native["user_seconds"] <= 0.5
    assert native["instructions"] == chunks["instructions"].sum() and 0.3 < native["ghz"] < 10
    setup = Setup.of(machine="vmitosis-cascade-lake")
    untimed = replace(capture.snapshot, facts={**capture.snapshot.facts, "native": None})
    shares = [
        replay_snapshot(snapshot, capture.trace, [("mitosis", {})], setup)[0].walk_share
        for snapshot in (capture.snapshot, untimed)
    ]
    assert shares[0].high - shares[0].low < shares[1].high - shares[1].low


def test_a_program_is_ended_after_its_region_if_asked(tmp_path, capsys):
    tracing.build_plugin()
    phases = tracing.build(tmp_path, "phases")
    words = ["--for", "500ms", "--then", "end", "--", phases, "100000", "4000000000"]
    assert run(["record", "-o", str(tmp_path / "c"), *words]) == 0
    ran = capsys.readouterr()
    assert ran.err.index("ended when its region was over") >= 0 and "ptanalyze check" in ran.out
    facts = read_manifest(tmp_path / "c").provenance
    assert facts["ended_after_region"] and facts["page_tables"] == "roi_end"
    assert run(["check", str(tmp_path / "c")]) == 0, "it is what was asked for"
    assert run(["record", "-o", str(tmp_path / "d"), "--then", "end", "--", phases, "1", "1"]) == 2
    assert "--then end: the region lasts until the program ends" in capsys.readouterr().err


ENDLESS = "a, k = bytearray(1 << 26), 0\nwhile True:\n a[k % len(a)] = 1\n k += 999983\n open('/dev/null')"


def test_a_region_ends_with_a_trace_that_is_at_its_limit(tmp_path, capsys):
    tracing.build_plugin()
    words = ["--for", "9m", "--then", "end", "--max-bytes", "256K", "-o", str(tmp_path / "c")]
    assert run(["record", *words, "--", os.path.realpath(sys.executable), "-c", ENDLESS]) == 3
    assert "size limit" in capsys.readouterr().err and (tmp_path / "c/gpt.tables").exists()


@pytest.mark.parametrize("status", [1, 3, 200])
def test_a_program_that_fails_is_recorded_and_said_by_the_exit_code(tmp_path, capsys, status):
    tracing.build_plugin()
    words = ["--no-dump", "-o", str(tmp_path / "c"), "--", "sh", "-c", f"exit {status}"]
    assert run(["record", *words]) == 3
    assert f"status {status}" in capsys.readouterr().err.splitlines()[-1]
    assert read_manifest(tmp_path / "c").provenance["exit_status"] == status


def test_under_sudo_a_program_of_the_environment_runs_as_the_user_who_typed_it(tmp_path, monkeypatch, capsys):
    tracing.build_plugin()
    (tmp_path / "bin").mkdir()
    tracing.build(tmp_path / "bin", "phases")
    monkeypatch.setenv("SUDO_UID", "0")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert run(["record", "--no-dump", "-o", str(tmp_path / "root"), "--", "phases"]) == 2
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        os.chmod(place, 0o777)
        (Path(place) / "bin").mkdir()
        tracing.build(Path(place) / "bin", "phases")
        monkeypatch.setattr(sys, "prefix", place)
        monkeypatch.setenv("PATH", os.environ["PATH"])
        nobody = pwd.getpwnam("nobody")
        monkeypatch.setenv("SUDO_UID", str(nobody.pw_uid))
        monkeypatch.setenv("SUDO_GID", str(nobody.pw_gid))
        code = run(["record", "--no-dump", "-o", f"{place}/c", "--", "phases", "1", "1"])
        assert code == 0, capsys.readouterr()
        assert read_manifest(f"{place}/c").provenance["command"] == ["phases", "1", "1"]
        assert os.stat(f"{place}/c").st_uid == nobody.pw_uid


def test_privileges_that_are_missing_are_found_before_the_program_runs(known, tmp_path):
    ran = tmp_path / "ran"
    less = ["setpriv", "--bounding-set=-bpf,-perfmon,-sys_admin,-sys_ptrace"]
    ours = [sys.executable, "-m", "ptanalyze", "record", "-o", tmp_path / "c", "--", "/usr/bin/touch", ran]
    done = subprocess.run([*less, *map(str, ours)], capture_output=True, text=True, env=environment())
    assert done.returncode == 2 and "CAP_BPF" in done.stderr and "--no-dump" in done.stderr
    assert not ran.exists() and not (tmp_path / "c").exists()


BACKGROUND = """
import os, signal
child = os.fork()
if not child:
    signal.pause()
print(child, flush=True)
os._exit(0)
"""


@pytest.mark.full
def test_a_program_that_goes_to_the_background_is_said_to_run_on_untraced(tmp_path):
    ours = [sys.executable, "-m", "ptanalyze", "record", "-o", tmp_path / "c", "--"]
    out, said = tmp_path / "out", tmp_path / "said"  # the child keeps them open: a pipe would not end
    with out.open("w") as stdout, said.open("w") as stderr:
        ours += [sys.executable, "-S", "-c", BACKGROUND]
        subprocess.run(ours, stdout=stdout, stderr=stderr, env=environment(), check=True)
    child = int(out.read_text().split()[0])
    try:
        assert "not what it started" in said.read_text() and f"still running: PID {child}" in said.read_text()
        capture = open_capture(tmp_path / "c")
        kept = read_manifest(tmp_path / "c").provenance["untraced_children"]
        assert kept["seen"] == 1 and len(kept["names"]) == 1
        assert kept["names"][0] in asked_of_processes(capture, Setup.of())
        assert describe(capture)["capture"]["children not traced"] == f"1 seen, {kept['names'][0]}"
        (found,) = (one for one in check_capture(capture) if one.name == "trace: children")
        assert found.verdict == "note" and found.wrong == 1 and kept["names"][0] in found.reason
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.full
def test_the_watcher_of_a_trace_is_no_child_of_the_program(tmp_path):
    """It is known by its name, which the process that forks it, and ends, carries as well."""
    ours = [sys.executable, "-m", "ptanalyze", "record", "--no-dump", "-o", tmp_path / "c", "--", "/bin/cat"]
    with subprocess.Popen(ours, stdin=subprocess.PIPE, env=environment()) as recording:
        kept: dict[str, Path] = {}
        while not kept.get("pt-watcher", Path("/")).joinpath("stat").exists() or len(kept) < 2:
            assert recording.poll() is None
            for place in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    parent = (place / "stat").read_text().rsplit(")", 1)[1].split()[1]
                    known = kept.get("qemu-x86_64", Path()).name == parent
                    if not known and f"out={tmp_path}/".encode() in (place / "cmdline").read_bytes():
                        kept[(place / "comm").read_text().strip()] = place
        assert kept.keys() == {"pt-watcher", "qemu-x86_64"}
        assert not children_of(int(kept["qemu-x86_64"].name))
        recording.communicate()
    ending = "import ctypes, os; ctypes.CDLL(None).prctl(15, b'pt-watcher')\nwhile p := os.fork(): os.wait()"
    with subprocess.Popen([sys.executable, "-S", "-c", ending]) as forks:
        while Path(f"/proc/{forks.pid}/comm").read_text() != "pt-watcher\n":
            assert forks.poll() is None
        assert not any(children_of(forks.pid) for _ in range(1000)), "it may end before its name is read"
        forks.kill()


def test_a_trace_is_watched_while_it_grows(known, tmp_path):
    seen = []
    recording = record([known, "touch"], tmp_path / "c", dump=False, sealing=seen.append)
    assert read_trace(tmp_path / "c" / "trace.ptt").accesses == recording.accesses
    assert seen[0].bytes == (tmp_path / "c" / "trace.ptt").stat().st_size


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["/no/such/program"], "no such program"),
        (["no-such-program-either"], "no such program"),
        (["--no-such-option"], "no such option"),
        (["SCRIPT"], "a script; begin the command with its interpreter: /bin/sh "),
        (["TEXT"], "not an ELF"),
        (["ARM"], "ELF machine 183"),
        (["I386"], "32-bit"),
    ],
)
def test_what_cannot_be_traced_is_one_line_and_leaves_nothing(tmp_path, command, why):
    files = {
        "SCRIPT": b"#!/bin/sh\n",
        "TEXT": b"hello",
        "ARM": b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\0\xb7\0" + bytes(44),
        "I386": b"\x7fELF\x01\x01\x01" + bytes(9) + b"\x02\0\x03\0" + bytes(44),
    }
    if command[0] in files:
        path = tmp_path / command[0]
        path.write_bytes(files[command[0]])
        path.chmod(0o755)
        command = [str(path)]
    before = set(tmp_path.iterdir())
    with pytest.raises(UsageError, match=why):
        record(command, tmp_path / "c")
    assert set(tmp_path.iterdir()) == before


def test_the_program_waits_while_its_page_tables_are_read_and_goes_on(known, tmp_path, monkeypatch):
    slow = tmp_path / "tools"
    slow.mkdir()
    script = slow / "ptdump"
    script.write_text(f'#!/bin/sh\nsleep 0.5\nexec {tracing.ROOT}/dumps/build/ptdump "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PTANALYZE_NATIVE", str(slow))
    began = time.monotonic()
    recording = record([known, "touch"], tmp_path / "c")
    assert recording.snapshot and recording.exit_status == 0 and time.monotonic() - began > 0.5


@pytest.mark.parametrize("changed", ["user", "chroot"])
def test_a_program_that_changed_its_user_or_root_is_recorded_without_page_tables(tmp_path, changed):
    program = tmp_path / "other_user"
    subprocess.run(["cc", "-O1", "-static", "-o", program, PROGRAMS / "other_user.c"], check=True)
    with pytest.raises(PartialDataError, match=r"no page tables: .* changed its user or root"):
        record([program, changed], tmp_path / "c", dump_at="end")
    capture = load(tmp_path / "c")
    assert capture.has_trace and not capture.has_snapshot
    assert record([program, changed], tmp_path / "d", dump=False).exit_status == 0


# record(): however it, its program or its tracer ends, what was recorded is whole.


def interrupted(code, after=0.0):
    """What code prints that records a program and gets SIGINT `after` seconds after its first word."""
    argv = [sys.executable, "-c", code]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout.readline().startswith("0x")
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    return said


def test_a_program_that_dies_before_the_end_leaves_a_trace_and_says_so(known, tmp_path):
    with pytest.raises(PartialDataError, match="SIGSEGV"):
        record([known, "crash"], tmp_path / "c", dump_at="end")
    assert read_trace(tmp_path / "c" / "trace.ptt").facts["ended"] == "signal"
    assert read_manifest(tmp_path / "c").kind == "trace"


@pytest.mark.parametrize("handover", [True, False])
def test_ctrl_c_leaves_a_whole_capture_up_to_that_moment(known, tmp_path, handover):
    code = (
        "import sys; from ptanalyze.capture.live.record import record\n"
        f"r = record([{known!r}, 'forever'], {str(tmp_path / 'c')!r}, dump={handover})\n"
        "print(r.held, r.interrupted, r.exit_status)"
    )
    said = interrupted(code, after=0.1)
    assert said.split() == [*(["interrupt"] if handover else []), "True", str(-signal.SIGINT)]
    assert read_trace(tmp_path / "c" / "trace.ptt").facts["ended"] == "signal"
    assert read_manifest(tmp_path / "c").kind == ("process" if handover else "trace")
    finished = [one for one in check_capture(open_capture(tmp_path / "c")) if one.name == "trace: finished"]
    assert [one.verdict for one in finished] == ["ok"]


def test_a_signal_once_the_program_has_ended_changes_nothing(known, tmp_path, monkeypatch):
    def finished(*how):
        os.kill(os.getpid(), signal.SIGTERM)
        finish(*how)

    monkeypatch.setattr("ptanalyze.capture.live.record.finish", finished)
    record([known, "touch"], tmp_path / "c", dump=False)
    assert read_manifest(tmp_path / "c").kind == "trace"


GROWS = """
import mmap, sys
kept = []
for line in sys.stdin:
    kept.append(mmap.mmap(-1, 1 << 24))
    kept[-1][::4096] = bytes(1 << 12)
    print(len(kept), flush=True)
"""


def interrupt_at(number, call, codes):
    """Whether call() ended without an interrupt, which comes at the given line of the functions `codes`."""
    left = itertools.count(number, -1)

    def trace(frame, event, _):
        if event == "line" and next(left) == 0:
            raise KeyboardInterrupt
        return trace

    sys.settrace(lambda frame, *_: trace if frame.f_code in codes else None)
    try:
        call()
    except KeyboardInterrupt:
        return False
    finally:
        sys.settrace(None)
    return True


def test_ctrl_c_in_a_second_reading_keeps_one_of_both(tmp_path):
    """At each line in turn; the program has more page tables at each reading."""
    argv, pipe, codes = [sys.executable, "-c", GROWS], subprocess.PIPE, (Tracee.read_tables, dump)
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, bufsize=0) as process:

        def tables():
            return len(read_snapshot(run.recording.tables[0]).guest)

        def read():
            process.stdin.write(b"\n")
            process.stdout.readline()
            run.read_tables("peak")

        for at in range(100):
            place = tmp_path / str(at)
            place.mkdir()
            run = Tracee(process, None, native("ptdump"), place, Recording(place, 0), place)
            read()
            first = tables()
            whole = interrupt_at(at, read, [function.__code__ for function in codes])
            second = tables()
            read()
            assert first <= second < tables()
            keep_tables(place, run.recording)
            assert len(read_snapshot(place).guest) > second and not [*place.glob(".*")]
            if whole:
                break
        process.kill()
    assert at > 10


@pytest.mark.full
@pytest.mark.parametrize("mode", ["handles", "outlives"])
def test_programs_that_end_on_ctrl_c_and_children_that_outlive_them_are_whole(known, tmp_path, mode):
    code = (
        "from ptanalyze.capture.live.record import record\n"
        "from ptanalyze.capture.live.tracers import Options\n"
        f"r = record([{known!r}, {mode!r}], {str(tmp_path / 'c')!r}, options=Options(follow_fork=True))\n"
        "print(r.held, r.interrupted, r.exit_status)"
    )
    said = interrupted(code)
    capture = open_capture(tmp_path / "c")
    assert said.split() == (["interrupt", "True", "0"] if mode == "handles" else ["exit", "True", "0"])
    assert capture.trace.facts["ended"] == "exit"
    kinds = [(one.manifest.kind, one.trace.facts["ended"]) for one in capture.processes.values()]
    assert kinds == ([] if mode == "handles" else [("process", "exit")])
    assert exit_code(check_capture(capture)) == 0


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGKILL, pytest.param(signal.SIGHUP, marks=pytest.mark.full)]
)
def test_whoever_ends_the_recorder_ends_the_program(known, tmp_path, number):
    argv = [sys.executable, "-m", "ptanalyze", "record", "-o", str(tmp_path / "c"), "--no-dump", "--", known]
    how = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN), "env": environment()}
    process = subprocess.Popen([*argv, "forever"], stdout=subprocess.PIPE, text=True, **how)
    assert process.stdout.readline().startswith("0x")
    scores = {Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in running(tmp_path)}
    assert scores == {"1000\n"}, "out of memory, the kernel would kill others first"
    process.send_signal(signal.SIGINT)  # ignored, as in the background of a script
    process.send_signal(number)
    process.wait(30)
    for _ in range(300):
        if not running(tmp_path):
            break
        time.sleep(0.1)
    assert not running(tmp_path)
    if number == signal.SIGKILL:
        assert process.returncode == -number
        return
    assert process.returncode == 128 + number
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    assert read_trace(tmp_path / "c" / "trace.ptt").facts["ended"] == "signal"
    assert read_manifest(tmp_path / "c").provenance["exit_status"] == -signal.SIGINT, "as Ctrl-C, not killed"


def running(directory):
    """PIDs of tracers that write into a directory."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (place / "cmdline").read_bytes()
            if b"libpt_qemu" in words and bytes(directory) in words:
                found.append(place.name)
    return found


# The bundled sample `lookup` is what its script records.

STORE_PAGES = 170_003 * 8  # 32 KiB per slot


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    tracing.build_plugin()
    make("dumps")
    out = tmp_path_factory.mktemp("samples") / "lookup"
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = tracing.ROOT / "dumps/samples/record_lookup.sh"
    subprocess.run([script, out], check=True, env={**os.environ, **path})
    return open_capture(out)


def looked_up(capture):
    """int64[threads, pages of the store]: touches of each page by each thread."""
    [store] = [vma for vma in capture.snapshot.vmas if vma["end"] - vma["start"] >= STORE_PAGES << 12]
    first, trace = int(store["start"]) >> 12, capture.trace
    found = np.zeros((len(trace.threads), STORE_PAGES), np.int64)
    for batch in trace.batches(1 << 16):
        chunks = trace.chunks[batch.chunks]
        threads = np.repeat(chunks["thread"], chunks["touches"])
        pages = pages_of(trace, batch.page) - first
        inside = (pages >= 0) & (pages < STORE_PAGES)
        np.add.at(found, (threads[inside], pages[inside]), 1)
    return found


@pytest.mark.full
def test_recorded_again_each_thread_looks_up_the_same_slots_as_often(again):
    seen, stored = looked_up(again), looked_up(open_capture(bundled("samples") / "lookup"))
    threads, pages = np.nonzero(stored)
    assert len(set(threads.tolist())) == 4 and not (pages % 8).any()
    assert (stored[threads, pages] == 2).all(), "each slot in each of two rounds"
    assert np.array_equal(seen, stored)
