"""Leaf tables moved by tools that are killed."""

import json
import os
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path

from native.dumping import PROGRAMS, REPOSITORY, make, wait_for

TESTED = REPOSITORY / "dumps/build/ptrelocate-tested"
DEATHS = range(1, 10)  # POINT()s of dumps/chain.c
AREA = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ")
KEPT = ("VmFlags:", "Locked:", "AnonHugePages:")
STARTING = f"{2**64 - 1 - (1 << 8) - (1 << 18):x}"  # signals that a thread blocks until it runs, in glibc
OURS = "/SYSV00000000 (deleted)"  # a tool that is killed leaves 12 KiB


def build(where):
    """The program whose memory is moved, and the tool that dies where it is told to."""
    make("dumps", "build/ptrelocate-tested")
    command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", where / "relocate_target"]
    subprocess.run([*command, PROGRAMS / "relocate_target.c"], check=True)
    return where / "relocate_target"


class Target:
    """A relocate_target that is ready; words: of its first line, {name: value}."""

    def __init__(self, process):
        self.process, self.pid = process, process.pid
        self.words = self.said()

    def said(self):
        return dict(word.split("=") for word in self.process.stdout.readline().split() if "=" in word)

    def ask(self):
        self.process.stdin.write("?")
        self.process.stdin.flush()
        return self.said()

    def counts(self):
        """Whatever it added is there, and nothing is damaged."""
        told = self.ask()
        assert told["added"] == told["found"] and told["damaged"] == told["spoiled"] == "0", told
        return int(told["added"])


@contextmanager
def target(program, *words, first=()):
    command = [*first, program, *map(str, words)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Target(process)
    finally:
        process.kill()
        process.communicate()


def areas(pid):
    """{start: lines} of its areas but ours: addresses, rights, name, flags, policy and what is in it."""
    found, lines = {}, []
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if AREA.match(line):
            lines = [line]
            if OURS not in line:
                found[int(line.split("-")[0], 16)] = lines
        elif line.startswith(KEPT):
            lines.append(line)
    for line in Path(f"/proc/{pid}/numa_maps").read_text().splitlines():
        address, policy, *_ = line.split()
        if int(address, 16) in found:  # it may change between both files
            found[int(address, 16)].append(policy)
    return found


def leaves(pid):
    """Bytes of ours in its memory."""
    rows = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if OURS in line]
    return sum(int(end, 16) - int(start, 16) for start, end in (row[0].split("-") for row in rows))


def threads(pid):
    """[(whether it is stopped, its tracer, blocked signals)] of its threads, in order."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        text = (task / "status").read_text()
        pattern = r"State:\t(.)[\s\S]*TracerPid:\t(\d+)[\s\S]*SigBlk:\t(\S+)"
        [(state, tracer, blocked)] = re.findall(pattern, text)
        found.append((state in "Tt", tracer, blocked))
    return sorted(found)


def children(pid):
    return [Path(f"/proc/{pid}/task/{task}/children").read_text() for task in os.listdir(f"/proc/{pid}/task")]


def relocate(pid, *options, die_at=0, gap=0, refusals=0):
    """The finished tool, and what it said: a plan, and a tally where it got to the end.

    Stops may take 50 ms where no bound is given: a busy machine keeps few shorter ones, and may move nothing.
    """
    settings = {"PT_DIE_AT": str(die_at), "PT_GAP": str(gap), "PT_REFUSALS": str(refusals)}
    command = [TESTED, "--max-pause", "50000", *map(str, options), str(pid)]
    how = {"capture_output": True, "text": True, "timeout": 60, "check": False}
    done = subprocess.run(command, env=os.environ | settings, **how)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def running(pid):
    """Its areas and threads, when all of these run."""
    assert wait_for(lambda: all(blocked != STARTING for *_, blocked in threads(pid)))
    return areas(pid), threads(pid)


def as_before(pid, was):
    """Whether its areas and threads are, soon: what the tool began ends without it."""
    return wait_for(lambda: (areas(pid), threads(pid)) == was, 10)
