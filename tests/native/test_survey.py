"""`ptanalyze survey` on this host: counts beside those of a dump, and of the kernel."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from native.dumping import make
from needs_root import needs_root
from plot_texts import readable
from ptanalyze.capture.live.dump import dump_process
from ptanalyze.cli import run
from ptanalyze.formats.snapshot import read_snapshot
from ptanalyze.show import plots

DUMPS = Path(__file__).resolve().parents[2] / "dumps"
pytestmark = [
    pytest.mark.native,
    needs_root,
]

HOLDER = """
import ctypes, mmap, sys, time
size = 1 << 30
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(size), 15)  # MADV_NOHUGEPAGE
for k in range(0, size, 2 << 20):
    ctypes.c_char.from_address(at + k).value
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module", autouse=True)
def built():
    make("dumps")


@pytest.fixture
def holder():
    """A process that reads a byte of each 2 MiB of 1 GiB: 512 leaf tables, or one more at the ends."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    while Path(f"/proc/{process.pid}/stat").read_text().split()[2] != "S":
        time.sleep(0.01)
    yield process.pid
    process.kill()
    process.wait()


def counts(*pids):
    ran = subprocess.run(
        [DUMPS / "build/ptsurvey", *map(str, pids)], capture_output=True, text=True, check=True
    )
    return {one["pid"]: one for one in map(json.loads, ran.stdout.splitlines())}


def test_counts_are_those_of_a_dump_and_of_the_kernel(holder, tmp_path):
    found = counts(holder)[holder]
    dump_process(holder, tmp_path / "dump", stop=True)
    tree = read_snapshot(tmp_path / "dump").guest
    by_level = [sum(level.values()) for level in found["tables"]]
    assert by_level == [int((tree.level == level).sum()) for level in range(1, len(by_level) + 1)]
    assert by_level[0] >= 512 and found["unread"] == 0
    assert found["pgtables_bytes"] == 4096 * sum(by_level[:-1])


def test_every_process_with_memory_is_there_and_none_was_touched(holder):
    before = (Path("/proc") / str(holder) / "stat").read_text().split()
    found = counts()
    after = (Path("/proc") / str(holder) / "stat").read_text().split()
    assert {os.getpid(), holder} <= set(found)
    assert after[9] == before[9] and after[2] == before[2]  # minor faults, state
    assert 2 not in found  # kthreadd


def test_those_that_come_and_go_do_not_end_it():
    storm = subprocess.Popen(["sh", "-c", "while :; do /bin/true & /bin/true; done"])
    try:
        for _ in range(5):
            assert os.getpid() in counts()
    finally:
        storm.kill()
        storm.wait()


@pytest.mark.parametrize("words", [["x"], ["-1"], [""], ["1", "2x"]])
def test_wrong_use_is_refused(words):
    ran = subprocess.run([DUMPS / "build/ptsurvey", *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and ran.stderr.startswith("Usage:")


def test_the_command_prints_a_table_json_and_a_plot(holder, tmp_path, capsys, monkeypatch):
    found, save = [], plots.save
    monkeypatch.setattr(
        plots, "save", lambda figure, path: (found.append(readable(figure)), save(figure, path))
    )
    prom = tmp_path / "pt.prom"
    words = ["survey", "--json", "--prometheus", str(prom), "--plot", str(tmp_path / "survey.png")]
    assert run(words) == 0
    rows = json.loads(capsys.readouterr().out)["result"]
    own = next(one for one in rows if one["pid"] == holder)
    assert own["kind"] == "process" and sum(own["leaf_tables"].values()) >= 512
    assert own["pt_bytes"] == 4096 * sum([*own["leaf_tables"].values(), *own["upper_tables"].values()]) - 4096
    assert f'ptanalyze_page_table_bytes{{pid="{holder}"' in prom.read_text()
    assert found == [True]
    assert run(["survey", "--top", "3"]) == 0
    assert "--top" in capsys.readouterr().out
