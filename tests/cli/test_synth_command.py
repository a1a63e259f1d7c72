"""`ptanalyze synth` makes captures that every other command takes."""

import json
from pathlib import Path

import pytest

from ptanalyze.capture.synth.capture import must_fit
from ptanalyze.capture.synth.plan import Parameters, plan, whole_pages
from ptanalyze.core.errors import UsageError

SMALL = ("--size", "16M", "--accesses", "20000", "--munmap-every", "5000", "--mprotect-every", "7000")


@pytest.mark.parametrize("guest", ["native", "visible", "oblivious"])
def test_a_synthetic_capture_goes_through_every_command(pt, tmp_path, guest):
    out = tmp_path / "made"
    move = ("--move", "0.5:0:1", "--move-data", "0.5:50000")
    made = pt("synth", "-o", out, *SMALL, *move, "--guest", guest, "--fragmentation", "0.3")
    assert made.code == 0 and f"{out}: made" in made.out
    assert pt("check", out).code == 0
    info = json.loads(pt("info", out, "--json").out)["result"]
    assert info["how sure"]["method"] == "synth" and info["trace"]["move pages events"] > 0
    classified = json.loads(pt("classify", out, "--json").out)["result"]
    assert [found["weight"] for found in classified] == ["leaf", "walks"]
    assert pt("walk", out, hex(1 << 46)).code == 0
    policies = ("-p", "linux", "-p", "hydra", "-p", "mitosis")
    answer = json.loads(pt("whatif", out, *policies, "--json").out)
    refused = {"hydra", "mitosis"} if guest == "oblivious" else set()
    assert {result["policy"] for result in answer["result"]} == {"linux", "hydra", "mitosis"} - refused
    assert set(answer.get("refused", {})) == refused


@pytest.mark.parametrize("mapped_by, copies", [("threads", False), ("main", True)])
def test_hydra_copies_nothing_where_each_thread_maps_and_uses_its_own_part(pt, tmp_path, mapped_by, copies):
    options = ("--sharing", "private", "--mapped-by", mapped_by, "--accesses", "5000")
    pt("synth", "-o", tmp_path / "made", "--size", "16M", *options)
    ran = pt("whatif", tmp_path / "made", "-p", "linux", "-p", "hydra", "--cold", "--json")
    linux, hydra = json.loads(ran.out)["result"]
    assert (hydra["pte_copies"] > 0) == copies
    assert hydra["faults"] == linux["faults"] == 16 * 256


def test_what_closed_forms_say_is_printed(pt, tmp_path):
    made = pt("synth", "-o", tmp_path / "made", "--size", "16M", "--guest", "visible", "--accesses", "10")
    assert "Local-Local" in made.out and "25.00 %" in made.out and "PTEMagnet" in made.out


def test_a_refused_option_leaves_nothing(pt, tmp_path):
    ran = pt("synth", "-o", tmp_path / "made", "--size", "16M", "--placement", "bind:4")
    assert ran.code == 2 and len(ran.err.splitlines()) == 1 and "NODE of 0..3" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_room_is_refused_with_what_is_enough(pt, tmp_path):
    ran = pt("synth", "-o", tmp_path / "made", "--size", "64M", "--nodes", "2", "--node-memory", "16M")
    assert ran.code == 2 and "the machine is full" in ran.err
    enough = ran.err.rpartition("(")[2].split()[0]
    assert list(tmp_path.iterdir()) == []
    more = pt("synth", "-o", tmp_path / "made", "--size", "64M", "--nodes", "2", "--node-memory", enough)
    assert more.code == 0


def test_a_directory_that_is_there_is_not_overwritten(pt, tmp_path):
    ran = pt("synth", "-o", tmp_path, "--size", "16M")
    assert ran.code == 2 and "exists already" in ran.err


def test_a_disk_without_room_is_said_before_anything_is_written():
    with pytest.raises(UsageError, match=r"do not fit, 0 are free"):
        must_fit(plan(Parameters(size=whole_pages("1.5T"), guest="visible")), Path("/proc/self/task"))
