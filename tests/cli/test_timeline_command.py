"""`ptanalyze timeline`: a row per policy and window, as a table, CSV and JSON; what it refuses."""

import csv
import io
import json
import shutil

import pytest

from one_line import is_one_line
from ptanalyze.formats.manifest import seal


def test_the_command_shows_the_windows_of_every_policy(pt, vm_sample):
    moved = ("--threads-to-nodes", "main=0,rest=0", "--move-threads", "0:1@30%",
             "--autonuma-set", "delay_ms=0", "--autonuma-set", "scan_period_ms=5")  # fmt: skip
    code, out, _ = pt(
        "timeline", vm_sample, "-p", "linux", "-p", "vmitosis-migrate:layers=ept", "-p", "vmitosis-replicate",
        *moved, "--windows", 5, "--json",
    )  # fmt: skip
    rows = json.loads(out)["result"]
    assert code == 0 and len(rows) == 15
    linux, migrate, ready = rows[:5], rows[5:10], rows[10:]
    assert migrate[0]["policy"] == "vmitosis-migrate:layers=ept"
    assert [r["walks"] for r in linux] == [r["walks"] for r in migrate] == [r["walks"] for r in ready]
    assert {r["leaf_LL_share"] for r in ready} == {1.0}
    assert linux[-1]["data_moved"] > 0 and linux[-1]["tables_moved"] == 0 < migrate[-1]["tables_moved"]
    code, out, _ = pt("timeline", vm_sample, "-p", "linux", *moved, "--windows", 3)
    assert code == 0 and "then 0:1@30%" in out and "tables moved" in out and "the kernel moves data" in out
    code, out, _ = pt("timeline", vm_sample, "-p", "linux", *moved, "--windows", 3, "--csv")
    assert [row["policy"] for row in csv.DictReader(io.StringIO(out))] == ["linux"] * 3


def test_two_of_one_policy_are_told_apart_by_what_differs(pt, vm_sample):
    _, out, _ = pt(
        "timeline", vm_sample, "-p", "vmitosis-migrate:layers=ept", "-p", "vmitosis-migrate",
        "--baseline", "linux", "--windows", 1, "--json",
    )  # fmt: skip
    found = [row["policy"] for row in json.loads(out)["result"]]
    assert found == ["linux", "vmitosis-migrate:layers=ept", "vmitosis-migrate:layers=both"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-p", "linux:x=1"), "x = 1: no such parameter"),
        (("-p", "vmitosis-migrate:layers"), "write KEY=VALUE"),
        (("-p", "linux", "--move-threads", "0-1"), "move-threads = 0-1"),
        (("-p", "linux", "--autonuma-set", "by=me"), "by = me"),
    ],
)
def test_the_command_refuses_in_one_line(pt, vm_sample, arguments, said):
    assert is_one_line(ran := pt("timeline", vm_sample, *arguments), 2) and said in ran.err


def test_without_a_trace_there_is_no_time(pt, vm_sample, tmp_path):
    vm = shutil.copytree(vm_sample, tmp_path / "vm")
    manifest = json.loads((vm / "capture.json").read_text())
    (vm / "trace.ptt").unlink()
    seal(vm, manifest["kind"], manifest["provenance"])
    assert is_one_line(ran := pt("timeline", vm, "-p", "linux"), 2)
    assert "holds no trace" in ran.err and "ptanalyze record" in ran.err
