"""Texts of perf script as Intel's PEBS, AMD's IBS and Arm's SPE give them.

Written from perf's documentation (perf-script(1), perf-mem(1), perf-amd-ibs(1), perf-arm-spe(1)), not
recorded: no machine with these events was at hand.
"""

import pytest

from ptanalyze.capture.import_ import import_capture
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


def test_of_spe_the_misses_are_walks_once_the_accesses_are_taken_out_as_the_error_says(tmp_path):
    with pytest.raises(CaptureError, match=r"grep -E 'stlb_miss\|tlb-miss'"):
        imported(SPE, tmp_path)
    trace = imported("".join(line for line in SPE.splitlines(True) if "tlb-miss" in line), tmp_path)
    assert trace.facts["walks"] and trace.accesses == 1
