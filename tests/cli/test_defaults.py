"""Defaults from ~/.config/ptanalyze/config.toml: of all commands, of one, and what is wrong with the file."""

import json
import os
import subprocess
import sys

import pytest

from one_line import is_one_line


@pytest.fixture
def config(monkeypatch, tmp_path):
    """Writes the user's file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "ptanalyze" / "config.toml"
    file.parent.mkdir()
    return file.write_text


SHARED = 'machine = "hydra-haswell"\nformat = "json"\n'
OWN = '[whatif]\npolicy = "hydra"\n[machines]\nformat = "csv"'


def test_defaults_are_of_each_command_with_the_option_or_of_one_and_what_is_typed_wins(pt, config, sample):
    config(SHARED + OWN)
    answer = json.loads(pt("whatif", sample).out)["result"][-1]
    assert (answer["policy"], answer["machine"]) == ("hydra", "hydra-haswell")
    assert "[default: hydra-haswell]" in " ".join(pt("whatif", "--help").out.split())
    assert pt("machines", "epyc-milan").out.startswith("state,reader,server,")
    assert json.loads(pt("machines", "epyc-milan", "--format", "json").out)["what"] == "machine"


def test_commands_below_a_group_have_tables_of_their_own(pt, config):
    config('[import]\nstrip = "off"\n[dump.process]\nstop = true\nmax-stop = "long"')
    assert pt("info", "--help").code == 0, "what other commands have is not looked at"
    ran = pt("dump", "process", "1", "--no-bpf")
    assert is_one_line(ran, 2) and "config.toml: [dump.process]: max-stop = 'long': 'long' is not" in ran.err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("machine = ", "no TOML"),
        ("machin = 1", "machin: no command has this option; did you mean machine?"),
        ("[whatf]\ncold = true", "[whatf]: no such command; did you mean whatif?"),
        ("[whatif]\nmachin = 1", "[whatif]: machin: no such option; did you mean machine?"),
        ("[whatif]\ncold = 1", "[whatif]: cold = 1: write true or false"),
        ("machine = true", "[whatif]: machine = True: write a value"),
        ("jobs = 0", "[whatif]: jobs = 0: 0 is not in the range x>=1."),
        ("[whatif]\njson = true", "[whatif]: json: no such option"),
        ("[dump]\nproces = 3", "[dump]: proces: no such command; did you mean process?"),
    ],
)
def test_what_is_wrong_with_the_file_is_told_with_its_name(pt, config, tmp_path, text, told):
    config(text)
    ran = pt("dump" if "dump" in text else "whatif", "--help")
    assert is_one_line(ran, 2) and f"{tmp_path}/ptanalyze/config.toml: {told}" in ran.err


def test_a_file_of_somebody_else_that_may_not_be_read_is_passed_over_with_a_warning(tmp_path):
    """As another user whose HOME is still root's."""
    if os.geteuid() and not os.environ.get("CI"):
        pytest.skip("needs root to be another user")
    home = tmp_path / "home"
    (home / ".config").mkdir(parents=True)
    home.chmod(0o700)
    again = "os.environ['HOME'] = sys.argv[1]; os.seteuid(65534); sys.exit(run(['policies', '--csv']))"
    code = f"import os, sys; from ptanalyze.cli import run; run(['policies', '--csv']); {again}"
    plain = {key: value for key, value in os.environ.items() if key != "XDG_CONFIG_HOME"}
    command = [sys.executable, "-c", code, home]  # Python itself may be root's alone: it is imported before
    ran = subprocess.run(command, env=plain, capture_output=True, text=True, check=False)
    assert ran.returncode == 0 and "hydra" in ran.stdout
    assert "config.toml: may not be read, so no defaults are taken from it" in ran.stderr
