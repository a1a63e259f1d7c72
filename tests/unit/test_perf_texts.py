"""Texts of perf script as Intel's PEBS, AMD's IBS and Arm's SPE give them.

Written from perf's documentation (perf-script(1), perf-mem(1), perf-amd-ibs(1), perf-arm-spe(1)) and source
(tools/perf/builtin-script.c, process_event; util/mem-events.c; util/arm-spe.c; arch/x86/events/intel/ds.c
and amd/ibs.c, which fill the data source), not recorded: no machine with these events was at hand.
"""

import re

import pytest

from ptanalyze.capture.describe import describe
from ptanalyze.capture.import_ import import_capture
from ptanalyze.cli import run
from ptanalyze.core.errors import CaptureError
from ptanalyze.formats.capture import load

PEBS = """\
# perf record -d --sample-cpu -e mem_inst_retired.stlb_miss_loads:P,mem_inst_retired.stlb_miss_stores:P
# perf script -F tid,cpu,time,event,addr
 4711 [002]  5123.100001: mem_inst_retired.stlb_miss_loads:P:     7f0000001008
 4711 [002]  5123.100009: mem_inst_retired.stlb_miss_loads:P:     7f0000203010
 4712 [009]  5123.100011: mem_inst_retired.stlb_miss_stores:P:     7f0000001040
"""
IBS = """\
# perf record -d --sample-cpu -e ibs_op//
# perf script -F tid,cpu,time,event,addr
 4711 [002]  5123.100001:       ibs_op//:     7f0000001008
 4711 [002]  5123.100009:       ibs_op//:                0
 4712 [009]  5123.100011:       ibs_op//:     7f0000001040
"""
PEBS_WEIGHED = """\
# perf script -F tid,cpu,time,period,event,addr,data_src
 4711 [002]  5123.100001:       2000 mem_inst_retired.stlb_miss_loads:P:     7f0000001008\
       5080022 |OP LOAD|LVL N/A|SNP N/A|TLB N/A|LCK N/A|BLK  N/A
 4711 [002]  5123.100009:       1000 mem_inst_retired.stlb_miss_loads:P:     7f0000203010\
       5080022 |OP LOAD|LVL N/A|SNP N/A|TLB N/A|LCK N/A|BLK  N/A
 4712 [009]  5123.100011:       1000 mem_inst_retired.stlb_miss_stores:P:     7f0000203040\
       5080024 |OP STORE|LVL L1 miss|SNP N/A|TLB N/A|LCK N/A|BLK  N/A
"""
LOAD_LATENCY = """\
# perf mem record; perf script -F tid,cpu,time,period,event,addr,data_src,weight
 4711 [002]  5123.100001:      10007 cpu/mem-loads,ldlat=30/P:     7f0000001008\
     10668100842 |OP LOAD|LVL L3 or L3 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A              74
 4711 [002]  5123.100009:      10007 cpu/mem-loads,ldlat=30/P:     7f0000203010\
     1068100842 |OP LOAD|LVL Local RAM or RAM hit|SNP None or Miss|TLB L2 miss|LCK No|BLK  N/A             412
"""
IBS_SOURCE = """\
# perf record -d --sample-cpu -e ibs_op//
# perf script -F tid,cpu,time,period,event,addr,data_src
 4711 [002]  5123.100001:     262144    ibs_op//:     7f0000001008\
     2a08100142 |OP LOAD|LVL L1 hit|SNP N/A|TLB L1 hit|LCK N/A|BLK  N/A
 4711 [002]  5123.100005:     262144    ibs_op//:                0\
        5080021 |OP N/A|LVL N/A|SNP N/A|TLB N/A|LCK N/A|BLK  N/A
 4711 [002]  5123.100009:     262144    ibs_op//:     7f0000203010\
     1a08200842 |OP LOAD|LVL L3 hit|SNP N/A|TLB L2 miss|LCK N/A|BLK  N/A
 4712 [009]  5123.100011:     262144    ibs_op//:     7f0000405040\
     1a08200844 |OP STORE|LVL L2 hit|SNP N/A|TLB L2 miss|LCK N/A|BLK  N/A
 4712 [009]  5123.100013:     262144    ibs_op//:     7f0000607040\
     1a08200842 |OP LOAD|LVL Local RAM or RAM hit|SNP N/A|TLB L2 hit|LCK N/A|BLK  N/A
"""
SPE_SOURCE = """\
# perf script --itrace=M -F tid,cpu,time,period,event,addr,data_src
 4711 [002]  5123.100001:          1     memory:     ffff80001008\
     880000842 |OP LOAD|LVL L1 hit|SNP N/A|TLB Walker hit|LCK N/A|BLK  N/A
 4711 [002]  5123.100009:          1     memory:     ffff80203010\
     900000844 |OP STORE|LVL L3 miss|SNP N/A|TLB Walker miss|LCK N/A|BLK  N/A
"""
OLD = """\
# before Linux 5.19 without OP and LVL, before 5.12 without BLK
 4711 [002]  5123.100009:      10007 cpu/mem-loads/P:     7f0000203010\
     1068100842 Local RAM hit|SNP None or Miss|TLB L2 miss|LCK No
"""
SPE = """\
# perf record -e arm_spe/load_filter=1,store_filter=1/
# perf script --itrace=t -F tid,cpu,time,event,addr
 4711 [002]  5123.100001:     tlb-access:     ffff80001008
 4711 [002]  5123.100009:     tlb-access:     ffff80203010
 4711 [002]  5123.100009:       tlb-miss:     ffff80203010
 4712 [009]  5123.100011:     tlb-access:     ffff80001040
"""


def imported(text, tmp_path):
    (tmp_path / "samples.txt").write_text(text)
    assert import_capture(None, tmp_path / "samples.txt", tmp_path / "made") == "perf-script"
    return load(tmp_path / "made").trace


def test_pebs_tells_walks(tmp_path):
    trace = imported(PEBS, tmp_path)
    assert trace.facts["walks"] and trace.accesses == 3
    assert [write for batch in trace.batches(9) for write in batch.write.tolist()] == [False, False, True]


def test_ibs_tells_accesses_and_operations_without_an_address_are_none(tmp_path):
    trace = imported(IBS, tmp_path)
    assert trace.facts["sampled"] and not trace.facts["walks"] and trace.accesses == 2


def writes(trace):
    return [write for batch in trace.batches(9) for write in batch.write.tolist()]


def misses(text):
    """What import says: grep -E 'TLB [^|]* miss'."""
    return "".join(line for line in text.splitlines(True) if re.search(r"TLB [^|]* miss", line))


def test_pebs_with_a_data_source_that_does_not_know_the_tlb_tells_walks_by_its_event(tmp_path):
    trace = imported(PEBS_WEIGHED, tmp_path)
    assert trace.facts["walks"] and trace.accesses == 2
    assert load(tmp_path / "made").manifest.provenance["period_unit"] == 2000


@pytest.mark.parametrize(
    ("text", "store"), [(LOAD_LATENCY, [False]), (IBS_SOURCE, [False, True]), (SPE_SOURCE, [True])]
)
def test_data_sources_tell_walks_and_stores_and_how_many_accesses_missed(tmp_path, text, store):
    assert not imported(text, tmp_path).facts["walks"]
    provenance = load(tmp_path / "made").manifest.provenance
    assert provenance["missed_tlb"] == len(store)
    (tmp_path / "misses").mkdir()
    trace = imported(misses(text), tmp_path / "misses")
    assert trace.facts["walks"] and writes(trace) == store
    assert "missed_tlb" not in load(tmp_path / "misses" / "made").manifest.provenance


def test_import_says_how_walks_are_taken_out_of_accesses(tmp_path, capsys):
    (tmp_path / "samples.txt").write_text(IBS_SOURCE)
    assert run(["import", str(tmp_path / "samples.txt"), "-o", str(tmp_path / "made")]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "each sample stands for 262,144 events",
        "2 samples missed the TLB; alone they are walks: grep -E 'TLB [^|]* miss' has them",
        "data from: L1 25%, L3 25%, L2 25%, Local RAM or RAM 25%",
    ]


@pytest.mark.parametrize("more", [LOAD_LATENCY, IBS_SOURCE, SPE_SOURCE, IBS, SPE])
def test_events_that_count_misses_among_others_are_refused_with_data_sources_too(tmp_path, more):
    text = PEBS_WEIGHED if more in (LOAD_LATENCY, IBS_SOURCE, SPE_SOURCE) else PEBS
    with pytest.raises(CaptureError, match=r"grep -E 'stlb_miss\|tlb-miss' has the misses"):
        imported(more + text, tmp_path)


@pytest.mark.parametrize("text", [LOAD_LATENCY, IBS_SOURCE, SPE_SOURCE])
def test_hits_alone_are_accesses_whatever_their_event(tmp_path, text):
    rest = "".join(line for line in text.splitlines(True) if line not in misses(text))
    assert not imported(rest, tmp_path).facts["walks"]
    named = re.sub(r"(ibs_op//|memory|cpu/mem-loads,ldlat=30/P):", "mem_inst_retired.stlb_miss_loads:", rest)
    (tmp_path / "again").mkdir()
    assert named != rest and not imported(named, tmp_path / "again").facts["walks"]


def test_the_text_of_older_kernels_is_read(tmp_path):
    assert imported(OLD, tmp_path).facts["walks"]


def test_where_data_came_from_comes_along(tmp_path):
    imported(misses(LOAD_LATENCY + IBS_SOURCE), tmp_path)
    said = load(tmp_path / "made").manifest.provenance
    assert said["data_from"] == "Local RAM or RAM 33%, L3 33%, L2 33%"
    assert describe(load(tmp_path / "made"))["capture"]["data_from"] == said["data_from"]


WALKED = ["L2 miss", "L1 or L2 miss", "Walker miss", "N/A miss", "L2 miss "]
NOT_WALKED = ["L1 miss", "L1 hit", "Walker hit", "N/A", "", "miss", "N/A hit"]


@pytest.mark.parametrize("tlb", [*WALKED, *NOT_WALKED])
def test_every_text_of_the_tlb_is_a_walk_or_not(tmp_path, tlb):
    source = f"1068100842 |OP LOAD|LVL L3 hit|SNP None|TLB {tlb}|LCK No"
    text = f"7 [000] 1.500000: 1 ibs_op//: 7f0000203010 {source}\n"
    assert imported(text, tmp_path).facts["walks"] == (tlb in WALKED)


def test_of_spe_the_misses_are_walks_once_the_accesses_are_taken_out_as_the_error_says(tmp_path):
    with pytest.raises(CaptureError, match=r"grep -E 'stlb_miss\|tlb-miss'"):
        imported(SPE, tmp_path)
    trace = imported("".join(line for line in SPE.splitlines(True) if "tlb-miss" in line), tmp_path)
    assert trace.facts["walks"] and trace.accesses == 1
