"""CPU time of whole commands to that of `whatif` with two policies, on uniform walks; medians of runs."""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ACCESSES, SIZE, RUNS = 4_000_000, "8G", 3
TWO = ("-p", "mitosis", "-p", "hydra")
WHATIF, SERIAL = "whatif", "whatif -j 1"
COMMANDS = {
    WHATIF: ("whatif", "{capture}", *TWO),
    SERIAL: ("whatif", "{capture}", *TWO, "-j", "1"),
    "advise": ("advise", "{capture}"),
    "report": ("report", "{capture}", "-o", "{capture}.html"),
}
SMALLEST = {"ACCESSES": 20_000, "SIZE": "64M", "RUNS": 1, "COMMANDS": {WHATIF: COMMANDS[WHATIF]}}


def run():
    """[(what, value, unit, note)]"""
    with tempfile.TemporaryDirectory() as place:
        capture = str(Path(place) / "uniform")
        taken("synth", "-o", capture, "--size", SIZE, "--accesses", str(ACCESSES), "--no-init-trace")
        commands = {name: [word.format(capture=capture) for word in COMMANDS[name]] for name in COMMANDS}
        for words in commands.values() if RUNS > 1 else ():  # compiles, and filters the trace
            taken(*words)
        rounds = [{name: taken(*words) for name, words in commands.items()} for _ in range(RUNS)]
    note = f"{ACCESSES:,} accesses, {SIZE}, {RUNS} runs"
    for name in COMMANDS:
        if name == SERIAL:
            clock = median(one[SERIAL][1] / one[WHATIF][1] for one in rounds)
            yield "whatif on all CPUs to one, by the clock", clock, "x", "on a quiet machine alone"
        elif name != WHATIF:
            ratio = median(one[name][0] / one[WHATIF][0] for one in rounds)
            yield f"CPU time of {name} to whatif", ratio, "x", note
        yield f"{name}, CPU time", median(one[name][0] for one in rounds), "s", note


def taken(*words):
    """(CPU seconds, seconds by the clock) of a command."""
    command = [sys.executable, "-m", "ptanalyze", *words]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ended - began
