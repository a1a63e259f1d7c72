"""Leaf tables of live processes are rebuilt; nothing else of them changes, whoever dies."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections import namedtuple
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from command_line import is_one_line
from native import relocating
from native.dumping import PROGRAMS, state, wait_for
from native.relocating import DEATHS, areas, as_before, children, leaves, relocate, running, target, threads
from needs import needs_root
from ptanalyze.capture.live.process import hold
from ptanalyze.cli import run
from ptanalyze.core.errors import UsageError, as_root
from ptanalyze.policies.baselines import RESET
from ptanalyze_host import relocate as front
from ptanalyze_host.dump import alive
from ptanalyze_host.node_latency import usable_nodes
from ptanalyze_pages import far_tables as trial
from ptanalyze_pages.far_tables import counted_here
from ptanalyze_pages.trial_command import write

pytestmark = needs_root
Ran = namedtuple("Ran", "code out err")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return relocating.build(tmp_path_factory.mktemp("relocate"))


@pytest.fixture(scope="module")
def writer(program):
    """Two threads that write to 32 MiB, one that looks at its registers, one that waits."""
    with target(program, "write", 32, 2) as one:
        one.counts()
        yield one


@pytest.fixture
def pt(capfd):
    def call(*words):
        capfd.readouterr()
        return Ran(run([str(word) for word in words]), *capfd.readouterr())

    return call


def moved(pid, *options, **how):
    done, (plan, tally) = relocate(pid, "--yes", *options, **how)
    assert done.returncode == 0, (done.stderr, tally)
    return plan, tally


@pytest.mark.parametrize("pause", [0, 50000])
def test_no_write_is_lost_and_every_area_is_as_before(writer, pause):
    before, added = running(writer.pid), writer.counts()
    for _ in range(5):
        plan, tally = moved(writer.pid, "--max-pause", pause)
        assert tally["bytes"] == sum(end - start for start, end, _, left in plan["ranges"] if left is None)
        assert tally["bytes"] >= 32 << 20
    assert as_before(writer.pid, before) and not leaves(writer.pid)
    assert writer.counts() > added and not any(children(writer.pid))


def test_every_stop_counts_the_last_one_too(writer):
    """The last moves nothing: it unmaps what is ours."""
    _, (_, tally) = relocate(writer.pid, "--yes", "--max-pause", 10000, gap=20000)
    assert tally["late"] > tally["stops"] - tally["lost"] and tally["longest_held_us"] >= 20000


def comparable(plan):
    """A plan without what is resident of ranges that are left alone: files of which the target reads more."""
    ranges = (replace(part, resident=0) if part.left else part for part in plan.ranges)
    return replace(plan, ranges=tuple(ranges))


def test_tables_are_new_pages_and_data_stay(writer):
    planned = front.plan(writer.pid, None)
    before = front.leaf_tables(writer.pid)
    done = front.relocate(writer.pid, None, 1000.0)
    assert done.whole and comparable(done.plan) == comparable(planned)
    inside = before.inside(planned.moved)
    assert inside.sum() == 16 and (before.pages[inside].sum(axis=1) == 512).all()
    after = done.after.inside(planned.moved)
    assert np.array_equal(done.before.base[inside], done.after.base[after])
    assert np.array_equal(done.before.pages[inside], done.after.pages[after])
    fresh = ~np.isin(done.after.frame[after], before.frame)
    assert fresh.sum() >= 8, "a page that was freed may be a table again, most are not"


@pytest.mark.parametrize("step", DEATHS)
def test_killed_at_any_step_it_leaves_all_as_it_was(writer, step):
    before, left = running(writer.pid), leaves(writer.pid)
    done, _ = relocate(writer.pid, "--yes", die_at=step, gap=2000)
    assert done.returncode == -signal.SIGKILL
    assert as_before(writer.pid, before) and leaves(writer.pid) - left <= 12 << 10
    writer.counts()


@pytest.mark.parametrize("step", DEATHS)
def test_killed_among_signals_it_harms_nothing(program, step):
    """A handler that runs while a thread is set to its chain would find no stack."""
    with target(program, "signals", 8, 2) as one:
        for _ in range(3):
            relocate(one.pid, "--yes", die_at=step, gap=2000)
        assert one.counts()


@pytest.fixture
def freeze():
    """freeze(pid, whether): a process in a control group that is frozen, as a paused container is."""
    groups = [front.GROUPS, front.GROUPS / "unified"]
    root = next(place for place in groups if (place / "cgroup.controllers").exists())
    group = root / f"ptanalyze-frozen.{os.getpid()}"
    group.mkdir()

    def call(pid, whether):
        (group / "cgroup.procs").write_text(str(pid))
        (group / "cgroup.freeze").write_text(str(int(whether)))
        assert wait_for(lambda: f"frozen {whether:d}" in (group / "cgroup.events").read_text())

    yield call
    assert wait_for(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


def tried_once(pid, killed=False):
    """(exit status, whether its segment stays) of a tool that is interrupted, or its process killed."""
    command = [relocating.TESTED, "--yes", "--max-pause", "50000", str(pid)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as tool:
        has_segment = lambda: f" {tool.pid} " in Path("/proc/sysvipc/shm").read_text()  # noqa: E731
        assert wait_for(has_segment)
        os.kill(*((pid, signal.SIGKILL) if killed else (tool.pid, signal.SIGINT)))
        return tool.wait(30), killed and has_segment()


@pytest.mark.parametrize("killed", [0, 1])
def test_a_frozen_process_goes_on_once_thawed(program, freeze, killed):
    """Its thread is set to a chain that it begins long after the tool, or two of them, have ended."""
    with target(program, "write", 8, 2) as one:
        one.counts()
        before = running(one.pid)
        freeze(one.pid, True)
        for _ in range(killed):
            relocate(one.pid, "--yes", die_at=5)
        assert tried_once(one.pid) == (3, False)
        freeze(one.pid, False)
        assert as_before(one.pid, before) and one.counts()
        moved(one.pid, "--max-pause", 0)
        freeze(one.pid, True)
        assert tried_once(one.pid, killed=True) == (3, False)


def segments(pid):
    """Attachments of each System V segment in its namespace."""
    command = ["nsenter", "-i", "-t", str(pid), "cat", "/proc/sysvipc/shm"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [int(line.split()[6]) for line in lines[1:]]


@pytest.mark.parametrize("step", DEATHS)
def test_killed_at_any_step_no_segment_stays(program, step):
    """It is the tool's alone between its making and the thread's registers; there the next run removes it."""
    with target(program, "write", 8, 2, first=("unshare", "-i")) as one:
        relocate(one.pid, "--yes", die_at=step)
        if step == 4:
            assert segments(one.pid) == [0]
            moved(one.pid)
        assert wait_for(lambda: 0 not in segments(one.pid))


def test_a_way_back_that_fails_is_tried_again(writer):
    before = running(writer.pid)
    _, tally = moved(writer.pid, "--max-pause", 0, refusals=2)
    assert tally["retries"] >= 2 and as_before(writer.pid, before)
    writer.counts()


def test_a_way_back_that_keeps_failing_stops_the_process_and_says_where_its_memory_is(program):
    with target(program, "write", 8, 2) as one:
        one.counts()
        done, _ = relocate(one.pid, "--yes", refusals=1 << 30)
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        words = done.stderr.split()
        away = int(words[words.index("from") + 1], 16)
        assert wait_for(lambda: all(stopped for stopped, *_ in threads(one.pid)))
        assert away in areas(one.pid) and int(words[words.index("at") + 1], 16) not in areas(one.pid)
        with pytest.raises(UsageError, match="it is stopped"):
            front.plan(one.pid, None)


def test_threads_that_take_longer_to_stop_than_a_pause_are_refused(program):
    """Nothing is held for what cannot succeed, and the pause that is named suffices."""
    with target(program, "write", 8, 40) as one:
        done, (plan,) = relocate(one.pid, "--yes", "--max-pause", 10)
        assert plan["threads"] > 32 and done.returncode == 2 and done.stderr.count("\n") == 1
        assert int(re.search(r"--max-pause of (\d+)", done.stderr)[1]) >= 1000
        moved(one.pid, "--max-pause", 0)


REFUSED = dict.fromkeys(("shared", "vfork"), "shares its memory")
REFUSED |= {"iouring": "is of io_uring", "userfaultfd": "is of userfaultfd", "traced": "it is being traced"}
REFUSED |= {"seccomp": "seccomp filters its system calls", "near": "close to its RLIMIT_AS"}
REFUSED |= {"stopped": "it is stopped; continue it first"}
REFUSED |= {"private": "a thread may not be traced by its own user"}


@pytest.mark.parametrize("mode", REFUSED)
def test_what_is_refused_is_named_and_left_alone(program, mode):
    with target(program, mode) as one:
        ready = state if mode == "stopped" else lambda pid: relocate(pid, "--yes")[0].returncode
        assert wait_for(lambda: ready(one.pid) in ("T", 2))
        for options in ((), ("--yes",)):
            done, _ = relocate(one.pid, *options)
            assert done.returncode == 2 and REFUSED[mode] in done.stderr and done.stderr.count("\n") == 1
        assert one.process.poll() is None


@pytest.mark.parametrize("own_proc, code", [((), 2), (("--mount-proc",), 0)])
def test_threads_are_listed_in_a_proc_of_its_own_namespace_or_nothing_is_moved(program, own_proc, code):
    with target(program, "write", 8, 2, first=("unshare", "-pf", "--kill-child", *own_proc)) as one:
        done, _ = relocate(int(children(one.pid)[0]), "--yes")
        assert done.returncode == code and ("another PID namespace" in done.stderr) == bool(code), done
        assert one.counts()


def test_a_thread_whose_system_calls_are_dispatched_to_itself_carries_nothing(program):
    with target(program, "dispatch") as one:
        done, (_, tally) = relocate(one.pid, "--yes")
        assert done.returncode == 3 and "has syscall user dispatch" in tally["gave_up"]
        assert one.process.poll() is None


def test_a_main_thread_may_have_ended(pt, program, tmp_path):
    with target(program, "zombie") as one:
        assert wait_for(lambda: state(one.pid) == "Z")
        moved(one.pid)
        assert not pt("relocate", one.pid).code
        assert not pt("dump", "process", one.pid, "-o", tmp_path / "dump").code
        words = ["--tracer", "heat", "--for", "0.2s"]
        assert not pt("record", "-p", one.pid, *words, "-o", tmp_path / "heat").code
        assert pt("check", tmp_path / "dump").code == 0
        done = pt("survey", "--top", 1000, "--json")
        assert one.pid in [row["pid"] for row in json.loads(done.out)["result"]], done
        assert alive(one.pid) and trial.largest(one.pid) == one.pid


def test_a_name_that_looks_like_a_state_and_is_no_utf_8_harms_no_command(pt, program, tmp_path):
    name = os.fsencode(tmp_path) + b"/) Z \xff\x1b[2J\n"
    shutil.copy(program, name)
    with target(name, "write", 8, 1) as one:
        one.counts()
        ran = [pt("relocate", one.pid), pt("relocate", one.pid, "--yes", "--max-pause", 50)]
        dump = "dump", "process", one.pid, "-o"
        ran += [pt(*dump, tmp_path / "alone"), pt(*dump, tmp_path / "all", "--tree")]
        heat = "--tracer", "heat", "--for", "0.2s", "-o", tmp_path / "heat"
        ran += [pt("record", "-p", one.pid, *heat), pt("survey", "--top", 1000)]
        assert {done.code for done in ran} == {0} and str(one.pid) in ran[-1].out, ran
        assert "\x1b" not in "".join(done.out + done.err for done in ran)
        one.counts()


def test_a_32_bit_program_is_refused(tmp_path):
    source = "mov $29, %eax; int $0x80; jmp _start"  # pause, again and again
    (tmp_path / "small.S").write_text(f".globl _start\n_start: {source}\n")
    build = ["gcc", "-m32", "-nostdlib", "-static", "-no-pie", "-o", tmp_path / "small", tmp_path / "small.S"]
    subprocess.run(build, check=True)
    with subprocess.Popen([tmp_path / "small"]) as small:
        done, _ = relocate(small.pid)
        small.kill()
    assert done.returncode == 2 and "32-bit" in done.stderr


def test_ranges_that_cannot_be_moved_are_left_out_and_named(program):
    left = {"locked": "locked", "mergeable": "KSM", "sealed": "sealed", "shared": "shared"}
    left |= {"file": "file", "huge": "huge pages", "onfault": "locked", "hugetlb": "hugetlb"}
    with target(program, "areas") as one:
        before = running(one.pid)
        can_seal = any(" sl" in " ".join(lines) for lines in before[0].values())
        plan, tally = moved(one.pid)
        for name, address in one.words.items():
            if name in ("pid", "sealed" if not can_seal else ""):
                continue
            at = int(address, 16)
            [(*_, why)] = [row for row in plan["ranges"] if row[0] <= at < row[1]]
            assert why == left.get(name), name
        [vvar] = [lines[0].split("-")[0] for lines in before[0].values() if lines[0].endswith("[vvar]")]
        [(*_, why)] = [row for row in plan["ranges"] if row[0] == int(vvar, 16)]
        assert why in ("page frames of a device", "device memory"), "what the kernel maps by page frames"
        assert as_before(one.pid, before)
        assert one.ask()["wrong"] == "0"
        assert tally["bytes"] >= 6 * 4 << 20


OF_DEVICES = {"/dev/vhost-net": "vhost", "/dev/kvm": "KVM", "/dev/nvidia0": "a GPU", "/dev/vfio/vfio": "VFIO"}
OF_DEVICES |= {"/dev/infiniband/uverbs0": "RDMA", "/dev/dsa/wq0.0": "an accelerator"}


@pytest.mark.parametrize("path", OF_DEVICES)
def test_who_may_use_memory_by_address_is_named_by_his_descriptor(program, path):
    """In a /dev of its own, as this machine has none of them."""
    made = f"mount -t tmpfs none /dev; mkdir -p $(dirname {path}); : > {path}; exec {program} {path}"
    with target("-c", made, first=("unshare", "-m", "sh")) as one:
        done, _ = relocate(one.pid, "--yes")
        assert done.returncode == 2 and f"is of {OF_DEVICES[path]}, which may use" in done.stderr, done.stderr


def test_what_the_kernel_knows_by_address_goes_on(program):
    """membarrier, restartable sequences and robust futexes are per thread or memory; the clone has none."""
    with target(program, "kernel", 16) as one:
        for _ in range(3):
            moved(one.pid)
        assert one.ask() == {"held": "1", "barrier": "0", "wrong": "0", "died": "1"}


def test_a_thread_that_nothing_can_stop_ends_in_a_bound(program):
    """State D, of a parent that vfork's flag holds: its child has memory of its own, so it is not refused."""
    with target(program, "waits", 8) as one:
        assert wait_for(lambda: state(one.pid) == "D")
        before = areas(one.pid)
        done, _ = relocate(one.pid, "--yes")
        assert done.returncode == 3 and areas(one.pid) == before, done
        assert not any(stopped or tracer != "0" for stopped, tracer, _ in threads(one.pid))


@pytest.fixture
def full_group(tmp_path_factory):
    """A control group whose memory is limited: join(pid, spare) leaves it so many bytes."""
    newer = (front.GROUPS / "cgroup.controllers").exists()
    group = (front.GROUPS if newer else front.GROUPS / "memory") / f"ptanalyze-test.{os.getpid()}"
    if newer:
        (front.GROUPS / "cgroup.subtree_control").write_text("+memory")
    group.mkdir()

    def join(pid, spare):
        (group / "cgroup.procs").write_text(str(pid))
        used = int((group / ("memory.current" if newer else "memory.usage_in_bytes")).read_text())
        (group / ("memory.max" if newer else "memory.limit_in_bytes")).write_text(str(used + spare))

    yield join
    wait_for(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


def test_a_group_without_memory_for_tables_is_refused(pt, program, full_group):
    with target(program, "sleep", 8) as one:
        full_group(one.pid, 1 << 20)
        done = pt("relocate", one.pid, "--yes")
        assert is_one_line(done, 2) and "below its memory limit" in done.err
        full_group(one.pid, 64 << 20)
        assert pt("relocate", one.pid, "--yes", "--max-pause", 50).code == 0


def test_stacks_without_room_are_left_alone(program):
    with target(program, "stacks", 8) as one:
        for _ in range(30):
            done, _ = relocate(one.pid, "--yes")
            assert done.returncode in (0, 3) and one.process.poll() is None, done
        said = one.ask()
        assert not leaves(one.pid) and int(said["rounds"]) and said["damaged"] == said["wrong"] == "0"


@pytest.mark.parametrize("mode", ["spawn", "signals", "churn", "share"])
def test_programs_that_start_others_or_change_their_memory_go_on(program, mode):
    """Attempts may be lost: a thread that waits for its child does not stop; ranges may be gone."""
    with target(program, mode, 16, 2) as one:
        added = one.counts()
        for _ in range(5):
            done, _ = relocate(one.pid, "--yes")
            assert done.returncode in (0, 2, 3) and "Sanitizer" not in done.stderr, done.stderr
        assert one.counts() > added
        assert wait_for(lambda: not any(stopped or tracer != "0" for stopped, tracer, _ in threads(one.pid)))


def test_a_timed_wait_ends_early_only_where_no_other_thread_can_carry_it(program):
    with target(program, "sleep", 8) as one:
        assert wait_for(lambda: state(one.pid) == "S")
        _, tally = moved(one.pid)
        assert tally["interrupted"] >= 1
        assert one.said() == {"early": "1"}


def test_the_command_says_what_it_would_do_does_it_and_proves_it(pt, writer):
    before = areas(writer.pid)
    dry, words = pt("relocate", writer.pid), "rebuilt        16 leaf tables"
    if len(usable_nodes()) == 1:
        words = r"^PID \d+ \(.*\): nothing to relocate: 16 leaf tables could be rebuilt, .* node 0 already\n$"
    assert dry.code == 0 and re.search(words, dry.out)
    plan = json.loads(pt("relocate", writer.pid, "--json").out)["result"]
    assert sum(plan["rebuilt_tables"].values()) == 16 and plan["pid"] == writer.pid
    assert pt("relocate", writer.pid, "--json", "--yes").code == 2
    assert areas(writer.pid) == before
    done = pt("relocate", writer.pid, "--yes", "--to", 0, "--max-pause", 50)
    assert done.code == 0, done
    assert "of 16 lie in another page frame than before" in done.out
    assert "areas               as before" in done.out
    writer.counts()


def test_one_command_at_a_time_changes_a_process(pt, writer, monkeypatch):
    monkeypatch.setattr(trial, "two_nodes", lambda near, far: None)
    with ExitStack() as stack:
        hold(stack, writer.pid, "another")
        for words in (["relocate", "--to", 0, "--yes"], ["trial", "--figure-of", "date +%s", "-p"]):
            refused = pt(*words, writer.pid)
            assert is_one_line(refused, 2) and "another of PID" in refused.err
        assert pt("relocate", writer.pid).code == 0
    unneeded = pt("relocate", writer.pid, "--yes", "--max-pause", 50)
    assert unneeded.code == 0 and "nothing to relocate" in unneeded.out


def test_leaf_tables_elsewhere_are_those_of_what_would_be_moved():
    ranges = front.Range(0, 4 << 20, 4 << 20, ""), front.Range(8 << 20, 10 << 20, 2 << 20, "file")
    base, node = np.array([0, 2, 8], np.uint64) << np.uint64(20), np.array([0, 1, 1], np.int16)
    tables = front.Tables(base, np.arange(3), node, np.zeros((3, 3), np.int64))
    plans = [front.Plan(1, to, 1, ranges) for to in (0, 1)]
    assert [front.plan_record(one, tables)["far_tables"] for one in plans] == [1, 1]
    assert front.plan_record(plans[0], tables)["rebuilt_tables"] == {0: 1, 1: 1}
    assert front.far(plans[1], front.Tables(base, np.arange(3), node * 0 + 1, tables.pages)) == 0
    assert "rebuilt        2 leaf tables of 4.0 MiB in 1 range: 1 on" in front.described(plans[0], tables)[3]
    assert "2 leaf tables could" in front.at_home(plans[1], tables)
    assert "can be rebuilt (file)" in front.at_home(front.Plan(1, 0, 1, ranges[1:]), tables)


# Without a process.


def test_a_reset_that_is_interrupted_leaves_the_mitigation_as_it_was(tmp_path):
    (setting := tmp_path / "nx_huge_pages").write_text("Y\n")
    line = RESET.removeprefix("sudo ").replace("/sys/module/kvm/parameters", str(tmp_path))
    with subprocess.Popen(line, shell=True, process_group=0) as reset:
        assert wait_for(lambda: setting.read_text() == "N\n")
        os.killpg(reset.pid, signal.SIGTERM)
    assert wait_for(lambda: setting.read_text() == "Y\n")


def test_areas_that_differ_are_told_for_the_ranges_that_were_moved_alone():
    moved = [front.Range(0x1000, 0x3000, 8192, ""), front.Range(0x5000, 0x6000, 4096, "")]
    before = {0x1000: ("1000-3000 rw-p", "rd wr"), 0x5000: ("5000-6000 rw-p",), 0x9000: ("9000-a000 r--p",)}
    after = {0x1000: ("1000-2000 rw-p", "rd wr"), 0x5000: ("5000-6000 rw-p",)}
    [line] = front.differences(before, after, moved)
    assert line == "1000-3000: was 1000-3000 rw-p rd wr, is 1000-2000 rw-p rd wr"
    assert not front.differences(before, before, moved)


@pytest.mark.parametrize("current, files, spare", [(90 << 20, 60 << 20, 70 << 20), (99 << 20, 0, 1 << 20)])
def test_memory_that_files_take_can_be_had(tmp_path, current, files, spare):
    def left(**said):
        for name, text in said.items():
            (tmp_path / f"memory.{name}").write_text(f"{text}\n")
        return front.spare_bytes(tmp_path)

    stat = f"anon 5\ninactive_file {files}\nactive_file 0"
    assert left(max=100 << 20, high="max", current=current, stat=stat) == spare
    assert left(high=95 << 20) == left(max="max") == spare - (5 << 20) and left(high="max") is None
    (tmp_path / "memory.max").unlink()
    stat = f"total_inactive_file {files}\ntotal_active_file 0"
    assert left(limit_in_bytes=100 << 20, usage_in_bytes=current, stat=stat) == spare
    assert left(limit_in_bytes=9223372036854771712) is None
    assert {front.GROUPS, front.GROUPS / "memory"} & {*front.memory_groups(os.getpid())}, "a container's own"


# Trials: with two nodes they are tried in the lab.


def window(far, rate, tables, counts=()):
    return trial.Window(far, rate, tables, 1.0, dict(counts))


def test_counters_are_those_of_the_measured_time_without_such_as_were_shared(tmp_path, monkeypatch):
    (tmp_path / "perf").symlink_to(PROGRAMS / "perf.sh")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    events = counted_here()
    (tmp_path / "ready").unlink()  # it has tried whether perf counts
    with trial.counting(os.getpid(), events) as counts:
        assert not counts and wait_for((tmp_path / "ready").exists)
    assert counts == dict.fromkeys(("cycles", "instructions", "dtlb_load_misses.walk_pending"), 1000.0)


def test_the_last_move_of_a_trial_is_whole_or_what_to_type_is_said(monkeypatch):
    def moved_in_part(pid, to, pause):
        os.kill(os.getpid(), signal.SIGINT)  # no second Ctrl-C ends it
        return SimpleNamespace(whole=False)

    monkeypatch.setattr(trial, "relocate", moved_in_part)
    monkeypatch.setattr(trial, "counted_here", tuple)
    monkeypatch.setattr(trial, "plan", lambda pid, to: SimpleNamespace(node=0))
    said = []
    with pytest.raises(KeyboardInterrupt), ExitStack() as stack:
        trial.try_live(stack, os.getppid(), "echo 1", near=0, far=1, seconds=1, pairs=1, say=said.append)
    assert said == [f"tables are far: {as_root(anywhere=True)} relocate {os.getppid()} --to 0 --yes"]


def test_counters_and_run_times_of_both_placements_calibrate(pt, tmp_path):
    """Counts of windows with tables far are of less work."""
    far = {"cycles": 10e9, "dtlb_load_misses.walk_pending": 4e9, "dtlb_store_misses.walk_pending": 0.0}
    near = far | {"dtlb_load_misses.walk_pending": 2e9}
    windows = window(True, 100.0, 0.999, far.items()), window(False, 125.0, 0.001, near.items())
    one = trial.Trial(10.0, windows)
    assert one.slowdown == pytest.approx(1.25)
    write(str(tmp_path / "app.toml"), one)
    stored = (tmp_path / "app.far.csv").read_text()
    assert stored.startswith("12500000000,,cycles,1,100.00,,\n5000000000,,dtlb_load")
    said = pt("calibrate", tmp_path / "app.toml", "--predict", "L:0.0010,R:0.9990", "--json")
    [row] = json.loads(said.out)["result"]["predictions"]
    assert row["middle"] == pytest.approx(1.25, abs=0.02), said


def test_a_trial_says_how_much_longer_the_work_of_a_window_takes(tmp_path, capfd):
    rates = [(100.0, 130.0), (100.0, 120.0), (90.0, 117.0)]
    windows = [one for a, b in rates for one in (window(True, a, 0.999), window(False, b, 0.01))]
    done = trial.Trial(10.0, tuple(windows))
    assert done.slowdown == pytest.approx(1.3) and done.slowdowns == pytest.approx([1.3, 1.2, 1.3])
    slower = trial.Trial(10.0, (window(True, 100.0, 0.999), window(False, 90.0, 0.01)))
    write(str(tmp_path / "none.toml"), slower)
    assert "not written" in capfd.readouterr().err and not (tmp_path / "none.toml").exists()


def test_a_trial_without_two_nodes_is_refused_in_one_line(pt):
    figure = ["--figure-of", "echo 1"]
    for words in ([], ["-p", 1, "--", "true"], ["-p", 1], ["--", "true"], [*figure, "--", "true"]):
        assert is_one_line(pt("trial", *words), 2)
    assert is_one_line(pt("trial", "--near", 0, "--far", 0, *figure, "-p", os.getppid()), 2)


@pytest.mark.parametrize("command", ["echo many", "true", "cat /nonexistent"])
def test_a_figure_that_is_no_number_is_named(tmp_path, command):
    with pytest.raises(UsageError, match="--figure-of"):
        trial.count_of(command)
    assert trial.count_of("echo done 12.5") == 12.5
    assert trial.count_of(f"cd {tmp_path}; echo >> read; test $(wc -l < read) = 8 && echo 5") == 5
