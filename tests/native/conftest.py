"""Targets of the dumper and of the tracer."""

import subprocess
from itertools import count

import pytest

from native import packages, tracing
from native.dumping import SPARSE_GIB, build, make, running
from native.tracing import PROGRAMS, ROOT, wait_written
from native.vms import build_vmm
from ptanalyze.formats.trace_file import read_trace

WRITER = ("tracer", "writer", "session_file", "watcher", "control")


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    return build(tmp_path_factory)


@pytest.fixture(scope="module")
def target(programs):
    """PID of a process of 2,048 leaf tables."""
    with running(programs / "dump_target", 4) as (process, _):
        yield process.pid


@pytest.fixture(scope="module")
def big(programs):
    """PID of one that is read long enough to be interrupted."""
    with running(programs / "dump_target", SPARSE_GIB) as (process, _):
        yield process.pid


@pytest.fixture(scope="session")
def vmm(tmp_path_factory):
    return build_vmm(tmp_path_factory)


@pytest.fixture(scope="session")
def known(tmp_path_factory):
    tracing.build_plugin()
    make("dumps")
    return tracing.build(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    return packages.build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel):
    """A directory with the package, to be put on PYTHONPATH."""
    return packages.install(wheel)


@pytest.fixture(scope="session")
def play(tmp_path_factory):
    """Trace of rows (thread, what, address, bytes), recorded with these options."""
    make("pintool")
    place = tmp_path_factory.mktemp("play")
    objects = [ROOT / f"pintool/build/{name}.o" for name in WRITER]
    command = ["g++", "-std=c++17", "-O1", "-Wall", "-o", place / "play", PROGRAMS / "play.cpp", *objects]
    subprocess.run(command, check=True)

    numbers = count()

    def played(rows, options):
        out = place / f"{next(numbers)}.ptt"
        pairs = {"out": out, **dict(options.items())}
        words = [f"{key}={value}" for key, value in pairs.items()]
        subprocess.run([place / "play", *words], input=rows.tobytes(), check=True, timeout=60)
        wait_written(out)
        return read_trace(out)

    return played
