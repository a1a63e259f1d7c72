"""What commands print: `--json`, one object of one form that the manual describes; else tables that fit."""

import json
from pathlib import Path

import pytest

import ptanalyze
from every_command import LEAVES, takes
from ptanalyze.formats.json_text import SCHEMA
from vm_samples import unpack

MANUAL = Path(ptanalyze.__file__).parents[1] / "docs" / "reference" / "json.md"
VM = "VM"  # stands for a copy of the bundled capture of a VM
COUNTERS = (
    "591789168957,,cycles:u\n310406758348,,dtlb_load_misses.walk_pending:u\n"
    "15741821,,dtlb_store_misses.walk_pending:u\n0,,ept.walk_pending:u\n"
)
MATRIX = ",0,1,2,3\n0,-,50,125,125\n1,50,-,125,125\n2,125,125,-,50\n3,125,125,50,-\n"
EXAMPLES = {
    "info": [VM],
    "check": [VM],
    "walk": [VM, "0x4000000000"],
    "classify": [VM],
    "fragmentation": [VM, "--after"],
    "whatif": [VM, "-p", "mitosis"],
    "timeline": [VM, "-p", "linux", "--windows", 2],
    "sweep": [VM, "-p", "mitosis", "--set", "nodes=4"],
    "compare": [f"{VM}@linux", f"{VM}@mitosis"],
    "degrees": [VM],
    "advise": [VM],
    "calibrate": ["--local", "local.csv", "--native"],
    "predict": ["--local", "local.csv"],
    "topology groups": ["matrix.csv"],
    "diff": [VM, VM],
    "validate": ["--paper", "vmitosis", "--row", "table 4"],
    "policies": [],
    "machines": [],
    "synth": ["-o", "made", "--size", "16M", "--accesses", 1000],
    "join": ["pair/host", "pair/guest", "-o", "joined"],
}
ELSEWHERE = {  # what measures the machine, and who tests its JSON
    "survey": "tests/native/test_survey.py",
    "topology measure": "tests/native/test_pingpong.py",
    "topology latency": "tests/native/test_chase.py",
}
OTHER_NAMES = {"calibrate": "calibration"}


WITH_JSON = [name for name, command in LEAVES.items() if takes(command, "--json")]


def test_every_command_with_json_has_an_example():
    assert set(WITH_JSON) == {*EXAMPLES, *ELSEWHERE}


def test_the_manual_has_a_row_for_every_command_with_json():
    rows = [line.split("|")[1:3] for line in MANUAL.read_text().splitlines() if line.startswith("| `")]
    listed = {command.strip(" `"): what.strip().split("`")[1] for command, what in rows}
    assert all(listed[name] == OTHER_NAMES.get(name, name) for name in WITH_JSON)


@pytest.fixture
def example(pt, vm_sample, tmp_path, monkeypatch):
    """Run a command of EXAMPLES with more arguments; returns its stdout."""
    (tmp_path / "local.csv").write_text(COUNTERS)
    (tmp_path / "matrix.csv").write_text(MATRIX)
    monkeypatch.chdir(tmp_path)

    unpack("visible-bound", tmp_path).rename(tmp_path / "pair")

    def call(name, *more):
        arguments = [str(one).replace(VM, str(vm_sample)) for one in EXAMPLES[name]]
        ran = pt(*name.split(), *arguments, *more)
        assert ran.code == 0, ran.err
        return ran.out

    return call


@pytest.mark.parametrize("name", EXAMPLES)
def test_json_is_one_object_with_schema_what_and_result(example, name):
    whole = json.loads(example(name, "--json"), parse_constant=pytest.fail)
    assert list(whole) == ["schema", "what", "result"]
    assert whole["schema"] == SCHEMA == 2
    assert whole["what"] == OTHER_NAMES.get(name, name)
    assert whole["result"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_tables_fit_a_terminal_of_80_columns(example, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    lines = example(name).splitlines()
    tables = [line for line in lines if not line.startswith("    ptanalyze ")]  # a command is never broken
    assert tables and max(map(len, tables)) <= 80
