"""Run the known program under the QEMU plugin and look at its trace."""

import ctypes
import fcntl
import os
import subprocess
from pathlib import Path

import numpy as np

from captures import pages_of
from native.dumping import make
from ptanalyze.capture.live.tracers import qemu, qemu_command
from ptanalyze.formats.trace import read_trace

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests/native/programs"
PAGES = 64


def build(directory, name="known", flags=("-O1", "-pthread")):
    subprocess.run(["gcc", *flags, "-o", directory / name, PROGRAMS / f"{name}.c"], check=True)
    return str(directory / name)


def build_plugin():
    make("pintool")
    return qemu().plugin


def encoder(directory):
    """The tracer's encoder as a library."""
    out = directory / "encoder.so"
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["g++", *flags, "-o", out, PROGRAMS / "encoder.cpp"], check=True)
    return ctypes.CDLL(str(out))


def traced(program, *words, out, **options):
    """Popen-able argv of the program under the tracer."""
    return qemu_command(program, [program, *words], [("out", out), *options.items()])


def run(program, *words, out, **options):
    """(Trace, its standard output as numbers, exit status)"""
    argv = traced(program, *words, out=out, **options)
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    wait_written(out)
    return read_trace(out), [int(line, 16) for line in done.stdout.split()], done.returncode


def wait_written(path):
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)


def counts(trace, base, pages=PAGES):
    """[[loads or stores merged, touches, touches with a store]] of each page from `base` on."""
    table = np.zeros((pages, 3), np.int64)
    for batch in trace.batches(1 << 16):
        page = pages_of(trace, batch.page) - (base >> 12)
        inside = (page >= 0) & (page < pages)
        for column, weight in enumerate((batch.count, np.ones(len(page)), batch.write)):
            table[:, column] += np.bincount(page[inside], weight[inside], pages).astype(np.int64)
    return table.tolist()


def touched_once():
    """What counts() gives for one touch() of known.c."""
    table = [[11, 2, 1] for _ in range(PAGES)]
    table[0], table[1] = [12, 3, 1], [12, 3, 1]
    return table


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT / "analyzer")}
