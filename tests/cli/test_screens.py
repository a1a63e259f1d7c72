"""First screens as people see them: one golden text each, in tests/golden/screens.txt.

WRITE=1 writes them again; read what changed. Whether an answer is right is tested by its codes and numbers.
"""

import os
import re
import sys
from pathlib import Path

import pytest
from msgspec import structs

from captures import TRIAL
from ptanalyze.core.errors import CHECKOUT
from ptanalyze.formats.measured import write_calibration

SCREENS = Path(__file__).parents[1] / "golden" / "screens.txt"
COMMANDS = (
    "whatif -p hydra",
    "whatif lookup -p thp,mitosis",
    "whatif lookup -p mitosis --weight leaf",
    "whatif lookup -p mitosis --stands-for 200G",
    "whatif sysbench-memory -p mitosis",
    "whatif vm-numa-visible -p ept-reset,hydra",
    "whatif lookup --calibration trial.toml",
    "advise lookup",
    "advise vm-numa-oblivious --memory 1%",
    "classify vm-numa-visible",
    "fragmentation vm-numa-visible",
)
HEAD = "$ ptanalyze "
HERE = structs.replace(
    TRIAL, program="lookup", cpu="Intel(R) Xeon(R) Processor", resident_bytes=1400 << 20, nodes=4
)


def known():
    """{command: its screen}"""
    parts = SCREENS.read_text("utf-8").split(HEAD)[1:] if SCREENS.exists() else []
    return {command: screen for command, _, screen in (part.partition("\n") for part in parts)}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_first_screen_is_the_golden_text(pt, nowhere, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    # what to type does not depend on where it is installed
    monkeypatch.setattr("sys.prefix", sys.base_prefix)
    monkeypatch.setenv("SUDO_UID", "0")  # nor on who asks
    Path("pmu_name").write_text("skylake\n")  # nor on what this CPU counts
    monkeypatch.setattr("ptanalyze.cli.replay_options.PMU_NAME", Path("pmu_name"))
    write_calibration(Path("trial.toml"), HERE)
    ran = pt(*command.split())
    assert ran.code == 0 and max(map(len, ran.out.splitlines())) <= 80
    if os.environ.get("WRITE"):
        screens = known() | {command: f"{ran.out.rstrip()}\n\n"}
        text = "".join(f"{HEAD}{name}\n{screens[name]}" for name in COMMANDS if name in screens)
        SCREENS.write_text(f"{text.rstrip()}\n", "utf-8")
    assert ran.out.rstrip() == known()[command].rstrip()


def test_a_screen_of_the_sample_says_so_and_fits_a_terminal():
    lines = known()[COMMANDS[0]].splitlines()
    assert lines[0].startswith("SAMPLE embeddings, not your program") and lines[1].startswith("hydra: ")
    assert len(lines) <= 25 and sum(line.startswith("Try: ") for line in lines) <= 1


def test_the_readme_shows_what_the_demo_prints_first():
    first, _, _ = known()[COMMANDS[0]].partition("\n\n")
    page = (CHECKOUT / "README.md").read_text("utf-8")
    shown = re.search(r"The demo prints:\n\n```text\n(.*?)```", page, re.DOTALL)
    assert shown[1].splitlines() == [line.rstrip() for line in first.splitlines()]
    assert f"$(PT) {COMMANDS[0].replace('-p', '--policy')}\n" in (CHECKOUT / "Makefile").read_text("utf-8")
