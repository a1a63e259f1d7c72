"""Accessed bits of live processes: which pages they use, together, and however sampling ends."""

import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from native.dumping import make, running, state, wait_for
from native.killing import children
from needs import needs_root
from ptanalyze import classify
from ptanalyze.analysis.whatif import replay
from ptanalyze.capture.check import check_capture
from ptanalyze.capture.check.tables import FAILED, PARTIAL
from ptanalyze.capture.live.process import comm, open_process
from ptanalyze.cli import record, run
from ptanalyze.core.columns import NO_RATE
from ptanalyze.core.errors import PartialDataError, UsageError
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.heat import AT, HEADER_DTYPE, read_heat, read_records
from ptanalyze_host import heat
from ptanalyze_host.dump import descendants, dump_process
from ptanalyze_host.heat import LENGTHS, dump_after, heat_tree, image, record_running, sample_each

pytestmark = needs_root


def sample(pid, out, seconds, lengths=LENGTHS):
    outcome = sample_each({pid: out}, seconds, lengths)[pid]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


DUMPS = Path(__file__).resolve().parents[2] / "dumps"
LOOP = """
import ctypes, mmap, time
area = mmap.mmap(-1, 8 << 20)
aside = mmap.mmap(-1, 1 << 20)
for one in (area, aside):
    one.madvise(mmap.MADV_NOHUGEPAGE)
    one[::4096] = b"x" * (len(one) // 4096)
hot = memoryview(area)[: 4 << 20 : 4096]
print(ctypes.addressof(ctypes.c_char.from_buffer(area)), flush=True)
protect = ctypes.CDLL(None).mprotect
held = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(aside))), ctypes.c_size_t(len(aside))
while True:
    hot.tobytes()
    protect(*held, mmap.PROT_READ)  # flushes the TLB: for what stays in it nobody walks, and bits stay clear
    protect(*held, mmap.PROT_READ | mmap.PROT_WRITE)
    time.sleep(0.005)
"""
ENDS = 8192  # pages of each of two areas
HOT = 1024  # pages; as many that are mapped are never touched again


@pytest.fixture(scope="module", autouse=True)
def built():
    make("dumps")


@pytest.fixture(scope="module")
def loop():
    process = subprocess.Popen([sys.executable, "-c", LOOP], stdout=subprocess.PIPE, text=True)
    yield process.pid, int(process.stdout.readline())
    process.kill()
    process.wait()


def faults_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().split()[9])


def waited(pid):
    """How often a process has waited: the loop does after each round, ptheat before each sample."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def area_of(heat, start):
    """(pages used in the hot half, in the cold half) of the loop's area."""
    page = (heat.address.astype(np.int64) - start) >> 12
    return np.count_nonzero((page >= 0) & (page < HOT)), np.count_nonzero((page >= HOT) & (page < 2 * HOT))


def test_pages_in_use_are_found_and_others_are_not_and_the_process_notices_nothing(loop, tmp_path):
    pid, start = loop
    for out in map(tmp_path.joinpath, "abcd"):  # where DAMON runs, it may clear a bit just before we look
        faults, rounds = faults_of(pid), waited(pid)
        lines = heat_tree(pid, out, 1, [900], children=False)  # a second sample ends after the second
        assert faults_of(pid) - faults < 50 and waited(pid) > rounds and (out / "snapshot.json").exists()
        if (found := area_of(read_heat(out / "heat.bits"), start)) == (HOT, 0):
            break
    assert found == (HOT, 0) and f" of PID {pid} (" in lines[0]
    elapsed, covered = map(float, re.search(r"in ([\d.]+) s, ([\d.]+) s long", lines[0]).groups())
    assert covered <= elapsed


@pytest.mark.full
def test_samples_are_in_step_with_no_period(loop, tmp_path):
    """At equal intervals a program of the same period would show each sample the same."""
    sample(loop[0], tmp_path / "bits", 8, [300])
    _, records = read_records(tmp_path / "bits")
    apart = np.diff(records["word"][records["level"] == 0][:, AT].astype(np.int64))
    assert len(apart) < 12 or np.mean(apart < apart.min() + 3e6) <= 0.25


CROWDED = """
import threading, time
threading.stack_size(65536)
for _ in range(20_000):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print(flush=True)
time.sleep(1000)
"""


@pytest.mark.full
def test_many_threads_leave_time_to_sample(tmp_path):
    """The kernel adds up the CPU times of all threads, longer than ptheat waits between two looks at them."""
    with subprocess.Popen([sys.executable, "-c", CROWDED], stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            assert sample(process.pid, tmp_path / "bits", 1)
        finally:
            process.kill()


@pytest.mark.full
def test_pages_cleared_first_do_not_get_more_walks_than_those_cleared_last(programs, tmp_path):
    """Two areas used alike at both ends of 1 GiB."""
    with running(programs / "dump_ends", ENDS, 1024, stdin=subprocess.PIPE) as (target, words):
        for attempt in range(10):  # one in which the machine had time for both of us
            before, path = asked(target), tmp_path / f"bits{attempt}"
            sample(target.pid, path, 6, [10])
            seconds, accesses = asked(target) - before
            heat, accesses = read_heat(path), accesses / seconds / 2
            start = np.array([int(words["first"]), int(words["last"])], np.uint64)[:, None]
            walks = ((heat.address >= start) & (heat.address < start + np.uint64(ENDS * 4096))) @ heat.walks
            if np.allclose(walks / heat.sampled_seconds / accesses, 1, atol=0.1):
                return
    raise AssertionError((walks, accesses, heat.sampled_seconds))


@pytest.mark.full
def test_the_footprint_of_random_walks_is_that_of_the_accesses_that_the_program_counts(programs, tmp_path):
    """fp(w) = N (1 - exp(-a w / N)) of N lines and `a` accesses a second."""
    with running(programs / "dump_ends", ENDS, 64, stdin=subprocess.PIPE) as (target, words):
        for attempt in range(5):  # one in which the machine had time for both of us
            before = asked(target)
            sample(target.pid, tmp_path / f"bits{attempt}", 8)
            seconds, accesses = asked(target) - before
            found = read_heat(tmp_path / f"bits{attempt}").footprint
            ends = (np.uint64(words[at]) for at in ("first", "last"))
            ours = sum(found.base - at < np.uint64(ENDS * 4096) for at in ends)
            lines, window = 2 * ENDS / 8, found.seconds / found.cpus
            law = lines * -np.expm1(-accesses / seconds * window / lines)
            seen = found.lines[ours > 0].sum(axis=0)
            long = window > 0.02  # it catches up with the clock about each millisecond
            if np.allclose(seen[long], law[long], rtol=0.12):
                assert len(found.curve) > 3 and found.price >= 0
                return
    raise AssertionError((window, seen, law, found.cpus))


def asked(target):
    print(file=target.stdin, flush=True)
    return np.array(target.stdout.readline().split(), float)


def test_a_running_process_is_recorded_by_what_the_machine_has_and_says_which(loop, tmp_path, capsys):
    pid, start = loop
    assert run(["record", "-p", str(pid), "--for", "1s", "-o", str(tmp_path / "app")]) == 0
    said = capsys.readouterr().err
    capture = open_capture(tmp_path / "app")
    assert said.count(": used") == 1 and capture.has_trace != capture.has_heat
    if "accessed bits of page tables: used" in said:  # a machine whose perf has no TLB misses
        assert area_of(capture.snapshot.heat, start) == (HOT, 0)
        assert run(["advise", str(tmp_path / "app"), "-m", "emerald-rapids"]) == 0
    assert run(["record", "-p", str(pid), "--", "true"]) == 2 == run(["record"])


FORKS = "import mmap, os\nwhile True:\n mmap.mmap(-1, 1 << 16).write(bytes(1 << 16))"
FORKS += "\n os.fork() and os.wait() or os._exit(0)"


def test_samples_of_perf_become_a_trace_beside_page_tables(tmp_path):
    """By page faults, which perf samples everywhere; those of forked children are not the program's."""
    with subprocess.Popen([sys.executable, "-c", FORKS], process_group=0) as busy:
        lines = record_running(busy.pid, tmp_path / "app", 1, misses=[["page-faults"]])
        os.killpg(busy.pid, signal.SIGKILL)
    capture = open_capture(tmp_path / "app")
    assert capture.has_snapshot and not capture.has_heat and capture.trace.threads["tid"] == [busy.pid]
    assert f"{capture.trace.accesses:,} samples of PID {busy.pid} (" in lines[1] and "faults" in lines[0]


@pytest.mark.full
def test_a_process_without_a_sample_is_said_to_have_none(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as idle:
        try:
            with pytest.raises(PartialDataError, match="no sample in 1 s: idle, or ended"):
                record_running(idle.pid, tmp_path / "app", 1, misses=[["page-faults"]])
        finally:
            idle.kill()
    assert not (tmp_path / "app").exists()


def test_a_process_that_ends_is_said_to_have_ended(tmp_path):
    short = subprocess.Popen(["sleep", "1.5"])
    with pytest.raises(PartialDataError, match="ended"):
        sample(short.pid, tmp_path / "bits", 60, [2000])
    assert short.wait() == 0
    with pytest.raises(UsageError, match="no such process"):
        sample(short.pid, tmp_path / "more", 60)


@pytest.mark.parametrize("words", [[], ["1"], ["1", "x", "10"], ["1", "1", "0"], ["1", "1", *["10"] * 17]])
def test_wrong_use_is_refused(words):
    ran = subprocess.run([DUMPS / "build/ptheat", *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and ran.stderr.startswith("Usage:") and not ran.stdout


def test_a_full_disk_is_named(loop):
    command = f"{DUMPS}/build/ptheat {loop[0]} 1 10 > /dev/full"
    ran = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == 2 and "/dev/full: cannot write: No space left" in ran.stderr


# A parent that waits, a child that uses its memory all the time, and one that waits until it is told to end.
FAMILY = """
import ctypes, mmap, os, sys, time
area = mmap.mmap(-1, 4 << 20)
area.madvise(mmap.MADV_NOHUGEPAGE)
area[::4096] = b"x" * 1024
busy = os.fork()
if not busy:
    protect = ctypes.CDLL(None).mprotect
    held = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(area))), ctypes.c_size_t(4 << 20)
    while True:
        memoryview(area)[::4096].tobytes()
        protect(*held, mmap.PROT_READ)  # flushes the TLB
        protect(*held, mmap.PROT_READ | mmap.PROT_WRITE)
idle = os.fork()
if not idle:
    time.sleep(1000)
print(busy, idle, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def family():
    """(PID of the parent, of the busy child, of the idle one)"""
    process = subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, text=True)
    busy, idle = map(int, process.stdout.readline().split())
    yield process.pid, busy, idle
    for pid in (busy, idle, process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()


def test_each_process_has_its_own_samples_and_the_busy_one_has_the_weight(family, tmp_path):
    pid, busy, idle = family
    assert run(["record", "-p", str(pid), "--follow-fork", "--for", "2s", "-o", str(tmp_path / "c")]) == 0
    whole = open_capture(tmp_path / "c")
    assert set(whole.members) == {pid, busy, idle} and all(one.has_heat for one in whole.members.values())
    by = classify(whole, weight="heat", by="process")
    by = by[by.socket == by.socket.min()]
    walks = by.groupby(by["group"].str.split().str[0].astype(int))["count"].sum()
    assert walks[busy] > 10 * (walks.get(pid, 0) + walks.get(idle, 0))
    base = replay(whole, ["mitosis"]).results[0]
    assert base.walk_share or "windows" not in base.finding(NO_RATE).text, "those that sleep add nothing"
    wrong = {one.name: one.reason for one in check_capture(whole) if one.verdict in (PARTIAL, FAILED)}
    changing = "dump: quiet: the process changed its page tables while they were read"
    assert wrong in ({}, {f"process {busy}": changing})  # it does so all the time


def test_a_child_that_is_being_sampled_already_is_said_at_once(family, tmp_path):
    pid, busy, _ = family
    ours = [sys.executable, "-m", "ptanalyze", "record"]
    sampler = DUMPS / "build/ptheat"
    with subprocess.Popen([sampler, str(busy), "600", "10"], stdout=subprocess.PIPE) as other:
        other.stdout.read(512)  # its header: it has the child for itself
        command = [*ours, "-p", str(pid), "--follow-fork", "--for", "600s", "-o", tmp_path / "c"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        other.kill()
    assert done.returncode == 2 and f"PID {busy}: is being sampled already" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "c").exists()


@pytest.mark.full
def test_a_child_that_ends_before_it_is_sampled_is_left_out_and_said(family, tmp_path, monkeypatch):
    pid, busy, idle = family

    def late(files, *how):
        os.kill(idle, signal.SIGKILL)
        return sample_each(files, *how)

    monkeypatch.setattr("ptanalyze_host.heat.sample_each", late)
    (tmp_path / "c").mkdir()
    assert f"PID {idle}: ended before it was sampled; left out" in heat_tree(pid, tmp_path / "c", 1, [10])
    assert set(open_capture(tmp_path / "c").members) == {pid, busy}
    assert not (tmp_path / "c" / f"pid-{idle}").exists()


# Ends if its parent does; 2 MiB of its own and then the same program in its place, for ever.
EXECS = """
import mmap, os, sys
area = mmap.mmap(-1, 2 << 20)
area[::4096] = b"x" * 512
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.executable, [sys.executable, "-S", "-E", "-c", sys.argv[2], *sys.argv[1:]])
"""


@pytest.mark.full
def test_a_child_that_calls_exec_all_the_time_costs_that_child_alone(tmp_path):
    begins = (
        "import os, subprocess, sys, time; code = sys.argv[1]; subprocess.Popen([sys.executable, '-S', '-E', "
    )
    begins += "'-c', code, str(os.getpid()), code]); print('ready', flush=True); time.sleep(1000)"
    command = [sys.executable, "-c", begins, EXECS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            process.stdout.readline()
            (child,) = descendants(process.pid)
            (tmp_path / "c").mkdir()
            lines = heat_tree(process.pid, tmp_path / "c", 1, [200])
        finally:
            process.kill()
    members = set(open_capture(tmp_path / "c").members)
    assert process.pid in members
    assert child in members or f"PID {child}: called exec before it was sampled; left out" in lines


def test_a_program_that_another_replaced_keeps_the_tables_that_its_samples_are_of(tmp_path):
    code = "import os, sys; print(flush=True); sys.stdin.read(1); os.execv('/bin/sleep', ['sleep', '1000'])"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            with open_process(process.pid) as held:
                dump_process(process.pid, tmp_path, bpf=True)
                before, tables = image(held), (tmp_path / "gpt.entries").read_bytes()
                process.stdin.write(b"x")
                process.stdin.flush()
                while Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":
                    os.sched_yield()
                lines = dump_after(held, tmp_path, before)
        finally:
            process.kill()
    assert lines == [f"PID {process.pid} called exec: the page tables are those before the samples"]
    assert (tmp_path / "gpt.entries").read_bytes() == tables


# How sampling ends early: by signals, with its terminal, killed; and what is refused.

FAULTS = """
import mmap, time
area = mmap.mmap(-1, 4096)
while True:
    area[0] = 1
    area.madvise(mmap.MADV_DONTNEED)
    time.sleep(0.01)
"""
RECORD = """
from ptanalyze.__main__ import main
from ptanalyze_host import heat
heat.record_running.__defaults__ = None, False, [["page-faults"]]  # which perf samples everywhere
main()
"""


@pytest.fixture(scope="module")
def target():
    make("dumps")
    process = subprocess.Popen([sys.executable, "-c", FAULTS])
    yield process.pid
    process.kill()
    process.wait()


def begun(target, out, tracer="heat", **how):
    """(the command that samples for ten minutes, its ptheat or perf, which has taken samples)."""
    words = f"record -p {target} --tracer {tracer} --for 600s -o".split()
    ran = subprocess.Popen([sys.executable, "-c", RECORD, *words, out], text=True, **how)
    names = {"heat": ["ptheat"], "perf": ["perf", "sleep"]}[tracer]  # its own child begins when perf samples
    assert wait_for(lambda: below(ran.pid, names), 120)
    sampler, faults = below(ran.pid, names[:1]), faults_of(target)
    written = lambda: os.stat(f"/proc/{sampler}/fd/1").st_size > HEADER_DTYPE.itemsize  # noqa: E731
    assert wait_for(written if tracer == "heat" else lambda: faults_of(target) > faults + 20, 300)
    return ran, sampler


def test_what_was_sampled_of_a_process_that_was_killed_is_partial(monkeypatch):
    monkeypatch.setattr(record, "installed", lambda _: lambda *_: [])
    with subprocess.Popen(["sleep", "600"]) as one:
        one.kill()
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)  # a zombie
        with pytest.raises(PartialDataError):
            record.sample_running(one.pid, 1, "x", (), None, False)


def below(pid, names):
    """PID of the child, and so on, with these names in turn; 0: none."""
    for name in names:
        pid = next((child for child in children(pid) if comm(child) == name), 0)
    return pid


@pytest.mark.parametrize("tracer", ["heat", "perf"])
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_it_early_and_what_was_sampled_is_kept(target, tmp_path, number, code, tracer):
    """Sent to it and its group, and again, as by `timeout`; another stays ignored, as in a background."""
    ignored = (lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if code else None
    how = {"process_group": 0, "preexec_fn": ignored, "stderr": subprocess.PIPE}
    ran, sampler = begun(target, tmp_path / "app", tracer, **how)
    reached = [pid for pid in (ran.pid, sampler) if os.getpgid(pid) == ran.pid]
    assert all(ignores(pid, signal.SIGINT) == (code > 0) for pid in reached)
    os.killpg(ran.pid, number)
    assert wait_for(lambda: not Path(f"/proc/{sampler}").exists(), 60)
    with suppress(ProcessLookupError):
        os.killpg(ran.pid, number)
    said = ran.communicate(timeout=120)[1]
    assert ran.returncode == code and " of 600 s: what was sampled until then" in said, said
    capture = open_capture(tmp_path / "app")
    assert (capture.has_heat or (tracer == "perf" and capture.has_trace)) and not capture.damaged


def test_a_wait_that_a_signal_ended_keeps_no_lock(target, tmp_path, monkeypatch):
    def interrupted(ran, seconds):  # between taking the lock and the try that gives it back
        assert ran[target]._waitpid_lock.acquire(timeout=9)
        raise KeyboardInterrupt

    monkeypatch.setattr(heat, "wait_for_all", interrupted)
    with suppress(KeyboardInterrupt):
        sample_each({target: tmp_path / "heat"}, 600, (1,))


def ignores(pid, number):
    mask = Path(f"/proc/{pid}/status").read_text().partition("\nSigIgn:")[2].split()[0]
    return bool(int(mask, 16) >> number - 1 & 1)


def test_it_ends_with_its_terminal_and_keeps_the_samples(target, tmp_path):
    ours, theirs = pty.openpty()
    ran, _ = begun(target, tmp_path / "app", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.close(ours)  # what it prints from now on is an error
    ran.send_signal(signal.SIGHUP)  # as the kernel does to whom the terminal belongs
    assert ran.wait(timeout=120) == 129
    assert open_capture(tmp_path / "app").has_heat


@pytest.mark.parametrize("tracer", ["heat", "perf"])
def test_killed_it_takes_its_sampler_along(target, tmp_path, tracer):
    ran, sampler = begun(target, tmp_path / "app", tracer, stderr=subprocess.DEVNULL)
    ran.kill()
    ran.wait()
    assert wait_for(lambda: not Path(f"/proc/{sampler}").exists() or state(sampler) in "ZX", 60)
    assert not (tmp_path / "app").exists()


def test_refusals_come_before_sampling(target, tmp_path, pt_lines):
    (tmp_path / "there").mkdir()
    assert "exists already" in pt_lines("record", "-p", target, "-o", tmp_path / "there")[-1]
    assert pt_lines("record", "-p", 2**22 + 1)[-1] == f"ptanalyze: PID {2**22 + 1}: no such process"
    for words in (["perf", "--follow-fork"], ["qemu"]):
        assert "--tracer" in pt_lines("record", "-p", target, "--tracer", *words)[-1]
    assert "-p PID" in pt_lines("record", "--tracer", "heat", "--", "true")[-1]
    nobody = ["setpriv", "--bounding-set=-all", sys.executable, "-m", "ptanalyze"]
    done = subprocess.run([*nobody, *f"record -p {target} -o".split(), tmp_path / "c"], capture_output=True)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1) and b"CAP_BPF" in done.stderr


@pytest.fixture
def pt_lines(capfd):
    from ptanalyze.cli import run

    def call(*words):
        capfd.readouterr()
        assert run([str(word) for word in words]) == 2
        return capfd.readouterr().err.splitlines()

    return call


def test_damon_that_runs_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(heat, "DAMON", tmp_path / "kdamonds")
    assert not heat.damon()
    thread = tmp_path / "kdamonds" / "0"
    thread.mkdir(parents=True)
    assert not heat.damon()  # no state to read
    (thread / "state").write_text("off\n")
    assert not heat.damon()
    (thread / "state").write_text("on\n")
    assert "rates may be too low" in heat.damon()["also clears accessed bits"]
