"""--stands-for on programs that people run: what S tells of 4 S and 16 S, beside their direct traces.

Six programs, each with data of S MiB and a steady state of its own. Data caches are those of a machine scaled
down by LESS, so that 16 S is a large run. Without root there are no page tables: placement by first touch.
"""

import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import msgspec

from ptanalyze import replay
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_machine
from ptanalyze.world.scaling import scaled_machine

PERL = "my %a; $a{$_} = $_ for 0 .. N - 1; my $s = 0; $s += $a{int rand N} for 1 .. M; print $s"
AWK = "BEGIN {for (i = 0; i < N; i++) a[i] = i; for (i = 0; i < M; i++) s += a[int(rand() * N)]; print s}"
LOOK_UP = "import random; a = {i: i for i in range(N)}; print(sum(a[random.randrange(N)] for _ in range(M)))"
SWAP = """
import array, random
a = array.array("q", range(N))
for _ in range(M):
    i, k = random.randrange(N), random.randrange(N)
    a[i], a[k] = a[k], a[i]
"""
SELECT = """
import random, sqlite3
base = sqlite3.connect(":memory:")
base.execute("create table t(k integer primary key, v text)")
base.executemany("insert into t values (?, hex(?))", ((i, i) for i in range(N)))
for _ in range(M):
    base.execute("select v from t where k = ?", (random.randrange(N),)).fetchone()
"""
PROGRAMS = {  # name: (what to run, items of a MiB of data, accesses of the steady state's own kind)
    "awk, array": (["awk", AWK], 12_000, 100_000),
    "perl, hash": (["perl", "-e", PERL], 8_000, 100_000),
    "python, dict": ([sys.executable, "-S", "-c", LOOK_UP], 8_000, 100_000),
    "python, swaps": ([sys.executable, "-S", "-c", SWAP], 131_072, 50_000),
    "sqlite, B-tree": ([sys.executable, "-S", "-c", SELECT], 20_000, 20_000),
    "sort": (["sort", "--parallel=1", "-S", "1G", "-o", "/dev/null", "FILE"], 20_000, 0),
}
MACHINE, LESS = "vmitosis-cascade-lake", 1024
SMALL, TIMES = 4, (4, 16)
SMALLEST = {"PROGRAMS": {"awk, array": (["awk", AWK], 12_000, 2_000)}, "SMALL": 3, "TIMES": (2,)}
COLUMNS = {"dram_reads_per_walk": "DRAM reads per walk", "speedup": "speed-up"}


def run():
    """[(what, value, unit, note)]: signed errors of the prediction from S, in percent of the direct trace."""
    known = load_machine(MACHINE)
    small = scaled_machine(known, LESS)
    how = {
        "machine": msgspec.structs.replace(known, l2=small.l2, llc=small.llc),
        "cache_share": "0.25",
    }
    errors, rows = {}, []
    with tempfile.TemporaryDirectory() as place:
        for name in PROGRAMS:
            captures = {times: record(Path(place), name, SMALL * times) for times in (1, *TIMES)}
            for times in TIMES:
                direct = answer(captures[times], how)
                try:
                    told = answer(captures[1], how | {"stands_for": times})
                except UsageError as why:
                    rows.append((f"{name}: refused at {times} S", 0.0, "", str(why)))
                    continue
                for column, what in COLUMNS.items():
                    error = 100 * (told[column] / direct[column] - 1) if direct[column] else 0.0
                    errors.setdefault(f"{what} at {times} S", []).append(abs(error))
                    rows.append((f"{name}: {what} at {times} S", error, "%", f"direct {direct[column]:.4g}"))
    rows += [
        (f"median: {what}", median(off), "%", f"worst {max(off):.0f}, {len(off)} cases")
        for what, off in errors.items()
    ]
    return rows


def record(place, name, mib):
    """The capture of a program with so many MiB of data."""
    words, items, accesses = PROGRAMS[name]
    count, file = items * mib, place / "lines"
    if "FILE" in words:
        lines = random.Random(1)
        file.write_text("".join(f"{lines.getrandbits(64):020d}\n" for _ in range(count)))
    steps = {"N": str(count), "M": str(accesses), "FILE": str(file)}
    out = place / f"{name}-{mib}".replace(" ", "").replace(",", "-")
    command = [sys.executable, "-m", "ptanalyze", "record", "-o", str(out)]
    command += [*(["--no-dump"] if os.geteuid() else []), "--", *(replaced(word, steps) for word in words)]
    subprocess.run(command, check=True, capture_output=True)
    return out


def replaced(word, steps):
    """A word of a command with its sizes: N and M stand alone in programs."""
    return re.sub(r"\b(?:N|M|FILE)\b", lambda found: steps[found[0]], word)


def answer(capture, how):
    """Speed-up of mitosis over tables that all are on another node: few tables interleaved would fake
    shares."""
    rows = replay(capture, [("bind", {"node": 1}), ("mitosis", {})], **how).frame.set_index("policy")
    dram, speedup = rows["dram_reads_per_walk"]["mitosis"], rows["speedup"]
    return {"dram_reads_per_walk": float(dram), "speedup": float(speedup["mitosis"] / speedup["bind"])}
