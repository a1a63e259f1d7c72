"""Points of a sweep per minute by 1, 2 and 4 workers of a Dask cluster on this machine, and without one."""

import tempfile
import time
from pathlib import Path

from distributed import Client, LocalCluster

from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.sweep import swept
from ptanalyze.core.machine import load_machine
from ptanalyze.formats.capture import load
from ptanalyze_synth.capture import synthesize
from ptanalyze_synth.parameters import Parameters

CAPTURES, ACCESSES = 2, 1_000_000
GRID = {"nodes": ["2", "3", "4", "5", "6", "7"], "prefetch": ["0", "4", "9"]}
NAMES = ["hydra", "mitosis"]
POINTS = 6 * (3 + 1)
WORKERS = (1, 2, 4)
SMALLEST = {"CAPTURES": 1, "WORKERS": (1,), "ACCESSES": 1000, "GRID": {"nodes": ["2"]}, "NAMES": ["mitosis"]}


def captures(directory):
    """Captures that nobody has filtered yet."""
    directory.mkdir(exist_ok=True)
    made = []
    for seed in range(CAPTURES):
        asked = Parameters(size=64 << 20, nodes=2, threads=2, accesses=ACCESSES, seed=seed)
        synthesize(asked, directory / str(seed))
        made.append(load(directory / str(seed)))
    return made


def timed(directory, on=""):
    """Seconds for all points of all captures."""
    setup = Setup.of(machine=load_machine("sapphire-rapids").resized(2))
    fresh = captures(directory)
    begun = time.perf_counter()
    for capture in fresh:
        swept(capture, NAMES, GRID, setup, on=on)
    return time.perf_counter() - begun


def warm(scratch):
    """Have a worker load its code."""
    timed(Path(tempfile.mkdtemp(dir=scratch)))


def run():
    rows, first = [], None
    with tempfile.TemporaryDirectory() as scratch:
        timed(Path(scratch, "compile"))
        alone = timed(Path(scratch, "here"))
        rows.append(("in this process", 60 * CAPTURES * POINTS / alone, "points/min", f"{CAPTURES} captures"))
        for workers in WORKERS:
            how = {"n_workers": workers, "threads_per_worker": 1, "processes": True}
            with LocalCluster(**how, dashboard_address=None) as cluster:
                with Client(cluster) as client:
                    client.run(warm, scratch)
                seconds = timed(Path(scratch, str(workers)), f"dask:{cluster.scheduler_address}")
            first = first or seconds
            note = f"{first / seconds:.2f} of one worker's, {alone / seconds:.2f} of this process's"
            rows.append((f"{workers} workers", 60 * CAPTURES * POINTS / seconds, "points/min", note))
    return rows
