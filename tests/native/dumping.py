"""What the tests of the dumper share: build it, run targets, read leaves."""

import os
import resource
import signal
import subprocess
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ptanalyze.core import snapshot as E

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
PTDUMP = REPOSITORY / "dumps/build/ptdump"
SPARSE_GIB = 64  # of a target: 32,768 tables, long enough to be interrupted
SANITIZED = REPOSITORY / "dumps/build/sanitized"  # directory of ptdump and ptsurvey
PRESENT_USER = 5  # all that a pointer to an inferred table says
MANY = 400  # dumps until one meets a change: on a busy machine most meet none


@cache
def make(directory, *targets):
    """Builds the native programs of a directory of the repository, once for all tests of a run."""
    subprocess.run(["make", "-s", "-C", REPOSITORY / directory, *targets], check=True, capture_output=True)


def build(tmp_path_factory):
    """Directory with the compiled targets; also builds ptdump."""
    make("dumps")
    where = tmp_path_factory.mktemp("programs")
    for source in PROGRAMS.glob("dump_*.c"):
        command = ["cc", "-O1", "-Wall", "-Wextra", "-pthread", f"-I{REPOSITORY / 'dumps'}"]
        subprocess.run([*command, "-o", where / source.stem, source], check=True)
    return where


def build_sanitized():
    make("dumps", "-j", str(os.cpu_count()), "SANITIZE=1", "CFLAGS=-O0 -g")


def clean(said):
    """What a sanitized program said, without a report of a sanitizer."""
    assert "Sanitizer" not in said and "runtime error" not in said, said
    return said


@contextmanager
def running(program, *arguments, stdin=None):
    """(process, the words of its first line) of a target that is ready; killed afterwards."""
    command = [program, *map(str, arguments)]
    process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, text=True, process_group=0)
    try:
        line = process.stdout.readline().split()
        yield process, dict(word.split("=") for word in line if "=" in word)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ptdump(pid, directory, *options, program=PTDUMP, **how):
    command = [program, "process", str(pid), "-o", directory, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **how)


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def wait_for(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.0002)
    return False


def leaves(tree):
    """int64[n, 4]: address, level, frame and presence of every leaf, by address."""
    found = []
    for level in (1, 2, 3):
        tables = np.flatnonzero(tree.level == level)
        words = np.asarray(tree.entries[tables])
        at, slot = np.nonzero(E.leaf(words, level, tree.encoding))
        address = tree.base[tables[at]].astype(np.int64) + (slot << (3 + 9 * level))
        here = words[at, slot]
        frame, there = E.frame(here, level, tree.encoding), E.present(here, tree.encoding)
        found.append(np.stack((address, np.full(len(at), level), frame, there), axis=1))
    rows = np.concatenate(found)
    return rows[np.argsort(rows[:, 0])]


def pages_of_pagemap(pid, vmas):
    """{address: frame} of every page of the user half, as /proc/PID/pagemap tells it."""
    pages = {}
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
        for vma in vmas[vmas["end"] < 1 << 56]:
            for start in range(int(vma["start"]), int(vma["end"]), 1 << 28):
                count = (min(start + (1 << 28), int(vma["end"])) - start) // 4096
                words = np.frombuffer(os.pread(pagemap.fileno(), count * 8, start // 4096 * 8), np.uint64)
                for at in np.flatnonzero(words >> np.uint64(63)):
                    pages[start + int(at) * 4096] = int(words[at] & np.uint64((1 << 55) - 1))
    return pages


def pages_of_leaves(rows):
    """{address: frame} of the 4 KiB pages that leaves() map."""
    pages = {}
    for address, level, frame, _ in rows.tolist():
        pages.update((address + i * 4096, frame + i) for i in range(512 ** (level - 1)))
    return pages


def assert_closed(tree):
    """Every pointer leads to exactly the table that was read there, and every table has one."""
    for level in range(2, tree.levels + 1):
        tables = np.flatnonzero(tree.level == level)
        at, slot = np.nonzero(E.table(np.asarray(tree.entries[tables]), level, tree.encoding))
        pointed = E.frame(tree.entries[tables[at], slot], level, tree.encoding, leaves=False)
        children = np.flatnonzero(tree.level == level - 1)
        assert np.array_equal(tree.parent[children], tables[at])
        assert np.array_equal(tree.base[children] >> np.uint64(3 + 9 * level) & np.uint64(511), slot)
        assert np.array_equal(tree.frame[children], pointed)


def assert_inferred(tree):
    """Every table but the root maps something, and its parent's entry says that it is there and no more."""
    assert (tree.level == tree.levels).sum() == 1 and tree.entries[1:].any(axis=1).all()
    for level in range(2, tree.levels + 1):
        words = np.asarray(tree.entries[tree.level == level])
        pointers = words[E.table(words, level)]
        assert len(pointers) == (tree.level == level - 1).sum() and (pointers == PRESENT_USER).all()


def assert_refused(done, code, what):
    assert done.returncode == code and what in done.stderr, done.stderr
    assert done.stderr.startswith("ptdump: ") and done.stderr.count("\n") == 1


def guardian(dumper):
    """PID of the process that continues the target when the dumper is killed, 0 when there is none."""
    return int(Path(f"/proc/{dumper.pid}/task/{dumper.pid}/children").read_text() or 0)


def held(pid, tmp_path, moment, reads="--verify"):
    """(ptdump --stop, its directory), itself stopped at a moment that is over soon: tried until it is met."""
    for attempt in range(50):
        directory = tmp_path / f"d{attempt}"
        command = [PTDUMP, "process", str(pid), "-o", directory, "--stop", reads, "-q"]
        dumper = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: state(dumper.pid) == "Z" or moment(dumper, directory))  # noqa: B023
        dumper.send_signal(signal.SIGSTOP)
        wait_for(lambda: state(dumper.pid) in "TZ")  # noqa: B023
        if state(dumper.pid) == "T" and moment(dumper, directory):
            return dumper, directory
        dumper.kill()
        dumper.communicate()
    raise AssertionError("the moment was never met")


def limit_files():
    """Before exec: files of more than 1 MiB cannot be written."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


# What the tests of `ptdump vm` share: a little VMM of ours, and dumps of its guest.

MIB = 1 << 20
LOW = 16 * MIB  # of memory at guest-physical 0: code and page tables
HIGH = 1 << 30  # where the memory begins that the guest writes to


def build_vmm(tmp_path_factory):
    """Path of the compiled VMM; also builds ptdump."""
    make("dumps")
    program = tmp_path_factory.mktemp("vmm") / "vm_guest"
    command = ["cc", "-O1", "-Wall", "-Wextra", "-pthread", "-o", program, PROGRAMS / "vm_guest.c"]
    subprocess.run(command, check=True)
    return program


def need_kvm():
    """Without the device there is no VM to dump; a device that is there must work."""
    if not Path("/dev/kvm").exists():
        pytest.skip("no /dev/kvm on this machine: dumps of VMs are not tested")


def ptdump_vm(pid, directory, *options):
    command = [PTDUMP, "vm", str(pid), "-o", directory, *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def as_if_nested(host):
    """HostDump whose shadow roots are called nested ones: right for our guest, whose own map is identity."""
    return replace(host, roots=tuple(msgspec.structs.replace(root, kind="legacy") for root in host.roots))
