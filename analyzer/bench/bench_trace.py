"""Tracing against the bare run, bytes per record, decoding and importing: medians of a few short runs."""

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from ptanalyze.capture.live.tracers import qemu, qemu_command
from ptanalyze.formats.trace import HEADER_BYTES, read_trace
from ptanalyze_formats.perf_samples import import_samples
from ptanalyze_formats.text_traces import import_lackey
from ptanalyze_formats.trace_writer import new_trace

MIB, UPDATES, RUNS = 256, 20_000_000, 3
TEXT_LINES = 1_000_000
PACKED, LOOPS = 5_000_000, 300_000  # bytes for gzip and sha256sum, rounds of Python
SMALLEST = {"MIB": 1, "UPDATES": 10_000, "RUNS": 1, "TEXT_LINES": 1000, "PACKED": 10_000, "LOOPS": 100}


def seconds(action, runs=RUNS):
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        action()
        taken.append(time.perf_counter() - began)
    return median(taken)


def run():
    """[(what, value, unit, note)]"""
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        return [*recording(place), *tracing(place), *sizes(place), *decoding(place), *importing(place)]


def recording(place):
    """CPU time of recording to that of plain QEMU, programs in turn."""
    whole = Path(sys.executable).resolve().read_bytes()
    (place / "bytes").write_bytes((whole * (PACKED // len(whole) + 1))[:PACKED])
    programs = {
        "gzip": ["gzip", "-c", place / "bytes"],
        "sha256sum": ["sha256sum", place / "bytes"],
        "python": [sys.executable, "-c", f"for i in range({LOOPS}): str(i)"],
    }
    for name, words in programs.items():
        command = [shutil.which(words[0]), *map(str, words[1:])]
        recorded = qemu_command(command[0], command, [("out", place / "recorded.ptt")])
        pairs = [(cpu_seconds([qemu().path, *command]), cpu_seconds(recorded)) for _ in range(RUNS)]
        ratio, plain = median(traced / bare for bare, traced in pairs), median(bare for bare, _ in pairs)
        yield f"recording {name}, to plain QEMU", ratio, "x", f"CPU time, {RUNS} pairs; plain {plain:.2f} s"


def cpu_seconds(command):
    """User and system time of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def tracing(place):
    program = place / "gups"
    subprocess.run(["gcc", "-O2", "-o", program, Path(__file__).with_name("gups.c")], check=True)
    command = [str(program), str(MIB), str(UPDATES)]
    out = ("out", place / "trace.ptt")
    runs = {
        "native": command,
        "qemu without plugin": [qemu().path, *command],
        "qemu, plugin, nothing stripped": qemu_command(command[0], command, [out, ("strip", "off")]),
        "qemu, plugin": qemu_command(command[0], command, [out]),
        "qemu, plugin, instruction counts": qemu_command(command[0], command, [out, ("instructions", "on")]),
    }
    bare = None
    for name, argv in runs.items():
        taken = seconds(lambda argv=argv: subprocess.run(argv, check=True, stdout=subprocess.DEVNULL))
        bare = bare or taken
        yield (
            f"random access, {name}",
            taken,
            "s",
            f"{taken / bare:.1f} x native; {MIB} MiB, {UPDATES:,} updates",
        )
    trace = read_trace(place / "trace.ptt")
    per = ((place / "trace.ptt").stat().st_size - HEADER_BYTES) / trace.touches
    yield "random access, stored", per, "bytes/record", f"{trace.touches:,} records"


def random_pages(bits, n=1 << 20):
    return np.random.default_rng(1).integers(0, 1 << bits, n) + (0x7F0000000000 >> 12)


def sizes(place):
    for bits, what in ((18, "1 GiB"), (26, "256 GiB"), (36, "256 TiB")):
        page = random_pages(bits)
        write_pages(place / "sizes.ptt", page)
        per = ((place / "sizes.ptt").stat().st_size - HEADER_BYTES) / len(page)
        yield f"random pages of {what}, stored", per, "bytes/record", "frames included"


def write_pages(path, page):
    with new_trace(path, ended="exit") as writer:
        writer.accesses_of(page, page % 2 == 0, thread=0, time=np.arange(len(page)))


def decoding(place):
    page = np.tile(random_pages(26), 8)
    write_pages(place / "decode.ptt", page)
    trace = read_trace(place / "decode.ptt")
    whole = seconds(lambda: read_trace(place / "decode.ptt"))
    again = seconds(lambda: sum(len(batch.page) for batch in trace.batches(1 << 20)))
    raw = seconds(lambda: np.right_shift(page, 9).sum())
    yield (
        "decode in batches",
        len(page) / again / 1e6,
        "M records/s",
        f"{raw / again:.2f} of NumPy's shift and sum",
    )
    yield (
        "open, check, number regions",
        len(page) / whole / 1e6,
        "M records/s",
        f"{len(trace.regions):,} regions",
    )


def importing(place):
    page = random_pages(18, TEXT_LINES)
    lackey = b"".join(b" L %x,8\n" % address for address in (page << 12).tolist())
    perf = b"".join(b"1 [000] 1.000001: %x\n" % address for address in (page << 12).tolist())
    for name, action, text in (("lackey", import_lackey, lackey), ("perf script", import_samples, perf)):
        (place / "text").write_bytes(text)
        taken = seconds(lambda action=action: action(place / "text", place / "imported.ptt"))
        note = f"{len(text) / taken / 1e6:.0f} MB/s of text"
        yield f"import of {name} text", TEXT_LINES / taken / 1e6, "M records/s", note
