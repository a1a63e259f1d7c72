"""`doctor`: each part of the host, whether it can be used, and how to get what is missing."""

import re
import shutil

from ptanalyze.capture.live import native
from ptanalyze.capture.live.host import examine

PARTS = [
    "tracer",
    "dumper",
    "survey",
    "sampler",
    "BTF",
    "BPF and rights",
    "perf counters",
    "KVM",
    "NUMA nodes",
    "huge pages",
    "disk",
]


def test_every_part_is_told_in_lines_that_fit_and_what_is_missing_comes_with_a_way_to_get_it(pt, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ran = pt("doctor")
    assert ran.code == 0 and max(map(len, ran.out.splitlines())) <= 80
    for part in PARTS:
        assert re.search(rf"^  (ok|--)  {part} ", ran.out, re.MULTILINE), part
    for one in examine():
        assert one.there or one.missing, one
        assert one.found and one.gives, one


def test_without_native_tools_it_says_what_to_build_and_that_analysis_still_works(pt, monkeypatch, tmp_path):
    monkeypatch.setattr(native, "BUILT_IN", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    out = " ".join(pt("doctor").out.split())
    assert "--  dumper" in pt("doctor").out and "make native" in out
    assert "You can analyse captures" in out


def test_a_program_is_there_where_the_path_has_it(pt):
    assert ("ok  numactl" in pt("doctor").out) == (shutil.which("numactl") is not None)
