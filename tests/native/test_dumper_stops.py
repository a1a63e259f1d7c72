"""A target that was stopped goes on, whoever is killed, and where processes and disks make it hard."""

import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from native import dumping, killing
from native.dumping import PTDUMP, SANITIZED, clean, guardian, held, ptdump, running, state, wait_for
from needs import small_disk
from ptanalyze.core.errors import PartialDataError, UsageError
from ptanalyze.formats.snapshot import read_snapshot, read_vm
from ptanalyze_host.dump import dump_process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_target_goes_on_when_the_dumper_is_killed_and_no_file_stays_of_an_interrupted_one(
    big, tmp_path, number
):
    with ThreadPoolExecutor(1) as pool:
        dump = pool.submit(dump_process, big, tmp_path / "d", stop=True, verify=True)
        assert wait_for(lambda: state(big) == "T")
        subprocess.run(["pkill", f"-{number:d}", "-o", "-f", f"ptdump process {big} "], check=True)
        assert isinstance(dump.exception(), PartialDataError) and wait_for(lambda: state(big) == "S")
    assert number == signal.SIGKILL or not (tmp_path / "d").exists()


@pytest.mark.parametrize("interrupt", [0, signal.SIGTERM])
def test_the_target_goes_on_when_its_guardian_is_killed(big, tmp_path, interrupt):
    dumper, _ = held(big, tmp_path, lambda dumper, _: guardian(dumper) and state(big) == "T")
    os.kill(guardian(dumper), signal.SIGKILL)
    dumper.send_signal(interrupt)
    dumper.send_signal(signal.SIGCONT)
    dumper.communicate(timeout=60)
    assert dumper.returncode == (128 + interrupt if interrupt else 0)
    assert wait_for(lambda: state(big) == "S")


def test_the_target_goes_on_whoever_is_killed_and_in_any_order(big, tmp_path):
    found, _ = killing.campaign(killing.build_hold(tmp_path), big, 40, os.getpid())
    for way, runs in found.items():
        assert runs["continued"] == runs["runs"] and runs["held"], (way, runs)


def test_a_process_that_was_stopped_before_stays_stopped(target, tmp_path):
    os.kill(target, signal.SIGSTOP)
    try:
        assert wait_for(lambda: state(target) == "T")
        assert ptdump(target, tmp_path / "d", "--stop").returncode == 0
        dump_process(target, tmp_path / "e", bpf=False, stop=True)
        assert state(target) == "T" and read_snapshot(tmp_path / "d").facts["stopped_before"]
    finally:
        os.kill(target, signal.SIGCONT)


def test_a_foreground_job_keeps_its_terminal_which_who_waits_would_take_as_it_stops(tmp_path):
    with subprocess.Popen(["script", "-qc", "sleep 60", "/dev/null"], stdout=subprocess.DEVNULL) as terminal:
        assert wait_for(lambda: killing.children(terminal.pid))
        [job] = killing.children(terminal.pid)
        done = ptdump(job, tmp_path / "d", "--stop")
        assert done.returncode == 2 and "foreground job of a terminal" in done.stderr
        assert not (tmp_path / "d").exists() and ptdump(job, tmp_path / "e").returncode == 0
        terminal.terminate()


def a_stranger_with_the_number_of(process):
    """Ends the process and starts another one that gets its number."""
    process.kill()
    process.wait()
    for _ in range(50):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(process.pid - 1))
        stranger = subprocess.Popen(["sleep", "60"], process_group=0)
        if stranger.pid == process.pid:
            return stranger
        stranger.kill()
        stranger.wait()
    raise AssertionError(f"PID {process.pid} cannot be had again")


def test_a_stranger_who_got_the_number_is_not_stopped(tmp_path):
    process = subprocess.Popen(["sleep", "60"], process_group=0)
    # the directory exists when /proc/PID is open, the guardian when the process is about to be stopped
    dumper, directory = held(process.pid, tmp_path, lambda dumper, at: at.exists() and not guardian(dumper))
    stranger = a_stranger_with_the_number_of(process)
    try:
        dumper.send_signal(signal.SIGCONT)
        _, said = dumper.communicate(timeout=60)
        assert os.waitid(os.P_PID, stranger.pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG) is None
    finally:
        stranger.kill()
        stranger.wait()
    assert dumper.returncode == 3 and "ended" in said and not directory.exists()


@contextmanager
def full_pipe():
    """(read end, write end) of a pipe into which nothing more goes."""
    ends = os.pipe()
    os.set_blocking(ends[1], False)
    with suppress(BlockingIOError):
        while True:
            os.write(ends[1], b"x" * 4096)
    os.set_blocking(ends[1], True)
    yield ends
    for end in ends:
        os.close(end)


def test_the_target_goes_on_though_nobody_reads_what_the_dumper_has_to_say(big, tmp_path):
    """Tables go to the file while it is held; there is no room for them, nor for the line that says so."""
    options = ["--stop", "--memory", "1", "-o", tmp_path / "d"]
    with full_pipe() as (ours, theirs):
        command = [PTDUMP, "process", str(big), *options]
        dumper = subprocess.Popen(command, stderr=theirs, preexec_fn=dumping.limit_files)
        call = Path(f"/proc/{dumper.pid}/syscall")  # proc(5): it is within write(2, ...)
        assert wait_for(lambda: call.read_text().startswith("1 0x2 "), 20)
        assert wait_for(lambda: state(big) == "S") and dumper.poll() is None
        os.read(ours, 1 << 20)
        assert dumper.wait(20) == 2 and not (tmp_path / "d").exists()


def test_the_target_is_stopped_only_while_its_tables_are_read(target, tmp_path):
    begun = time.monotonic()
    assert ptdump(target, tmp_path / "d", "--stop").returncode == 0
    whole, facts = time.monotonic() - begun, read_snapshot(tmp_path / "d").facts
    assert facts["duration_s"] <= facts["stopped_s"] < whole


def test_a_process_is_held_no_longer_than_asked_and_that_is_said(big, tmp_path):
    """The dumper itself is stopped: its guardian continues the process."""
    options = ("--stop", "--max-stop", "300", "--verify")
    command = [PTDUMP, "process", str(big), "-o", tmp_path / "d", *options]
    dumper = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert wait_for(lambda: state(big) == "T")
    dumper.send_signal(signal.SIGSTOP)
    assert wait_for(lambda: state(big) == "S") and state(dumper.pid) == "T"
    dumper.send_signal(signal.SIGCONT)
    _, said = dumper.communicate(timeout=60)
    facts = read_snapshot(tmp_path / "d").facts
    assert dumper.returncode in (0, 1) and state(big) == "S"
    assert "held for 300 ms and then continued" in said
    assert facts["gave_up"] and not facts["stopped"]


def test_a_process_that_is_read_in_time_is_held_for_all_of_it(target, tmp_path):
    done = ptdump(target, tmp_path / "d", "--stop", "--max-stop", "60000")
    facts = read_snapshot(tmp_path / "d").facts
    assert done.returncode == 0 and not facts["gave_up"] and facts["stopped"] and state(target) == "S"


def test_a_limit_needs_what_can_say_what_it_missed(big, tmp_path):
    for options in ({"bpf": False, "stop": True}, {"stop": False}):
        with pytest.raises(UsageError, match="--max-stop"):
            dump_process(big, tmp_path / "d", max_stop=100, **options)


# ptdump and ptsurvey, built with sanitizers, where processes and disks make it hard: whole or absent.

AT_ONCE = 4  # a dump mostly waits for the kernel


@pytest.fixture(scope="module", autouse=True)
def sanitized():
    dumping.build_sanitized()


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A library with which the write, sync or rename of that number fails."""
    library = tmp_path_factory.mktemp("full") / "full.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, dumping.PROGRAMS / "full.c"], check=True)
    return library


@pytest.fixture(scope="module")
def quiet(programs):
    with running(programs / "dump_storm", "quiet") as (process, _):
        yield process.pid


def sanitized_ptdump(pid, directory, *options, what="process", prefix=(), env=None, **how):
    """The process that dumped `pid` into `directory`: whole if it ends with 0, or 1 as pages moved meanwhile
    (--verify), else absent; a line unless 0."""
    command = [*prefix, SANITIZED / "ptdump", what, str(pid), "-o", directory, "-q", *options]
    env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0", **(env or {})}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env, **how)
    clean(done.stderr)
    lines = done.stderr.splitlines()
    assert [line[:8] for line in lines] == ["ptdump: "] * (done.returncode != 0), lines
    if done.returncode == 0 or (done.returncode == 1 and "--verify" in options):
        assert len(os.listdir(directory)) == 4
        kept = read_snapshot(directory).guest if what == "process" else read_vm(directory).tree
        dumping.assert_closed(kept)
    else:
        assert not directory.exists() or not os.listdir(directory)
    return done


def together(work, items):
    """[work(item)] of dumps beside each other."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(work, items))


def test_a_sanitized_build_ends_at_a_wrong_access():
    symbols = subprocess.run(["nm", SANITIZED / "ptdump"], capture_output=True, text=True, check=True).stdout
    assert "__asan_report_load8" in symbols and "__ubsan_handle_out_of_bounds_abort" in symbols


def test_in_a_storm_of_forks_parent_and_children_are_whole_or_absent(programs, tmp_path):
    with running(programs / "dump_storm", "forks") as (process, _):

        def dumped(k):
            options = ("--stop", "--verify") if k % 3 == 0 else ("--retries", "1")
            pid = process.pid if k % 2 == 0 else next(iter(killing.children(process.pid)), process.pid)
            return pid == process.pid, sanitized_ptdump(pid, tmp_path / f"d{k}", *options).returncode

        codes = together(dumped, range(4))
        assert wait_for(lambda: state(process.pid) in "RSD")
    assert all(code in (0, 1, 2, 3) for _, code in codes) and any(code == 0 for own, code in codes if own)


def test_exec_and_exit_in_the_middle_leave_one_address_space_or_nothing(programs, tmp_path):
    """A process that replaces itself 50 times a second by one with as much memory of its own."""
    with running(programs / "dump_storm", "execs") as (process, _):
        codes = together(lambda k: sanitized_ptdump(process.pid, tmp_path / f"d{k}").returncode, range(4))
        process.kill()
        process.wait()
        codes.append(sanitized_ptdump(process.pid, tmp_path / "gone").returncode)
    assert set(codes) <= {0, 2, 3} and codes[-1] == 2
    for k in (k for k in range(4) if codes[k] == 0):
        dump = read_snapshot(tmp_path / f"d{k}")
        mapped = [(start, end) for start, end in zip(dump.vmas["start"], dump.vmas["end"], strict=True)]
        bases = dump.guest.base[dump.guest.level == 1]
        assert all(any(base < end and base + (2 << 20) > start for start, end in mapped) for base in bases)


def test_thirty_thousand_vmas_are_all_there(programs, tmp_path):
    with running(programs / "dump_storm", "vmas") as (process, _):
        assert sanitized_ptdump(process.pid, tmp_path / "d", "--stop", "--verify").returncode == 0
    dump = read_snapshot(tmp_path / "d")
    assert len(dump.vmas) > 30_000 and dump.facts["verify"]["checked"] > 30_000


@contextmanager
def container(program):
    """(PID outside of a program in a PID namespace of its own, the unshare that made it)."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", program, "quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as outer:
        try:
            assert outer.stdout.readline() == "ready\n"
            yield killing.children(outer.pid)[0]
        finally:
            outer.kill()


def test_a_container_is_read_by_its_number_outside_and_by_its_number_inside(programs, tmp_path):
    with container(programs / "dump_storm") as outside:
        inside = ["nsenter", "--target", str(outside), "--pid", "--mount", "--"]
        assert sanitized_ptdump(outside, tmp_path / "outside", "--stop").returncode == 0
        assert sanitized_ptdump(1, tmp_path / "inside", "--stop", prefix=inside).returncode == 0
        strange = sanitized_ptdump(outside, tmp_path / "strange", prefix=inside)
        assert state(outside) == "S"
    assert strange.returncode == 2 and "no such process" in strange.stderr
    one, other = (read_snapshot(tmp_path / where) for where in ("outside", "inside"))
    assert one.guest.frame.tolist() == other.guest.frame.tolist()
    assert (one.facts["pid"], other.facts["pid"]) == (outside, 1)


def test_nothing_is_kept_when_any_write_sync_or_rename_fails(full, quiet, tmp_path):
    def failing(at):
        env = {"LD_PRELOAD": str(full), "FULL_AT": str(at), "FULL_LOG": str(tmp_path / "calls")}
        return sanitized_ptdump(quiet, tmp_path / f"d{at}", env=env)

    assert failing(1000).returncode == 0
    calls = int((tmp_path / "calls").read_text())
    assert calls > 12
    done = together(failing, range(1 + os.getpid() % 2, calls, 2))  # the last one syncs the directory
    assert all(one.returncode == 2 and "No space left" in one.stderr for one in done)


def test_nothing_is_kept_on_a_disk_that_is_one_page_too_small(quiet, tmp_path):
    assert sanitized_ptdump(quiet, tmp_path / "d").returncode == 0
    pages = sum(-(-path.stat().st_size // 4096) for path in (tmp_path / "d").iterdir())
    for size, code in ((pages - 1, 2), (pages + 4, 0)):
        with small_disk(tmp_path / f"disk{size}", size * 4096) as disk:
            assert sanitized_ptdump(quiet, disk / "d").returncode == code


def test_a_limit_of_file_sizes_is_an_error_like_a_full_disk(quiet, tmp_path):
    def limited(size):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # noqa: E731
        return sanitized_ptdump(quiet, tmp_path / f"d{size}", preexec_fn=limit).returncode

    assert together(limited, (0, 513, 20_000)) == [2] * 3


def test_an_output_directory_that_vanishes_is_said_and_not_made_again(quiet, tmp_path):
    place = tmp_path / "d"
    command = [SANITIZED / "ptdump", "process", str(quiet), "-o", place, "--stop"]
    dumper = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert wait_for(lambda: place.exists() and len(os.listdir(place)) == 4)
    dumper.send_signal(signal.SIGSTOP)
    shutil.rmtree(place)
    dumper.send_signal(signal.SIGCONT)
    said = clean(dumper.communicate(timeout=60)[1])
    assert dumper.returncode == 2 and "No such file or directory" in said and not place.exists()
    assert wait_for(lambda: state(quiet) == "S")


def test_a_vm_is_read_cleanly_also_when_its_vmm_is_killed(vmm, tmp_path):
    dumping.need_kvm()
    with running(vmm, 16, 4096, 2) as (process, words):

        def dumped(k):
            return sanitized_ptdump(
                process.pid, tmp_path / f"d{k}", "--vm", words["vm"], *["--stop"] * (k % 2), what="vm"
            )

        codes = [one.returncode for one in together(dumped, range(1))]
        threading.Timer(0.1, process.kill).start()
        codes += [one.returncode for one in together(dumped, range(1, 3))]
    assert codes[0] == 0 and set(codes) <= {0, 2, 3}


def test_a_survey_of_all_of_it_is_clean(programs):
    with running(programs / "dump_storm", "forks"), running(programs / "dump_storm", "execs"):
        env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
        for _ in range(2):
            done = subprocess.run([SANITIZED / "ptsurvey"], capture_output=True, text=True, env=env)
            said = clean(done.stderr).splitlines()[done.stderr.startswith("ptsurvey: left out PID") :]
            assert done.returncode == 0 and said == [] and done.stdout.count("\n") > 2
