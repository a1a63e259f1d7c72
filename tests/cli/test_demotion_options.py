"""--demote-idle on the command line: what it prints by policy, and what is refused in one line."""

import json

import msgspec
import pytest

from one_line import is_one_line
from ptanalyze.core.machine import load_machine
from ptanalyze.formats.machine_file import write_machine


@pytest.fixture
def cxl(tmp_path):
    """A machine file whose third node has no CPUs."""
    write_machine(
        tmp_path / "cxl.toml",
        msgspec.structs.replace(load_machine("sapphire-rapids").resized(3), memory_nodes=(2,)),
    )
    return tmp_path / "cxl.toml"


def test_each_policy_has_its_writes_and_interrupts_by_batch(pt, sample, cxl):
    asked = ("whatif", sample, "-p", "mitosis,hydra", "-m", cxl, "--demote-idle", "100ms")
    ran = pt(*asked, "--json")
    rows = json.loads(ran.out)["result"]
    linux, mitosis, hydra = (
        next(call for call in row["system_calls_by_kind"] if call["call"] == "demotion") for row in rows
    )
    assert linux["calls"] == mitosis["calls"] == hydra["calls"] > 1
    assert linux["entries"] == mitosis["entries"] == mitosis["copies"] > 0 == linux["copies"]
    assert all(row["system_calls"] < linux["calls"] for row in rows), "batches are no system calls"
    text = pt(*asked, "--full").out
    pages = linux["entries"] // 2
    assert f"demotion: {pages} pages that no walk used for 0.1 s" in " ".join(text.split())
    assert "ns per batch" in text and "as traced" in text
    fewer = pt(*asked, "--demote-batch", 512, "--json")
    (call,) = [
        one for one in json.loads(fewer.out)["result"][0]["system_calls_by_kind"] if one["call"] == "demotion"
    ]
    assert call["entries"] == linux["entries"] and call["calls"] < linux["calls"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--demote-batch", "8"), "nothing is demoted without demote-idle"),
        (("--demote-idle", "1s", "--weight", "leaf"), "none is replayed"),
        (("--demote-idle", "1s", "-m", "sapphire-rapids"), "memory_nodes = [2]"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(pt, sample, cxl, arguments, said):
    ran = pt("whatif", sample, "-p", "hydra", "-m", cxl, *arguments)
    assert is_one_line(ran, 2)
    assert said in ran.err


def test_what_to_type_next_has_a_time_that_can_be_typed(pt, sample, cxl):
    said = pt("whatif", sample, "-p", "mitosis", "-m", cxl, "--demote-idle", "0.05ms").out
    assert "--demote-idle 0.00005" in " ".join(said.partition("\nNext")[2].split())
