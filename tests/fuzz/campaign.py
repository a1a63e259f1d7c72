"""Many inputs in children that may die, hang or grow: python -m fuzz SECONDS [FIRST SEED]

A child runs seed after seed and says on a pipe what it begins; its parent ends it where a call takes too long
or too much memory, and another goes on behind that seed. Ends with 1 if anything is wrong.
"""

import os
import pickle
import resource
import select
import signal
import struct
import tempfile
import time
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path

from .attempt import attempt, shown
from .bases import captures, samples, texts
from .inputs import calls

SHARES = {"capture": 5, "text": 3, "pair": 1, "options": 1}
HANG, GROWTH = 10.0, 1 << 30  # seconds of CPU of a call; bytes beyond what the child had before
MEMORY = Path("/dev/shm")  # nothing of it waits for a disk
FAILED = 77  # exit code of a child whose own code failed
TAIL = struct.Struct("<Q")


class Findings:
    """inputs, calls, codes: what was run; wrong: {what: [count, kind, seed, call, detail of the first]}"""

    def __init__(self):
        self.inputs = self.calls = 0
        self.codes = Counter()
        self.wrong = {}

    def add(self, wrong, kind, seed, call, detail):
        self.wrong.setdefault(wrong, [0, kind, seed, call, detail])[0] += 1

    def report(self, seconds):
        codes = ", ".join(f"{code}: {count:,}" for code, count in sorted(self.codes.items(), key=str))
        lines = [f"{self.inputs:,} inputs, {self.calls:,} calls in {seconds:.0f} s; exit codes {codes}"]
        for wrong, (count, kind, seed, call, detail) in sorted(self.wrong.items()):
            lines.append(f"{count} x {wrong}; first {kind} {seed}: {call}: {detail}")
        return "\n".join(lines)


def prepared(place):
    """(bases, texts) of a campaign, their files in the directory `place`."""
    bases = captures(place) | samples(place)
    return bases, texts(place)


def kind_of(seed):
    """The kind of input of a seed: each as often as SHARES says."""
    turns = [kind for kind, share in SHARES.items() for _ in range(share)]
    return turns[seed % len(turns)]


def run_seed(kind, seed, made, place, tell):
    for arguments in calls(kind, seed, *made, place):
        tell(("call", kind, seed, shown(arguments)))
        tell(("ended", *attempt(arguments)))


def child(seeds, kinds, made, place, end):
    """Run seeds until killed, or until they end; what is done goes into the pipe `end`."""

    def tell(said):
        content = pickle.dumps(said)
        os.write(end, TAIL.pack(len(content)) + content)

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    for seed in seeds:
        tell(("seed", seed))
        run_seed(kinds(seed), seed, made, place, tell)


def campaign(seeds, made, place, until=float("inf"), kinds=kind_of, findings=None):
    """Findings of the inputs of `seeds` (a range), until time.monotonic() says `until`."""
    findings = findings or Findings()
    while seeds and time.monotonic() < until:
        start, end = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(start)
            try:
                child(seeds, kinds, made, place, end)
                os._exit(0)
            except BaseException:  # nothing of it may go on as its parent
                traceback.print_exc()
                os._exit(FAILED)
        os.close(end)
        reached = watch(process, start, findings, until)
        os.close(start)
        seeds = seeds[seeds.index(reached) + 1 :] if reached is not None else seeds[1:]
    return findings


def watch(process, pipe, findings, until):
    """Take what a child says until it ends, hangs, grows or the time is over; returns its last seed."""
    seed, call, base, used, why = None, None, 0, 0.0, ""
    with os.fdopen(os.dup(pipe), "rb") as said:
        while True:
            if select.select([pipe], [], [], 0.2)[0]:
                head = said.raw.read(TAIL.size) if hasattr(said, "raw") else said.read(TAIL.size)
                if not head:
                    break
                content = b""
                while len(content) < TAIL.unpack(head)[0]:
                    content += os.read(pipe, TAIL.unpack(head)[0] - len(content))
                what, *more = pickle.loads(content)
                if what == "seed":
                    (seed,), findings.inputs = more, findings.inputs + 1
                elif what == "call":
                    call, findings.calls = more, findings.calls + 1
                    base, used = memory(process), cpu(process)
                else:
                    code, wrong, detail = more
                    findings.codes[code] += 1
                    if wrong:
                        findings.add(wrong, *call, detail)
                    call = None
            elif call and cpu(process) - used > HANG:
                why = f"over {HANG:.0f} s: {call[2].split()[0]}"
            if call and memory(process) - base > GROWTH:
                why = f"over {GROWTH >> 20} MiB: {call[2].split()[0]}"
            if why or time.monotonic() > until:
                os.kill(process, signal.SIGKILL)
                break
    _, status = os.waitpid(process, 0)
    if not why and os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
        why = f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    if not why and os.WIFEXITED(status) and os.WEXITSTATUS(status):
        why = "the fuzzer itself failed"
    if why:
        findings.add(why, *(call or ("?", seed, "?")), "")
    return seed


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
    with tempfile.TemporaryDirectory(
        prefix="ptanalyze-fuzz-", dir=MEMORY if MEMORY.is_dir() else None
    ) as place:
        made = prepared(Path(place))
        os.chdir(place)
        until = began + float(seconds)
        findings = campaign(range(int(first), 1 << 40), made, Path(place), until)
    print(findings.report(time.monotonic() - began))
    return bool(findings.wrong)
