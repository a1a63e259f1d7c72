"""Pages of running processes become huge and small again; their contents and owners never change."""

import ctypes
import errno
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

import ptanalyze as pt
from native.dumping import PROGRAMS, wait_for
from needs import needs_root
from ptanalyze.capture.live import process
from ptanalyze.capture.live.process import stat_fields
from ptanalyze.cli import run
from ptanalyze.core.errors import PartialDataError, UsageError
from ptanalyze.core.process import ASKED as ENDS
from ptanalyze_host.dump import descendants
from ptanalyze_pages import blocks, figure, trial_command
from ptanalyze_pages import trial as engine
from ptanalyze_pages.blocks import HUGE, Blocks, doubts, undone, write_found
from ptanalyze_pages.far_tables import begun
from ptanalyze_pages.trial import Measured, over, paired
from ptanalyze_pages.trial_command import lines_of

pytestmark = needs_root
AREA, BLOCKS = 8 << 20, 4
PR_SET_THP_DISABLE = 41
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    built = tmp_path_factory.mktemp("pages") / "pages"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run(["cc", *flags, "-o", built, PROGRAMS / "pages.c"], check=True)
    return built


class Areas:
    """A running program of areas; at: {name: address}."""

    def __init__(self, process):
        self.process, self.pid = process, process.pid
        words = process.stdout.readline().split()[1:]
        self.at = {name: int(address, 16) for name, address in (word.split("=") for word in words)}

    def added(self, first="?"):
        """What its threads have added; whatever was written is there. first: f forks a child, e ends it."""
        self.process.stdin.write(first)
        self.process.stdin.flush()
        wrong, added = (int(word.split("=")[1]) for word in self.process.stdout.readline().split())
        assert wrong == 0
        return added

    def inside(self, name, addresses):
        return np.count_nonzero((addresses >= self.at[name]) & (addresses < self.at[name] + AREA))


@contextmanager
def running(program, writers=0, **how):
    with subprocess.Popen([program, str(writers)], **PIPES, **how) as process:
        try:
            yield Areas(process)
        finally:
            process.kill()


@pytest.fixture
def areas(program):
    with running(program) as one:
        yield one
        assert one.added() == 0


@contextmanager
def pages_of(pid, least=0.9, memory=1 << 30, changer=""):
    with ExitStack() as stack:
        yield Blocks(stack, pid, least, memory, changer=changer)


def huge_areas(pid):
    """{start: bytes in huge pages} of the areas in /proc/PID/smaps that have some."""
    text = Path(f"/proc/{pid}/smaps").read_text()
    found = re.findall(r"^([0-9a-f]+)-.*?^AnonHugePages: +(\d+)", text, re.M | re.S)
    return {int(start, 16): int(size) << 10 for start, size in found if int(size)}


def rss(pid):
    return int(re.findall(r"RssAnon:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]) << 10


def test_filled_private_blocks_alone_are_changed(areas):
    with pages_of(areas.pid) as pages:
        assert areas.inside("full", pages.address) == BLOCKS == len(pages.address)
        assert not pages.was_huge.any() and not pages.holes.any()
        assert pages.left["locked"] == pages.left["MADV_NOHUGEPAGE or MAP_STACK"] == BLOCKS
        assert pages.left["shared with another process, until that ends"] == BLOCKS
        assert pages.left["filled to less than 90 %"] == pages.left[blocks.LAZY] == BLOCKS
        assert pages.collapse(pages.all()) == BLOCKS and not pages.refused
        assert huge_areas(areas.pid) == {areas.at["full"]: AREA} and pages.shares()[0] == AREA
        assert areas.added() == 0
        pages.split(pages.all())
        assert not huge_areas(areas.pid) and pages.shares()[0] == 0


def test_huge_as_found_is_huge_afterwards(areas):
    with pages_of(areas.pid) as pages:
        pages.collapse(np.array([1, 2]))
    with pages_of(areas.pid) as pages:
        assert pages.was_huge.tolist() == [False, True, True, False]
        pages.collapse(pages.all())
        pages.restore()
        assert huge_areas(areas.pid) == {areas.at["full"]: 2 * HUGE}
        pages.split(pages.all())
        assert not pages.shares()[0]
        pages.restore()
    with pages_of(areas.pid) as pages:
        assert pages.was_huge.tolist() == [False, True, True, False]


def test_an_old_kernel_does_not_tell_which_blocks_of_an_area_are_huge(areas, monkeypatch):
    with pages_of(areas.pid) as pages:
        pages.collapse(np.array([1, 2]))
    monkeypatch.setattr(blocks.fcntl, "ioctl", Mock(side_effect=OSError(errno.ENOTTY, "PAGEMAP_SCAN")))
    with pytest.raises(UsageError, match="4 blocks: of an area with some"), pages_of(areas.pid):
        pass
    with pages_of(areas.pid, least=0) as pages:  # to undo
        pages.collapse(pages.all())
    with pages_of(areas.pid) as pages:
        assert areas.inside("full", pages.address[pages.was_huge]) == BLOCKS


ZEROS = """import mmap; area = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
area[::4096] = bytes(page % 3 == 0 and page < 2048 for page in range(4096)); print(flush=True); input()"""


def test_pages_of_zeros_are_pages_of_their_own_after_a_split():
    """Touched in advance: Linux frees them where it splits a huge page."""
    with subprocess.Popen([sys.executable, "-c", ZEROS], **PIPES) as process:
        process.stdout.readline()
        with pages_of(process.pid) as pages:
            before = rss(process.pid)
            for back in (lambda: pages.split(pages.all()), pages.restore):
                assert pages.collapse(pages.all()) >= 7
                back()
                assert abs(rss(process.pid) - before) < 1 << 18
            write_found(pages)
            pages.collapse(pages.all())
            pages.filled[:] = 0  # killed before it gave them back
            pages.split(pages.all())
            found = blocks.record_of(pages)
            for huge in (found.huge, found.blocks):
                msgspec.structs.replace(found, huge=huge).write(pages.record)
                with pages_of(process.pid, 0) as again:
                    assert not blocks.undo(again)[process.pid] and sum(again.huge()) == len(huge)
                assert abs(rss(process.pid) - before) < 1 << 18
                pages.filled[:] = 0
                pages.split(pages.all())
        process.communicate("\n")


def test_holes_take_no_more_than_the_bound(areas):
    before = rss(areas.pid)
    with pages_of(areas.pid, least=0.4, memory=2 * HUGE) as pages:
        assert areas.inside("half", pages.address) == BLOCKS and len(pages.address) == 2 * BLOCKS
        assert pages.collapse(pages.all()) == 2 * BLOCKS and pages.added == BLOCKS * HUGE // 2
        pages.split(pages.all())
        pages.memory = HUGE
        pages.refused.clear()
        assert pages.collapse(pages.all()) == 2 * BLOCKS - 2 and pages.added == HUGE
        assert pages.refused == {"beyond --memory": 2}
        assert rss(areas.pid) <= before + 2 * HUGE + (1 << 20)
        pages.restore()


@pytest.mark.parametrize("pause", ["0", "1"])
@pytest.mark.parametrize(("memory", "free", "made"), [("4M", 9, 8), ("2M", 9, 6), ("0", 9, 4), ("4M", 2, 6)])
def test_a_plan_keeps_to_the_bound_as_what_is_done_does(
    areas, capsys, monkeypatch, memory, free, made, pause
):
    """Bounds: --memory, and free memory, in blocks above what stays free."""
    before = rss(areas.pid) + blocks.RESERVE + free * HUGE + HUGE // 4
    monkeypatch.setattr(blocks, "spare", lambda pid: before - rss(pid))
    words = ["hugepages", str(areas.pid), "--least", "40", "--memory", memory, "--pause", pause]
    done, held = blocks.Blocks.advise, set()  # each block is held by something else for a moment
    late = lambda of, at: of != blocks.MADV_COLLAPSE or at in held or held.add(at)  # noqa: E731
    monkeypatch.setattr(blocks.Blocks, "advise", lambda *of: done(*of) if late(of[3], of[1]) else "EAGAIN")
    for more, said in (([], f"would make {made} huge"), (["--yes"], f"made huge      {made} blocks")):
        assert run([*words, *more]) == 0
        assert said in (told := capsys.readouterr().out)
        why = "beyond --memory" if free > 4 else blocks.SHORT
        assert (f"{8 - made} blocks: {why}" in told) == (made < 8)
    assert run(["hugepages", str(areas.pid), "--undo"]) == 0


def test_nothing_is_collapsed_or_planned_without_free_memory(areas, monkeypatch, capsys):
    monkeypatch.setattr(blocks, "spare", lambda pid: blocks.RESERVE)
    assert run(["hugepages", str(areas.pid)]) == 0 and "would make 0 huge" in capsys.readouterr().out
    with pages_of(areas.pid) as pages:
        assert pages.collapse(pages.all()) == 0
        assert pages.refused == {blocks.SHORT: BLOCKS} and not huge_areas(areas.pid)


def test_shared_and_swapped_pages_make_doubts():
    words = np.full((3, 512), 1 << 63 | 1 << 56 | 77, np.uint64)
    words[0, 5] = 1 << 63 | 78
    words[1, 5] = 1 << 63 | 9  # zeros
    words[1, 6] = 0
    words[2, 7] = 1 << 62
    own, holes, doubt = doubts(words, zero=9)
    assert own.sum(1).tolist() == [511, 510, 511] and holes.tolist() == [0, 1, 1]
    assert doubt.tolist() == [[False, False, True], [False] * 3, [True, False, False]]


def test_what_changes_no_block_measures_nothing(program, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(blocks, "spare", lambda pid: blocks.RESERVE)
    file = tmp_path / "app.toml"
    with running(program, 1) as one:
        of = ["-p", str(one.pid), "--figure-of", "date +%s%N", "--time", "3s"]
        for words in (["hugepages", str(one.pid), "--yes"], ["trial", "--pages", "-o", str(file), *of]):
            assert run(words) == 3 and f"4 blocks: {blocks.SHORT}" in capsys.readouterr().err
        assert not file.exists() and not list(pt.live.RECORDS.glob(f"{one.pid}-*"))


def test_calls_alone_go_before_other_programs(areas, monkeypatch):
    """A call that is preempted holds the memory's lock: 0.4 s for 1.9 s of it on a busy machine."""
    real, seen = blocks.kernel.syscall, set()

    def syscall(*words):
        seen.add(os.sched_getscheduler(0))
        return real(*words)

    monkeypatch.setattr(blocks.kernel, "syscall", syscall)
    before = os.sched_getscheduler(0)
    with pages_of(areas.pid) as pages:
        pages.collapse(pages.all())
        pages.split(pages.all())
    assert seen <= {before, os.SCHED_RR | os.SCHED_RESET_ON_FORK} and os.sched_getscheduler(0) == before


def test_no_write_is_lost_over_many_turns(program):
    with running(program, 2) as one, pages_of(one.pid) as pages:
        before, made = one.added(), 0
        for turn in range(60):
            made += pages.collapse(pages.all())
            pages.split(pages.all())
            if turn % 20 == 0:
                one.added()
        pages.restore()
        assert made > 60 and one.added() > before and not huge_areas(one.pid)


def trial(pid, *options, **how):
    command = [sys.executable, "-m", "ptanalyze", "trial", "--pages", "-p", str(pid), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)


def turning(pid):
    """PID of a process that makes pages huge and small in turns, once it has begun."""
    begun, begin = os.pipe()
    if child := os.fork():
        os.read(begun, 1)
        os.close(begun)
        os.close(begin)
        return child
    try:
        with pages_of(pid, changer="a test") as pages, undone(pages):
            os.write(begin, b"!")
            while True:
                pages.collapse(pages.all())
                pages.split(pages.all())
    finally:
        os._exit(0)


@pytest.mark.parametrize("number", [*ENDS, signal.SIGKILL])
def test_ended_at_any_moment_it_leaves_a_correct_process(program, number):
    """Small again, too, where the tool can still do it."""
    chance = random.Random(os.getpid() + number)
    with running(program, 1) as one:
        for _ in range(8):
            tool = turning(one.pid)
            time.sleep(chance.uniform(0, 0.1))
            os.kill(tool, number)
            os.waitpid(tool, 0)
            assert number == signal.SIGKILL or not huge_areas(one.pid)
            one.added()


def test_command_undoes_at_its_end_or_later(program, capsys):
    """Another one is refused meanwhile."""
    with running(program, 1) as one:
        pid = str(one.pid)
        for number in (signal.SIGTERM, signal.SIGKILL):
            tool = trial(one.pid, "--figure-of", "date +%s%N", "--for", "30ms", "--time", "6s")
            assert any("--undo" in tool.stderr.readline() for _ in range(2))
            assert wait_for(lambda: huge_areas(one.pid), 3600)
            for command in ("trial --pages -p", "hugepages --yes", "hugepages --undo", "hugepages"):
                assert run([*command.split(), pid]) == 2
                assert f"trial --pages of PID {pid} runs since" in capsys.readouterr().err
            tool.send_signal(number)
            tool.communicate()
            assert tool.returncode == (-number if number == signal.SIGKILL else 128 + number)
            assert number == signal.SIGKILL or not huge_areas(one.pid)
        assert run(["trial", "--pages", "-p", pid]) == 2
        assert f"hugepages {pid} --undo" in capsys.readouterr().err
        with pages_of(one.pid) as pages:
            pages.split(pages.all())
        assert run(["hugepages", pid]) == 0 and f"hugepages {pid} --undo" in capsys.readouterr().out
        with pages_of(one.pid) as pages:
            assert pages.in_row.all() and blocks.record_of(pages) and not any(blocks.undo(pages).values())
            assert not blocks.record_of(pages) and not huge_areas(one.pid)
        one.added()


def test_a_trial_of_a_program_that_ends_has_its_pairs(program):
    with running(program, 1) as one:
        how = ["--figure-of", "date +%s%N", "--for", "30ms", "--time", "60s", "--precision", "0.01"]
        tool = trial(one.pid, *how)
        assert any(line.startswith("pair 3") for line in tool.stderr)
    said, _ = tool.communicate()
    assert tool.returncode == 0 and re.search(r"it ended after \d pairs", said) and "hugepages" not in said


@pytest.mark.parametrize("more", ["--pause 9000", "--for 60s"])
def test_hugepages_ends_as_its_signal_says_and_nothing_is_left(program, more):
    with running(program, 1) as one:
        words = ["hugepages", str(one.pid), "--yes", *more.split()]
        tool = subprocess.Popen([sys.executable, "-m", "ptanalyze", *words], **PIPES)
        assert time.sleep(2) or "--for" in more or wait_for(lambda: huge_areas(one.pid), 3600)
        tool.send_signal(signal.SIGHUP)
        said, _ = tool.communicate()
        assert (
            tool.returncode == 129 and not huge_areas(one.pid) and ("--undo" in said) == ("--pause" in more)
        )
        assert not list(pt.live.RECORDS.glob(f"{one.pid}[-.]*"))


def test_records_of_ended_processes_alone_are_removed(areas, tmp_path, monkeypatch):
    monkeypatch.setattr(process, "RECORDS", tmp_path)
    started = stat_fields(f"/proc/{areas.pid}")[19]
    monkeypatch.setattr(process, "LATEST", 2)
    kept = [f"{areas.pid}-{started}.{kind}" for kind in ("json", "lock")] + ["others.json", "4999999-11.json"]
    for name in (*kept, f"{areas.pid}-1.lock", "4999999-9.json", "4999999-11.lock"):
        (tmp_path / name).touch()
    process.forget_ended()
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(kept)


def test_hugepages_of_a_process_are_made_and_undone(program, capsys):
    with running(program, 1) as one:
        pid = str(one.pid)
        for words, there, said in (
            ("--top 3 --memory 64M --for 1s --least 90", 0, "--yes --for 1s --top 3 --least 90 --memory 64M"),
            ("--yes --top 3", 3, f"{pid} --undo"),
            ("--yes --for 1s", 4, "made huge      1 block,"),
            ("", 4, f"hugepages {pid} --undo"),
            ("--undo", 0, "4 blocks small again, 0 blocks huge again"),
        ):
            assert run(["hugepages", pid, *words.split()]) == 0
            assert sum(huge_areas(one.pid).values()) == there * HUGE and one.added()
            assert said in capsys.readouterr().out
        assert run(["hugepages", pid]) == 0
        assert "4 blocks: locked" in capsys.readouterr().out
        with subprocess.Popen(["sleep", "9"]) as small:  # it has no block of 2 MiB
            for whose in (pid, str(small.pid)):
                assert run(["hugepages", whose, "--undo"]) == 0
                assert "nothing to undo" in capsys.readouterr().out
            small.kill()
        assert run(["hugepages", "4194304", "--undo"]) == 2 == run(["hugepages", pid, "--cold"])
        assert run(["hugepages", "lookup", "--yes"]) == 2


def test_a_process_is_named_by_number_option_or_name(program, tmp_path, capsys, monkeypatch):
    """A sample of that name is the sample still, a program is its process."""
    own = shutil.copy(program, tmp_path / "pt_named")
    monkeypatch.chdir(tmp_path)
    with running(own) as one:
        assert len(pt.live.named("pt_named")) == 2  # a child, as of a server that saves
        for words in ([str(one.pid)], ["-p", str(one.pid)], ["-p", "pt_named"], ["pt_named"]):
            assert run(["hugepages", *words]) == 0
            assert f"PID {one.pid} (pt_named): " in capsys.readouterr().out
        with running(own) as two:
            assert run(["hugepages", "pt_named"]) == 2
            error = capsys.readouterr().err
            assert f"{one.pid} (pt_named" in error and f"{two.pid} (pt_named" in error
            assert run(["hugepages", f"{one.pid} {two.pid}"]) == 2
    for words in ([""], ["", "--for", "1s"], ["pt_named"], ["pt_named", "--undo"], ["-p", "1", "lookup"]):
        assert run(["hugepages", *words]) == 2
    with running(own) as one:
        assert pt.live.named(str(own)) == pt.live.named("pt_named") and one.pid in pt.live.named(str(own))
        for words, name in (
            (["--yes"], "--yes"),
            (["-p", str(one.pid), "--yes", "--dry-run"], "--yes or --dry-run"),
            (["pt_named", "--yes", "--undo"], "--yes or --undo"),
            (["pt_named", "--undo", "--dry-run"], "--dry-run or --undo"),
            (["pt_namedd"], "did you mean pt_named?"),
            (["-p", "pt_namedd"], "did you mean pt_named?"),
        ):
            capsys.readouterr()
            assert run(["hugepages", *words]) == 2 and name in capsys.readouterr().err
    with running(shutil.copy(program, tmp_path / "lookup")):
        assert run(["hugepages", "lookup"]) == 0


def test_memory_of_filled_holes_goes_with_an_undo(areas):
    """From Linux 6.12 on: a split gives pages of zeros back (commit b1f202060afe)."""
    before = rss(areas.pid)
    assert run(["hugepages", str(areas.pid), "--yes"]) == 0  # the next adds to its record
    assert run(["hugepages", str(areas.pid), "--yes", "--least", "40"]) == 0
    assert rss(areas.pid) >= before + 2 * HUGE
    assert run(["hugepages", str(areas.pid), "--undo"]) == 0 and not huge_areas(areas.pid)
    newer = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 12)
    assert rss(areas.pid) < before + (1 if newer else 3) * HUGE and areas.added() == 0


def test_memory_shared_after_a_fork_is_left_alone(program):
    with running(program) as one, pages_of(one.pid) as pages:
        pages.collapse(np.array([0]))
        one.added("f")
        assert pages.collapse(pages.all()) == 0
        shared = "shared with another process, until that ends"
        assert pages.refused == {shared: BLOCKS} and huge_areas(one.pid)
        with ExitStack() as stack, pytest.raises(UsageError, match="shared with another process"):
            Blocks(stack, one.pid)
        assert pages.restore().sum() == 1  # it stays huge
        one.added("e")
        assert not pages.restore().any() and not huge_areas(one.pid)
        assert pages.collapse(pages.all()) == BLOCKS
        one.added()


def test_a_child_keeps_huge_pages_until_its_own_undo(program, capsys):
    with running(program) as one:
        assert run(["hugepages", str(one.pid), "--yes"]) == 0
        old = descendants(one.pid)
        one.added("f")
        child = max(descendants(one.pid), key=lambda pid: pid not in old)
        for _ in range(2):
            assert run(["hugepages", str(one.pid), "--undo"]) == 3 == run(["hugepages", str(child), "--undo"])
            assert capsys.readouterr().err.count("4 blocks of PID") == 3 and huge_areas(one.pid)
        with open(f"/proc/{one.pid}/mem", "r+b", 0) as memory:
            os.pwrite(memory.fileno(), os.pread(memory.fileno(), AREA, one.at["full"]), one.at["full"])
        assert run(["hugepages", str(one.pid), "--undo"]) == 3 and not huge_areas(one.pid)
        assert f"hugepages {child} --undo" in capsys.readouterr().err and huge_areas(child)
        assert run(["hugepages", str(child), "--undo"]) == 0 and not huge_areas(child) and one.added() == 0


FORKS = """import mmap, os
area = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
area[::4096] = bytes([1]) * 4096
while print(os.getpid(), flush=True) or (said := input()) != "end":
    said == "fork" and os.fork() and os._exit(0)
    if said == "anew":
        area.madvise(mmap.MADV_DONTNEED), area.madvise(mmap.MADV_HUGEPAGE)
        area[::4096] = bytes([1]) * 4096"""


def test_blocks_are_ours_by_their_frames_in_an_orphan_too(capsys):
    """Unless the program has made other memory huge; frames alone are no sign of that: pages migrate."""
    with subprocess.Popen([sys.executable, "-c", FORKS], **PIPES) as one:
        pid = int(one.stdout.readline())
        for said in "moved", "fork", "anew":
            assert run(["hugepages", str(pid), "--yes"]) == 0
            with pages_of(pid, 0) as pages:
                found = blocks.record_of(pages)
                assert len(found.blocks) == len(found.frames) >= 7 and all(found.frames.values())
                frames = {at: frame + (said == "moved") for at, frame in found.frames.items()}
                msgspec.structs.replace(found, frames=frames).write(pages.record)
            print(said, file=one.stdin, flush=True)
            pid, left, _ = int(one.stdout.readline()), said == "anew", said == "fork" and one.wait()
            assert huge_areas(pid) and run(["hugepages", str(pid), "--undo"]) == 3 * left
            assert bool(huge_areas(pid)) == left == (blocks.ANEW in capsys.readouterr().err)
        one.communicate("end\n")


@pytest.mark.parametrize("text", ["{", "[]", "[" * 9999, "{}", '{"since": []}'])
def test_a_damaged_record_is_one_line(areas, capsys, text):
    (file := pt.live.RECORDS / f"{areas.pid}-{stat_fields(f'/proc/{areas.pid}')[19]}.json").write_text(text)
    for words in (["hugepages"], ["hugepages", "--yes"], ["hugepages", "--undo"], ["trial", "--pages", "-p"]):
        assert run([*words, str(areas.pid)]) == 2
        assert f"{file}: " in (said := capsys.readouterr().err.splitlines()[-1]) and "remove the file" in said
    file.unlink()


@contextmanager
def khugepaged(**settings):
    """Other settings of transparent huge pages; a shell sets them back even if this process is killed."""
    place = Path("/sys/kernel/mm/transparent_hugepage")
    files = [place / ("" if name == "enabled" else "khugepaged") / name for name in settings]
    were = [re.sub(r".*\[|\].*", "", file.read_text().strip()) for file in files]
    back = "".join(f"echo {value} > {file}\n" for file, value in zip(files, were, strict=True))
    with subprocess.Popen(["sh", "-c", f"read -r end\n{back}"], start_new_session=True, **PIPES):
        for file, value in zip(files, settings.values(), strict=True):
            file.write_text(str(value))
        yield


def test_idle_process_is_refused_before_anything_is_changed(areas):
    said, error = (tool := trial(areas.pid, "--figure-of", "date +%s%N", "--for", "200ms")).communicate()
    assert tool.returncode == 2 and not said and "0.0 % of a CPU" in error.splitlines()[-1]
    assert not list(pt.live.RECORDS.glob(f"{areas.pid}-*"))


def figure_of(*rates):
    every = iter(rates)
    return SimpleNamespace(name="c", unit="c", rate=lambda seconds: next(every))


def test_windows_in_which_the_figure_stands_still_are_left_out(areas, monkeypatch):
    now = [time.monotonic()]
    monkeypatch.setattr(engine, "time", SimpleNamespace(monotonic=lambda: sum(now), sleep=now.append))
    with pages_of(areas.pid) as pages:
        done, how = Measured("c"), engine.How(seconds=0.1, limit=6)
        meter = figure_of(*[1.0, None] * 6, *[None] * 9)
        for _ in range(12):
            if rate := engine.window(pages, meter, done, "found", how):
                done.rates["found"].append(rate)
        assert done.still == 6 and "6 windows" in str(lines_of(done))
        with pytest.raises(PartialDataError, match=r"c did not grow, .* in 7 of 13 windows"):
            engine.several(pages, meter, done, "found", how, 9)
        ends = figure_of(*[1.0] * 14, *[None] * 2 * engine.ENDED)  # 5 windows as found, 5 split, 2 pairs
        done = Measured("c")
        assert engine.windows(pages, ends, done, how) is False
        assert done.ended == "its load ended after 2 pairs" and done.answer == (1, 1, 1)
        with pytest.raises(UsageError, match="c did not grow, "):  # before anything is changed
            engine.windows(pages, figure_of(*[None] * 9), Measured("c"), engine.How(seconds=0.3, limit=0.6))
        assert not pages.huge().any()


@pytest.mark.parametrize("case", [(3, "", 0), (20, "", 0), (60, "", 0), (60, "f", 0), (60, "", 1000)])
def test_a_trial_takes_as_long_as_it_says_or_ends_while_a_server_saves(areas, monkeypatch, case):
    (limit, forks, takes), now, said, began = case, [], [], time.monotonic()
    monkeypatch.setattr(engine, "time", SimpleNamespace(monotonic=lambda: began + sum(now), sleep=now.append))
    meter = SimpleNamespace(name="c", unit="c", rate=lambda seconds: now.append(seconds) or 1.0)

    def say(line):
        said.append(line)
        areas.added((line.startswith("pair 3") and forks) or "?")

    how = engine.How(seconds=1.0, limit=limit, precision=-1, say=say)
    with pages_of(areas.pid) as pages:
        pages.takes = lambda blocks: takes  # a turn stops after a third of the time
        engine.windows(pages, meter, done := Measured(""), how)
    turns = r"turns 8.0 MiB huge and small, done in about (\d+) s; .* all but stop"
    promised = int(re.search(turns, said[0])[1])
    assert promised == max(limit, 8)
    assert done.gain and (forks or abs(sum(now) + 3 * 1.2 - promised) < 2.4)
    pairs, enough = (re.search(words, said[1]) for words in (r", about (\d+)", r"of 6 .* --time (\d+)s"))
    assert forks or takes or abs(int(pairs[1]) - len(done.rates["huge"])) <= 1
    assert bool(enough) == (int(pairs[1]) < 6)
    if enough and not takes:
        with pages_of(areas.pid) as pages:
            engine.windows(pages, meter, again := Measured(""), how._replace(limit=float(enough[1])))
        assert 6 <= len(again.rates["huge"]) <= 8
    if forks:
        assert (done.made, len(done.rates["huge"])) == ([4] * 4 + [0] * engine.STILL, 3)
        assert "shared with another process" in done.ended


@pytest.mark.parametrize(("every", "seconds"), [(1, 0.5), (2, 0.5), (3, 1.0), (40, 1.0), (90, None)])
def test_windows_are_short_where_the_figure_grows_often_and_a_clock_is_no_figure(monkeypatch, every, seconds):
    monkeypatch.setattr(figure, "LOOK", 0)
    work = iter(range(1000))
    with nullcontext() if seconds else pytest.raises(UsageError, match="fewer than 5 times"):
        assert figure.window_of(figure.Meter("", lambda: (next(work) // every, 1))) == seconds


def test_a_load_that_ends_has_no_rate_and_a_burst_does_not_count(monkeypatch):
    monkeypatch.setattr(figure, "time", SimpleNamespace(monotonic=iter(range(99)).__next__, sleep=abs))
    ends = iter(np.repeat(np.cumsum([0, 5, 1, 1, 0.9, 0.2, 0]), 2)[1:])  # CPU seconds by the ends of windows
    meter = figure.Meter("", lambda: (2 * (at := next(ends)), at))
    assert [meter.rate(1.0) and 2 for _ in range(6)] == [2] * 4 + [None] * 2


def test_windows_in_which_khugepaged_makes_pages_huge_are_thrown_away(program):
    class Slow:
        def rate(self, seconds):
            wait_for(lambda: huge_areas(one.pid).get(one.at["full"], 0) >= AREA / 2, seconds)
            return 1.0

    settings = {"enabled": "always", "scan_sleep_millisecs": 20, "alloc_sleep_millisecs": 20}
    with khugepaged(**settings), running(program) as one, pages_of(one.pid) as pages:
        done, how = Measured(""), engine.How(seconds=60, limit=1)
        assert huge_areas(one.pid)
        pages.split(pages.all())
        engine.several(pages, Slow(), done, "split", how, how.limit)
        assert done.thrown >= 1


@pytest.mark.parametrize("forks", ["", "f"])
@pytest.mark.parametrize(("words", "code"), [("trial", 0), ("trial", 130), ("hugepages", 130)])
def test_what_is_left_is_said(program, words, code, forks, monkeypatch, capsys):
    """After a trial, and after interrupts when all is huge, of a child that was forked meanwhile, too."""
    made, place, asked = Blocks.collapse, (Blocks, "collapse"), ["--yes"]
    if words == "trial":
        place, asked = (engine, "windows"), ["--pages", "--figure-of", "date +%s%N", "--time", "3s", "-p"]

    def huge(pages, *_):
        monkeypatch.undo()
        made(pages, pages.all())
        one.added(forks or "?")
        os.kill(os.getpid(), signal.SIGINT if code else 0)

    with running(program, 1) as one:
        old = descendants(one.pid)
        monkeypatch.setattr(*place, huge)
        assert run([words, *asked, str(one.pid)]) == (code or 3)
        said = capsys.readouterr().err.splitlines()[-1]
        child = max(descendants(one.pid), key=lambda pid: pid not in old)  # PIDs begin again at some time
        assert (f"hugepages {child} --undo" in said) == bool(forks) == bool(huge_areas(child))
        assert ("as found" in said or not (code or forks)) and (forks or not huge_areas(one.pid))


def test_two_signals_undo_as_one(program):
    with running(program, 1) as one, pages_of(one.pid, changer="a test") as pages:
        before = [signal.getsignal(number) for number in ENDS]
        with pytest.raises(KeyboardInterrupt), undone(pages):
            pages.collapse(pages.all())
            assert huge_areas(one.pid)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(os.getpid(), number)
        assert not huge_areas(one.pid) and before == [signal.getsignal(number) for number in ENDS]


def test_system_calls_of_all_threads_are_counted_and_no_waits(areas):
    with ExitStack() as stack:
        what = 2, figure.system_call_event(), figure.NO_WAIT
        calls, own = (figure.counter(stack, pid, *what) for pid in (areas.pid, os.getpid()))
        before, mine = calls(), own()
        areas.added()
        assert not any(map(time.sleep, [0] * 1000))  # which are waits
        assert 1000 <= calls() - before <= 1010 and own() - mine < 1000


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_a_program_ends_with_what_it_started_whether_it_heeds_a_signal_or_not(trap, monkeypatch):
    monkeypatch.setattr(engine, "GRACE", 0.2)
    with ExitStack() as stack:
        wrapper = engine.start(stack, ["sh", "-c", f"{trap}sleep 60; true"], 0.2, engine.How())
        [measured] = descendants(wrapper.pid)
    assert wait_for(lambda: not blocks.alive(measured))
    assert wrapper.returncode == (-signal.SIGKILL if trap else -signal.SIGTERM)


def test_command_is_run_to_its_end_in_turns(program, monkeypatch, capsys):
    how, said = engine.How(memory=0), []
    monkeypatch.setattr(engine, "SHORTEST", 0)
    done = engine.try_runs([str(program), "-", "100"], None, 2, how._replace(say=said.append))
    took = [float(re.search(r"of which ([\d.]+) ", line)[1]) for line in said if "of which" in line]
    assert len(done.made) == 2 and done.whole[1] > done.runs[1][-1]  # with what making them took
    assert 1 / np.ravel([done.rates["found"], done.rates["huge"]], "F") == pytest.approx(took, abs=0.0051)
    for script, why in ("exit $(id -u | cut -c1-2)", "failed with exit code 65"), ("true", "2 MiB"):
        assert run(["trial", "--pages", "--user", "nobody", "--", "sh", "-c", script]) == 3
        assert why in capsys.readouterr().err
    monkeypatch.setattr(engine, "TO_FREE", 1.0)  # giving its memory back is as long
    with pytest.raises(PartialDataError, match="--warm-up"):
        engine.try_runs([str(program), "-", "100"], 0.1, 3, how)


def test_record_keeps_what_its_trial_measured(program, tmp_path, capsys, monkeypatch):
    """What is measured is another test's: here a gain, noise alone, then nothing of too small a program."""
    command, gains = ["--", str(program), "-", "10"], [[2.0, 2.05, 2.1], [1.9, 1.2, 0.5]]
    rates = {state: [] for state in engine.STATES} | {"found": [1.0] * 3}

    def measured(words, warm_up, pairs, how):
        assert (list(words), warm_up) == (command[1:], None)
        facts = {"share": {"found": 0.0, "huge": 1.0}, "resident": 9 << 20, "seconds": 1.0, "made": [4]}
        with running(program) as one, pages_of(one.pid) as pages:
            return Measured("CPU time", rates=rates | {"huge": gains.pop(0)}, blocks=pages, **facts)

    monkeypatch.setattr(engine, "try_runs", measured)
    for name, code, gain in ("good", 0, 2.05), ("noisy", 3, 1.2):
        assert run(["record", "--pages", "-o", str(tmp_path / name), *command]) == code
        assert pt.measured.read_measured(pt.load(tmp_path / name).pages).gain.middle == gain
        assert run(["check", str(tmp_path / name)]) == 0 == run(["info", str(tmp_path / name)])
        said = capsys.readouterr()
        assert f"{gain:.2f}x" in said.out and "--calibration" not in said.err
    monkeypatch.undo()
    assert run(["record", "--pages", "-o", str(tmp_path / "small"), "--", "true"]) == 3
    assert pt.load(tmp_path / "small").pages is None and run(["check", str(tmp_path / "small")]) == 0


def test_command_runs_as_the_user_behind_sudo_and_reads_its_input_each_time(tmp_path, monkeypatch):
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    how = {**pt.live.as_typed(), "stdout": subprocess.PIPE}
    (tmp_path / "input").write_text("abc")
    before = os.dup(0)
    with open(tmp_path / "input") as given:
        os.dup2(given.fileno(), 0)
        try:
            for _ in range(2):
                with begun(["sh", "-c", "id -u; cat"], how) as one:
                    assert one.communicate()[0] == b"65534\nabc"
        finally:
            os.dup2(before, 0)
            os.close(before)


@pytest.mark.parametrize("number", [0, *ENDS, signal.SIGKILL])
def test_stopped_program_runs_on_however_the_tool_ends(number):
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True) as shell:
        wait_for(lambda: len(descendants(shell.pid)) == 1)
        family = [shell.pid, *descendants(shell.pid)]
        tool, stopped = os.fork(), family
        if not tool:
            try:
                with engine.standing_still(shell.pid) as stopped:
                    time.sleep(600 if number else 0.5)
                    raise UsageError(f"{stopped}")
            finally:
                os._exit(stopped != family)
        assert wait_for(lambda: [process.state(f"/proc/{pid}") for pid in family] == ["T", "T"])
        os.kill(tool, number)
        assert os.waitstatus_to_exitcode(os.waitpid(tool, 0)[1]) <= 0
        assert wait_for(lambda: [process.state(f"/proc/{pid}") for pid in family] == ["S", "S"])
        os.killpg(shell.pid, signal.SIGKILL)


def test_advice_on_a_dump_of_a_process_that_still_runs_names_the_trial(program, tmp_path, capsys):
    with running(program, 1) as one:
        assert run(["record", "-p", str(one.pid), "--for", "300ms", "-o", str(tmp_path / "c")]) == 0
        facts = pt.load(tmp_path / "c").snapshot.facts
        assert pt.live.still_runs(facts) == one.pid
        assert not pt.live.still_runs(facts | {"process_s": facts["process_s"] + 9})
        assert not pt.live.still_runs({"pid": one.pid})
        capsys.readouterr()
        assert run(["advise", str(tmp_path / "c")]) == 0
        assert f"trial --pages -p {one.pid}" in capsys.readouterr().out
    assert not pt.live.still_runs(facts)
    assert run(["advise", str(tmp_path / "c")]) == 0 and f"-p {one.pid}" not in capsys.readouterr().out


def test_what_cannot_be_changed_is_one_line(program, monkeypatch, capsys):
    def disabled():
        ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)

    with running(program, preexec_fn=disabled) as one, pytest.raises(UsageError, match="PR_SET_THP_DISABLE"):
        pages_of(one.pid).__enter__()
    with subprocess.Popen(["sleep", "60"]) as small:
        wait_for(lambda: b"sleep" in Path(f"/proc/{small.pid}/cmdline").read_bytes())
        for more, why in ([], "no block of 2 MiB"), (["--user", "root"], "--user"):
            _, error = (tool := trial(small.pid, *more)).communicate()
            assert tool.returncode == 2 and error.count("\n") == 1 and why in error
        small.kill()
    monkeypatch.setattr("ptanalyze_pages.blocks.held", lambda number: number != 23)  # CAP_SYS_NICE
    monkeypatch.setattr(engine, "begun", None)  # nothing is run
    for options in ((), ("--figure-of", "date")):
        assert run(["trial", "--pages", *options, "--", "true"]) == 2
        assert "root" in capsys.readouterr().err
    with pytest.raises(UsageError, match="root"), pages_of(os.getpid()):
        pass


@pytest.mark.parametrize("how", ["killed", "a zombie"])
def test_process_that_ends_during_a_trial_is_one_line(program, how):
    with running(program, 1) as one:
        tool = trial(one.pid, "--figure-of", "date +%s%N", "--for", "200ms", "--time", "20s")
        assert wait_for(lambda: huge_areas(one.pid), 3600)
        one.process.kill()
        if how == "killed":
            one.process.wait()
        said, error = tool.communicate(timeout=60)
        assert tool.returncode == 3 and not said and f"PID {one.pid}" in error.splitlines()[-1]
        assert not list(pt.live.RECORDS.glob(f"{one.pid}-*.lock"))


# Statistics.


def test_intervals_are_the_range_of_four_batches_of_windows_in_a_row_and_of_pairs_that_of_the_sign_test():
    """The table's critical value at 5 % of 12 signs is 2: ratios 3 to 10 of 12."""
    upper, lower = np.exp2(np.repeat(np.arange(4.0), 3)), np.exp2(np.repeat(np.arange(4.0) / 10, 2))
    assert over(upper, lower) == pytest.approx((2**-0.3, 3 / np.median(lower), 8.0))
    assert over([4.0], [2.0]) == (2.0, 2.0, 2.0) and over([2.0, 3.0], [1.0, 2.0])[::2] == (1.0, 3.0)
    assert paired(np.arange(2.0, 26.0, 2.0), [2.0] * 12) == (3.0, 6.5, 10.0)
    low, middle, high = paired([3.0, 1.0, 2.0], [1.0] * 3)
    assert (low, high) == pytest.approx((0.4571, 7.224), rel=1e-3), "t of 2 degrees: 4.303"
    assert middle == 2.0 and paired([3.0], [2.0]) == (1.5,) * 3


@pytest.mark.parametrize("pairs", [2, 3, 4, 5, 6, 7, 9, 20])
def test_19_of_20_intervals_of_any_number_of_pairs_hold_the_truth(pairs):
    """The whole range of few, which stood here, held it in 1 - 2 / 2**pairs: of three in 75 %."""
    drawn = np.random.default_rng(pairs).lognormal(0.3, 0.05, (4000, pairs))
    low, middle, high = np.transpose([paired(ratios) for ratios in drawn])
    held = ((low <= np.exp(0.3)) & (np.exp(0.3) <= high)).mean()
    assert 0.94 < held < 0.99 and ((low <= middle) & (middle <= high)).all()


def test_gain_divides_what_was_measured_side_by_side():
    """The load doubles between both parts: the gain of 1.5 and that of frames in a row are as they were."""
    done = Measured("")
    done.rates["found"], done.rates["contiguous"] = [1.0] * 5, [1.1] * 5
    done.rates["huge"], done.rates["split"] = [1.65] * 6, [1.1] * 6
    assert done.gain == pytest.approx((1.65, 1.65, 1.65)) and done.precise(0.01)
    assert lines_of(done, 7)[-1].endswith(" hugepages 7 --yes") and "hugepages 7" not in str(lines_of(done))
    asked = ["--pages", "--least", "50", "-p", "7", "--memory", "4G"]
    assert lines_of(done, 7, asked)[-1].endswith(" hugepages 7 --yes --least 50 --memory 4G")
    assert "hugepages 7" not in str(lines_of(replace(done, share={"found": 0.97}), 7)), "all have them"
    for state in ("huge", "split"):
        done.rates[state] = [2 * rate for rate in done.rates[state]]
    assert done.gain == pytest.approx((1.65, 1.65, 3.3)) and done.answer == pytest.approx((1.5,) * 3)
    done.share["found"] = 0.5
    assert done.answer == done.gain and not done.precise(0.01)


@pytest.mark.parametrize(
    ("ratio", "why"), [(0.99, "walks cost this program little"), (0.6, "walks cost"), (1.2, "--yes")]
)
def test_what_to_do_is_said_in_every_case(ratio, why):
    done = Measured("")
    done.rates["found"] = done.rates["contiguous"] = done.rates["split"] = [1.0] * 6
    done.rates["huge"] = [ratio] * 6
    assert why in lines_of(done, 7)[-1]
    short = lines_of(replace(done, rates=done.rates | {"found": [0.9]}), 7)
    assert why in short[-1] and ["too few" in line for line in short[:3]] == [False, True, True]
    done.rates["huge"], done.rates["split"] = [ratio] * 2, [1.0] * 2
    asked, done.load = ["--pages", "-p", "7", "--figure-of", "cat a"], 1e6
    assert not re.search(r"x \(", shown := "\n".join(lines_of(done, 7, asked))) and shown.count("--time") == 1
    assert lines_of(done, 7, asked)[-1].endswith("trial --time 60s --pages -p 7 --figure-of 'cat a'")
    done.rates["split"], done.rates["again"], done.seconds = [1.0] * 6, [1.0] * 3, 30.0
    done.rates["huge"] = [1.2, 0.9] * 3
    said = lines_of(done, 7, asked)
    assert said[-1].endswith("trial --time 120s --pages -p 7 --figure-of 'cat a'")
    assert "drift" not in str(said)
    done.rates["again"] = [1.1] * 3
    assert any(line.startswith("drift ") for line in lines_of(done, 7, asked))
    assert done.contiguous == pytest.approx((1.0, 1.0, 1.1)), "one after the other, as sure as the check"
    done.rates["split"], done.rates["found"] = [], [1.0] * 6
    assert lines_of(done, None, ["--pages", "--", "./app"])[-1].endswith("trial --pairs 18 --pages -- ./app")
    for done.rates["huge"], done.whole in ([1.2] * 6, []), ([1.2] * 6, [3.0, 2.0] * 6):
        assert "--yes" not in (said := lines_of(done)[-1]) and "MADV_HUGEPAGE" in said
        assert ("1.50x" in said) == bool(done.whole) == ("whole runs: 1.50x" in str(lines_of(done)))


@pytest.mark.parametrize(
    ("huge", "share", "why"),
    [
        ([1.2] * 6, (0.0, 0.9), ""),
        ([1.2, 0.9, 1.2] * 2, (0.0, 0.9), "--time"),
        ([1.2] * 6, (0.0, 0.2), "fragmented"),
        ([1.2] * 2, (0.0, 0.9), "2 of 3"),
    ],
)
def test_a_file_that_whatif_would_refuse_is_not_written(tmp_path, monkeypatch, capsys, huge, share, why):
    done = Measured("x", made=[4], seconds=1.0, share=dict(zip(("found", "huge"), share, strict=True)))
    done.rates["found"] = done.rates["contiguous"] = done.rates["split"] = [1.0] * len(huge)
    done.rates["huge"] = huge
    done.blocks = SimpleNamespace(address=[1], most_added=0, longest=0, left=Counter(), refused=Counter())
    monkeypatch.setattr(engine, "try_pages", lambda *_: done)
    file = tmp_path / "app.toml"
    monkeypatch.setattr(trial_command, "lines_of", lambda *_: [str(file.exists())])  # before a pipe may end
    assert run(["trial", "--pages", "-p", str(os.getppid()), "-o", str(file)]) == (3 if why else 0)
    said = capsys.readouterr()
    assert said.out == f"{not why}\n" and said.err.count("\n") == bool(why) and why in said.err
    assert engine.record(done, ["/bin/redis-server *:1"]).program == "redis-server"


@pytest.mark.parametrize("seconds", [(2.41, 2.01, 2.3), (2.01, 2.41, 2.3), (2.3, 2.4, 2.15)])
def test_runs_that_all_take_the_same_time_show_no_gain(seconds):
    """They may end by a clock: 1.63 times the work in the same time came out as 1.07x (1.06-1.07)."""
    done = Measured("CPU time of whole runs", share={"found": 0.0, "huge": 1.0}, made=[4])
    done.rates["found"], done.rates["huge"] = [1.0] * 3, [1.07] * 3
    done.runs = [(2.0, 2.0, 2.0), seconds] * 3
    assert f"2 to {min(seconds):g} s" in done.fixed_time
    assert "1.07x" not in lines_of(done)[0] and "--figure-of" in lines_of(done)[0]
    done.blocks = object()
    with pytest.raises(PartialDataError, match="--figure-of"):
        engine.record(done, ["app"])
    done.runs, done.blocks = [(2.0, 2.0, 2.0), (2.4, 2.4, 2.3)] * 3, None
    assert not done.fixed_time and "1.07x" in lines_of(done)[0]


def test_a_load_while_frames_lie_in_a_row_is_in_the_range():
    """A busy machine gave updates 0.61x (0.38-0.90); in other trials they gained 1.4x."""
    done = Measured("")
    done.rates["found"], done.rates["contiguous"] = [38.1, 39.1, 41.0, 37.2], [17.1, 17.75, 25.0, 16.9]
    done.rates["huge"], done.rates["split"] = [54.4, 53.0, 55.9], [41.5, 40.1, 41.9]
    assert done.gain[0] < 1 < 1.4 < done.gain[2] and done.contiguous[1] < 0.5
