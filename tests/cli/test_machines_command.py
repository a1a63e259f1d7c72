"""`ptanalyze machines NAME`: a machine file told to people, and as JSON to programs."""

import json
import re
import tomllib

import pytest

from ptanalyze.core.errors import bundled
from ptanalyze.core.machine import load_machine, machine_names


@pytest.mark.parametrize("name", machine_names())
def test_a_machine_is_told_in_words_and_tables(pt, monkeypatch, name):
    machine, said = load_machine(name), pt("machines", name).out
    assert not re.search(r"[{}]|None|\('|', '|_ns|l1_", said.partition("sources")[0])
    assert f"{machine.tlb.l1_4k.entries:,} entries, {machine.tlb.l1_4k.ways} ways" in said
    assert f"{machine.llc.ways} ways, {machine.llc.cycles:g} cycles" in said
    far = max(max(row) for row in machine.latency.idle)
    assert "ns per read from DRAM, idle" in said and f"{far:.0f}" in said
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, pt("machines", name).out.splitlines())) <= 80
    assert all(source.split()[0] in said for source in machine.sources.values())


def test_a_machine_as_json_is_its_file(pt):
    told = json.loads(pt("machines", "hydra-haswell", "--json").out)["result"]
    file = tomllib.loads((bundled("models") / "machines/hydra-haswell.toml").read_text())
    assert {key: told[key] for key in file} == {
        **file,
        "l2": {**file["l2"], "shares": None},
        "tlb": told["tlb"],
        "walk_caches": told["walk_caches"],
    }
    assert file["tlb"].items() <= told["tlb"].items()


def test_this_host_has_a_machine_file_too(pt, tmp_path):
    path = tmp_path / "mine.toml"
    ran = pt("machines", "--from-host", path)
    assert ran.code == 0 and f"wrote {path}" in ran.err
    assert load_machine(str(path)).name == "mine"
    again = pt("machines", "--from-host", path)
    assert again.code == 2 and "exists already" in again.err
