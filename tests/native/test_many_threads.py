"""More threads than a trace has room for are said; those that only follow each other are all there."""

import os
import subprocess

import numpy as np
import pytest

from native import tracing
from native.dumping import make
from native.tracing import ROOT, run, wait_written
from ptanalyze.capture.check import check_trace
from ptanalyze.capture.live.record import record
from ptanalyze.core.errors import PartialDataError
from ptanalyze.core.trace import MOST_THREADS
from ptanalyze.formats.trace import read_trace

pytestmark = pytest.mark.native
AT_ONCE = 2048  # that a tracer follows


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    tracing.build_plugin()
    return tracing.build(tmp_path_factory.mktemp("programs"), "many_threads")


def threads_of_pages(trace, base, number):
    """int64[number]: the thread that touched each page, -1: none did."""
    found = np.full(number, -1)
    for batch in trace.batches(1 << 20):
        chunks = trace.chunks[batch.chunks]
        page = (trace.regions[batch.page >> 9].astype(np.int64) << 9 | batch.page & 511) - (base >> 12)
        inside = (page >= 0) & (page < number)
        found[page[inside]] = np.repeat(chunks["thread"], chunks["touches"])[inside]
    return found


def test_no_thread_is_lost_however_high_the_numbers_that_the_emulator_gives_them(many, tmp_path):
    number = AT_ONCE + 200
    trace, (base,), status = run(many, str(number), "overlap", out=tmp_path / "t.ptt")
    assert status == 0 and "lost_threads" not in trace.facts
    who = threads_of_pages(trace, base, number)
    assert (who >= 0).all() and len(np.unique(who)) == number


def test_threads_beyond_what_is_traced_at_once_are_counted_and_said(many, tmp_path):
    number = AT_ONCE + 52
    with pytest.raises(PartialDataError) as refused:
        record([many, str(number), "together"], tmp_path / "c", dump=False)
    lost = number + 1 - AT_ONCE  # the first thread is one, too
    assert f"{lost} threads were not traced: {MOST_THREADS}" in str(refused.value)
    trace = read_trace(tmp_path / "c/trace.ptt")
    assert trace.facts["lost_threads"] == lost and len(trace.threads) == AT_ONCE
    said = {found.name: found for found in check_trace(trace, quick=True)}["trace: all threads"]
    assert said.verdict == "partial" and said.wrong == lost and said.examined == number + 1


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="the writer is the same")
def test_threads_after_the_65536th_are_counted(tmp_path):
    make("pintool")
    source = tmp_path / "start.cpp"
    source.write_text(
        '#include "tracer.h"\n'
        "int main() {\n"
        f'    tracer_option("out", "{tmp_path}/t.ptt");\n'
        '    if (tracer_start("a test")) return 1;\n'
        "    for (int i = 0; i < 65536 + 3; i++) {\n"
        "        struct ptt_thread *thread = tracer_thread();\n"
        "        if (!thread) continue;\n"
        "        if (i == 65535) tracer_access(thread, 1 << 20, 8, 1);\n"
        "        ptt_thread_exit(thread);\n"
        "    }\n"
        "    tracer_exit();\n"
        "}\n"
    )
    objects = [
        ROOT / f"pintool/build/{name}.o"
        for name in ("tracer", "writer", "session_file", "watcher", "control")
    ]
    command = ["g++", "-std=c++17", "-O1", f"-I{ROOT}/pintool", "-o", tmp_path / "start", source, *objects]
    subprocess.run(command, check=True)
    subprocess.run([tmp_path / "start"], check=True, timeout=120)
    wait_written(tmp_path / "t.ptt")
    trace = read_trace(tmp_path / "t.ptt")
    assert trace.facts["lost_threads"] == 3 and len(trace.threads) == 65536
    assert trace.chunks["thread"].tolist() == [65535]
