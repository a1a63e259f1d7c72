"""Dumper and guardian killed in any order at any moment: python -m native.killing TIMES, in tests/."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from native.dumping import PROGRAMS, PTDUMP, REPOSITORY, running, state, wait_for

PARTS = ("stop", "proc", "privileges", "output")  # of ptdump, which hold a process still
WAYS = {  # who is killed, in this order
    "dumper": ("dumper",),
    "guardian, dumper": ("guardian", "dumper"),
    "dumper, guardian": ("dumper", "guardian"),
    "guardian, then the dumper is told to end": ("guardian", "told"),
    "guardian is stopped, dumper": ("stopped", "dumper"),
}
GAPS = (0, 0, 0.0001, 0.001)  # seconds between two of them


def build_hold(where):
    """A program that is all of ptdump that stops a process, and reads nothing."""
    objects = [REPOSITORY / f"dumps/build/{part}.o" for part in PARTS]
    command = ["cc", f"-I{REPOSITORY / 'dumps'}", "-o", where / "hold", PROGRAMS / "hold.c", *objects]
    subprocess.run(command, check=True)
    return lambda target: [where / "hold", str(target)]


def build_dump(where):
    """ptdump itself, into a directory of its own each time."""
    number = count()
    options = ["--stop", "--verify", "-q", "-o"]
    return lambda target: [PTDUMP, "process", str(target), *options, where / f"d{next(number)}"]


def children(pid):
    with suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def kill(whom, dumper, guardian):
    """True if there was somebody to kill."""
    number = {"stopped": signal.SIGSTOP, "told": signal.SIGTERM}.get(whom, signal.SIGKILL)
    pid = guardian if whom in ("guardian", "stopped") else dumper.pid
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def continued(command, target, way, chance):
    """(whether the target was held when the first was killed, whether it goes on then, after how many s)."""
    dumper = subprocess.Popen(command(target), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: children(dumper.pid) or state(dumper.pid) == "Z")
    guardian = next(iter(children(dumper.pid)), 0)
    if chance.random() < 0.8:
        wait_for(lambda: state(target) == "T" or state(dumper.pid) == "Z")
    time.sleep(chance.choice(GAPS))
    was_held = state(target) == "T"
    for whom in WAYS[way] if guardian else ("dumper",):
        kill(whom, dumper, guardian)
        time.sleep(chance.choice(GAPS))
    dumper.wait(timeout=20)
    begun = time.monotonic()
    goes_on = wait_for(lambda: state(target) != "T", 3)
    if guardian:
        kill("guardian", dumper, guardian)
    os.kill(target, signal.SIGCONT)
    return was_held, goes_on, time.monotonic() - begun


def campaign(command, target, times, seed):
    """{way: Counter of runs, held, continued}, and the longest wait for the target in s."""
    chance, found, longest = random.Random(seed), {way: Counter() for way in WAYS}, 0.0
    for k in range(times):
        way = list(WAYS)[k % len(WAYS)]
        was_held, goes_on, waited = continued(command, target, way, chance)
        found[way].update(runs=1, held=was_held, continued=goes_on)
        longest = max(longest, waited)
    return found, longest


def main(times):
    with TemporaryDirectory() as place:
        sparse = Path(place) / "target"
        subprocess.run(["cc", "-O1", "-o", sparse, PROGRAMS / "dump_target.c"], check=True)
        with running(sparse, 64) as (process, _):  # 64 GiB of sparse tables: long enough to be killed in
            for build in (build_hold, build_dump):
                found, longest = campaign(build(Path(place)), process.pid, times, 1)
                for way, runs in found.items():
                    told = ", ".join(f"{runs[what]} {what}" for what in ("runs", "held", "continued"))
                    print(f"{build.__name__}: {way}: {told}")
                print(f"{build.__name__}: continued after at most {longest * 1e3:.0f} ms", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
