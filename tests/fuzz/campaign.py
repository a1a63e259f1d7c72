"""Many inputs in children that may die, hang or grow: python -m fuzz.campaign SECONDS [FIRST SEED]"""

import mmap
import os
import pickle
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from contextlib import suppress
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import NamedTuple

from .attempt import Ended, attempt
from .bases import captures, samples, small_files, texts
from .inputs import calls
from .readers import read_unchanged

# A child runs seed after seed and notes in shared memory what it begins; its parent ends it where a call
# takes too long or too much memory, and another goes on behind that seed. Ends with 1 if anything is wrong.

SHARES = {"capture": 5, "text": 3, "pair": 1, "options": 1, "words": 40, "reader": 750}
HANG, GROWTH = 10.0, 1 << 30  # seconds of CPU of a call; bytes beyond what the child had before
OVER_MEMORY = f"over {GROWTH >> 20} MiB"
BLOCKED = 30 * HANG  # seconds of a call that takes no CPU
MEMORY = Path("/dev/shm")  # nothing of it waits for a disk
FAILED = 77  # exit code of a child whose own code failed
LOOK = 0.2  # seconds between two looks at a silent child
HEAD = struct.Struct("<QQ")  # calls begun, bytes said of the last
ROOM = 1 << 16


class Made(NamedTuple):
    """What inputs are changes of, each {name: ...}."""

    captures: dict
    texts: dict
    small: dict


def prepared(place):
    """Made of a campaign, its files in the directory `place`; small files are read once as they are."""
    bases = captures(place) | samples(place)
    written = texts(place)
    made = Made(bases, written, small_files(place / "small-bases", bases, written))
    read_unchanged(made.small, place)
    return made


def kind_of(seed):
    """The kind of input of a seed: each as often as SHARES says."""
    turns = [kind for kind, share in SHARES.items() for _ in range(share)]
    return turns[seed % len(turns)]


class Board:
    """Shared memory: the call that a child has begun."""

    def __init__(self):
        self.room = mmap.mmap(-1, ROOM)

    def begin(self, *said):
        """Note (kind, seed, call); a parent reads it only when the child does nothing any more."""
        content = pickle.dumps(said)[: ROOM - HEAD.size]
        self.room[HEAD.size : HEAD.size + len(content)] = content
        self.room[: HEAD.size] = HEAD.pack(self.begun() + 1, len(content))

    def begun(self):
        return HEAD.unpack(self.room[: HEAD.size])[0]

    def last(self):
        begun, size = HEAD.unpack(self.room[: HEAD.size])
        return pickle.loads(self.room[HEAD.size : HEAD.size + size]) if begun else ("?", None, "?")


def run_seed(kind, seed, made, place, begin):
    """[(call, Ended)] of an input's calls, each said to begin(call) before."""
    done = []
    for call in calls(kind, seed, made, place):
        begin(call.what)
        done.append((call.what, attempt(call)))
    return done


def child(seeds, kinds, made, place, board, told):
    """Run seeds until killed, or until they end; what is done goes to `told`."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    first = high = peak()
    for seed in seeds:
        kind = kinds(seed)

        def begin(call, kind=kind, seed=seed):
            board.begin(kind, seed, call[: ROOM // 8])

        begin("?")
        done = run_seed(kind, seed, made, place, begin)
        before, high = high, peak()
        if high > max(before, first + GROWTH):
            call = done[-1][0]
            done.append((call, Ended(None, f"{OVER_MEMORY}: {call.partition(' ')[0]}")))
        told.send((kind, seed, done, high))


def campaign(seeds, made, place, until=float("inf"), kinds=kind_of, findings=None):
    """Findings of the inputs of `seeds` (a range), until time.monotonic() says `until`."""
    findings = findings or Findings()
    while seeds and time.monotonic() < until:
        ours, told = Pipe(duplex=False)
        board = Board()
        process = os.fork()
        if process == 0:
            ours.close()
            try:
                child(seeds, kinds, made, place, board, told)
                os._exit(0)
            except BaseException:  # nothing of it may go on as its parent
                traceback.print_exc()
                os._exit(FAILED)
        told.close()
        with ours:
            why = watch(process, ours, board, findings, until)
        kind, reached, call = board.last()
        if why:
            findings.add(f"{why}: {call.partition(' ')[0]}", kind, reached, call)
        seeds = seeds[seeds.index(reached) + 1 :] if reached is not None else seeds[1:]
    return findings


def watch(process, told, board, findings, until):
    """Take what a child tells until it ends, hangs, grows or the time is over; returns what was wrong."""
    base, begun, used, since, why = memory(process), None, 0.0, 0.0, ""
    while not why and time.monotonic() < until:
        with suppress(EOFError):
            if told.poll(LOOK):
                findings.add_input(*told.recv())
                continue
            if board.begun() != begun:
                begun, used, since = board.begun(), cpu(process), time.monotonic()
            elif cpu(process) - used > HANG or time.monotonic() - since > BLOCKED:
                why = f"over {HANG:.0f} s"
            if memory(process) - base > GROWTH:
                why = OVER_MEMORY
            continue
        break
    ended = os.waitpid(process, os.WNOHANG if why or time.monotonic() >= until else 0)
    if not ended[0]:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return why
    if os.WIFSIGNALED(ended[1]):
        return f"ended by {signal.Signals(os.WTERMSIG(ended[1])).name}"
    return "the fuzzer itself failed" if os.WEXITSTATUS(ended[1]) else ""


def peak():
    """Bytes that this process has had in memory at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def memory(process):
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096
    return 0


def cpu(process):
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def main(seconds, first=0):
    began = time.monotonic()
    memory = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="ptanalyze-fuzz-", dir=memory) as place:
        os.environ["XDG_STATE_HOME"] = f"{place}/state"  # nobody's key signs what is made here
        made = prepared(Path(place))
        os.chdir(place)
        findings = campaign(range(int(first), 1 << 40), made, Path(place), began + float(seconds))
    print(findings.report(time.monotonic() - began))
    return bool(findings.wrong)


# What a campaign ran and what it found, as a table.


class Findings:
    """By kind of input: inputs, calls, codes {exit code: calls}, slowest (seconds of CPU, call).

    wrong  {what: [count, kind, seed, call, detail of the first]}; peak: (bytes, call) of the largest child
    """

    def __init__(self):
        self.inputs, self.calls, self.codes = Counter(), Counter(), defaultdict(Counter)
        self.slowest, self.seconds = {}, Counter()
        self.wrong, self.peak = {}, (0, "")

    def add_input(self, kind, seed, done, peak):
        """done: [(call, Ended)] of an input; peak: bytes that its child has had at most."""
        self.inputs[kind] += 1
        for call, ended in done:
            self.calls[kind] += 1
            self.codes[kind][ended.code] += 1
            self.seconds[kind] += ended.seconds
            self.slowest[kind] = max(self.slowest.get(kind, (0.0, "")), (ended.seconds, call))
            if ended.wrong:
                self.add(ended.wrong, kind, seed, call, ended.detail)
        self.peak = max(self.peak, (peak, f"{kind} {seed}"))

    def add(self, wrong, kind, seed, call, detail=""):
        if wrong not in self.wrong:
            self.wrong[wrong] = [0, kind, seed, call, detail]
            print(self.line(wrong), file=sys.stderr, flush=True)
        self.wrong[wrong][0] += 1

    def line(self, wrong):
        count, kind, seed, call, detail = self.wrong[wrong]
        return f"{count or 1} x {wrong}; first {kind} {seed}: {call[:500]}: {detail}"

    def report(self, seconds):
        codes = sorted({code for codes in self.codes.values() for code in codes}, key=str)
        rows = [["", "inputs", "calls", *(f"exit {code}" for code in codes), "CPU s", "slowest s"]]
        for kind in sorted(self.inputs):
            ended = [self.codes[kind][code] for code in codes]
            seconds, slowest = self.seconds[kind], self.slowest[kind][0]
            rows.append([kind, self.inputs[kind], self.calls[kind], *ended, seconds, slowest])
        totals = [sum(column) for column in zip(*(row[1:-1] for row in rows[1:]), strict=True)]
        rows.append(["all", *totals, max((slow for slow, _ in self.slowest.values()), default=0.0)])
        lines = ["".join(map(cell, row)).rstrip() for row in rows]
        for kind, (slow, call) in sorted(self.slowest.items()):
            lines.append(f"slowest {kind}: {slow:.1f} s: {call[:200]}")
        lines.append(f"{seconds:.0f} s; peak RSS {self.peak[0] >> 20} MiB: {self.peak[1]}")
        return "\n".join([*lines, *map(self.line, sorted(self.wrong))])


def cell(value):
    text = f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
    return f"{text:>12}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
