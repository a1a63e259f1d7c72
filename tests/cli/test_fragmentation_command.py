"""`ptanalyze fragmentation` on the bundled VM captures."""

import csv
import json
import shutil

import pytest

from one_line import is_one_line
from ptanalyze.core.bundled import bundled


@pytest.fixture(scope="module")
def vm(tmp_path_factory):
    place = tmp_path_factory.mktemp("fragmented") / "vm"
    return shutil.copytree(bundled("samples") / "vm-numa-visible", place)


def test_most_neighbours_straddle_two_ept_lines_and_reservations_mend_it(pt, vm):
    found = json.loads(pt("fragmentation", vm, "--after", "--json").out)["result"]
    before, after = (found[state]["all"][0]["mean"] for state in ("before", "after"))
    assert before == pytest.approx(1.93, abs=0.01) and 1 <= after < 1.1
    assert found["facts"]["ept_lines_per_gpt_line_after"] == after
    assert found["facts"]["faults_without_a_block"] == 0
    assert found["facts"]["unused_share_end"] < 0.02


def test_the_tables_show_both_states_and_what_stays(pt, vm):
    ran = pt("fragmentation", vm, "--after", "--set", "reserve_limit=16")
    assert ran.code == 0
    for words in (
        "mean after",
        "before",
        "reclaimed",
        "unused, peak",
        "in file-backed, shared or special VMAs",
    ):
        assert words in ran.out


def test_csv_is_tidy(pt, vm):
    rows = list(csv.DictReader(pt("fragmentation", vm, "--by", "vma", "--csv").out.splitlines()))
    assert {row["state"] for row in rows} == {"before"} and {row["lines"] for row in rows} == {"all", "full"}
    assert sum(int(row["count"]) for row in rows if row["lines"] == "all") >= 1895


def test_a_native_capture_is_refused_in_one_line(pt, sample):
    ran = pt("fragmentation", sample)
    assert is_one_line(ran, 2) and "ptanalyze dump vm" in ran.err


@pytest.mark.parametrize("options", [("--set", "group=8"), ("--after", "--set", "group=12")])
def test_settings_that_cannot_be_name_the_way_out(pt, vm, options):
    ran = pt("fragmentation", vm, *options)
    assert is_one_line(ran, 2) and options[-1].partition("=")[0] in ran.err
