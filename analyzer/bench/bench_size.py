"""--stands-for against direct traces at the large size: programs of one law of accesses each, two machines.

Data caches are a quarter of the machines', so that a run of 1 GiB is a large one. A direct trace tells the
truth only where it misses more lines than all caches have.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import msgspec

from ptanalyze import whatif
from ptanalyze.core.machine import load_machine
from ptanalyze.world.scaling import scaled_machine

PROGRAMS = {  # accesses of the program's own kind in the marked region, at any size
    "hash": 2_000_000, "binary": 300_000, "stream": 800_000, "fixed": 700_000, "zipf": 2_000_000,
    "tree": 500_000, "chase": 2_000_000, "graph": 200_000, "join": 1_000_000, "section": 200_000,
    "swap": 300_000, "own": 1_000_000, "window": 2_000_000,
}  # fmt: skip
BY_SIZE = ("window",)  # sweeps its data: its work is in proportion to them
MACHINES = "epyc-7543-16-nodes", "vmitosis-cascade-lake"
LARGE, TIMES, THREADS, LESS = 1024, (4, 16, 64), 16, 4
TABLE = 40  # MiB, no less than the table of a fixed size
SMALLEST = {"PROGRAMS": {"hash": 20_000}, "LARGE": 64, "TIMES": (4, 16), "THREADS": 2}


def run():
    """[(what, value, unit, note)]: signed errors of the effect, speed-up - 1, in percent of it."""
    errors, rows = {}, []
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        program = place / "size"
        here = Path(__file__)
        marks = f"-I{here.parents[2] / 'pintool'}"
        subprocess.run(
            ["gcc", "-O2", marks, "-o", program, here.with_name("size.c"), "-lm", "-pthread"], check=True
        )
        for name, accesses in PROGRAMS.items():
            captures = {times: record(program, place, name, accesses, times) for times in (1, *TIMES)}
            for machine in MACHINES:
                for what, error, note in measured(name, captures, machine):
                    errors.setdefault(what, []).append(error)
                    rows.append((f"{name}, {machine}: {what}", error, "% of the effect", note))
    for what, found in errors.items():
        off = [abs(error) for error in found]
        rows.append(
            (f"median: {what}", median(off), "% of the effect", f"worst {max(off):.0f}, {len(off)} cases")
        )
    return rows


def record(program, place, name, accesses, times):
    """The capture of a program at a size; without root without page tables, where nothing can be fixed."""
    size, out = LARGE // times, place / f"{name}-{times}"
    count = accesses // times if name in BY_SIZE else accesses
    how = ["--roi-marker", *(["--no-dump"] if os.geteuid() else [])]
    words = [program, name, size, count, THREADS]
    command = [sys.executable, "-m", "ptanalyze", "record", "-o", out, *how, "--", *words]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return out


def measured(name, captures, machine):
    """Yield (what, error, note) of one size for each factor, then of pairs of sizes."""
    known = load_machine(machine)
    small = scaled_machine(known, LESS)
    how = {
        "machine": msgspec.structs.replace(known, l2=small.l2, llc=small.llc),
        "cache_share": "0.0625",
        "baseline": "interleave",
        "threads_on": "round-robin",
    }
    truth = whatif(captures[1], "mitosis", **how)["speedup"][1] - 1
    fixed = {"fixed": f"{TABLE}M"} if name == "fixed" and not os.geteuid() else {}
    for times in TIMES:
        if fixed and LARGE // times <= TABLE:  # would name the data, too
            continue
        found = whatif(captures[times], "mitosis", stands_for=times, **how, **fixed)["speedup"][1] - 1
        yield f"one size, N = {times}", off(found, truth), f"effect {truth:.3f}"


def off(found, truth):
    """Signed error in percent of the true effect; of none, 0, or 100 where one is predicted."""
    if not truth:
        return 100.0 * bool(found)
    return 100 * (found / truth - 1)
