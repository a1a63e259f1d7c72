"""Shell completion: what the shells ask for, and bash itself."""

import os
import re
import subprocess
import sys

import pytest

from ptanalyze.cli import run


@pytest.fixture
def program(tmp_path):
    """A directory with the program `ptanalyze` of this interpreter, for PATH."""
    script = tmp_path / "ptanalyze"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nsys.argv[0] = 'ptanalyze'\n"
        "from ptanalyze.__main__ import main\nmain()\n"
    )
    script.chmod(0o755)
    return tmp_path


def environment(program, **more):
    return {"PATH": f"{program}:/usr/bin:/bin", "HOME": str(program), **more}


@pytest.fixture
def completed(capsys, monkeypatch):
    """What `ptanalyze` offers a shell for its last word; test_bash_completes asks a process of its own."""
    monkeypatch.setattr(sys, "argv", ["ptanalyze"])

    def offered(shell, *words):
        line = " ".join(["ptanalyze", *words])
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", words[-1] if shell == "fish" else str(len(words)))
        monkeypatch.setenv("_PTANALYZE_COMPLETE", f"{shell}_complete")
        with pytest.raises(SystemExit) as ended:
            run()
        assert ended.value.code == 0
        return capsys.readouterr().out

    return offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_subcommands_options_policies_and_machines_are_offered(completed, shell):
    assert "whatif" in completed(shell, "wh")
    assert "--baseline" in completed(shell, "whatif", "--b")
    assert "vmitosis-cascade-lake" in completed(shell, "whatif", "-m", "vm")
    offered = completed(shell, "whatif", "-p", "hy")
    assert "hydra" in offered and "mitosis" not in offered
    assert "ptemagnet+hydra" in completed(shell, "sweep", "-p", "ptemagnet+hy")
    assert "sapphire-rapids" in completed(shell, "machines", "sa")


def test_what_is_a_choice_is_offered(completed):
    assert "vm-numa-visible" in completed("bash", "classify", "vm-numa-v")
    assert "prefetch=" in completed("bash", "whatif", "-p", "hydra", "--set", "pre")
    assert "tlbflush=off" in completed("bash", "whatif", "-p", "hydra", "--set", "tlbflush=")
    assert "round-robin" in completed("bash", "whatif", "--threads-to-nodes", "rou")
    assert "perf-script" in completed("bash", "import", "perf-s")
    assert "lookup@hydra" in completed("bash", "compare", "lookup@hy")
    assert "mitosis,hydra" in completed("bash", "whatif", "-p", "mitosis,hy")
    assert "vmitosis" in completed("bash", "validate", "--paper", "vm")
    for option, word in (("--guest", "oblivious"), ("--pattern", "btree"), ("--placement", "interleave")):
        assert word in completed("bash", "synth", option, word[:2]), option


def test_files_are_offered_where_no_machine_has_that_name(completed):
    assert completed("bash", "whatif", "-m", "./my").startswith("file")


def test_bash_completes(program):
    script = """
    export COMP_WORDS COMP_CWORD
    eval "$(ptanalyze completion bash)"
    complete -p ptanalyze
    COMP_WORDS=(ptanalyze topo); COMP_CWORD=1
    _ptanalyze_completion ptanalyze
    echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "-c", script], env=environment(program), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "topology"


def in_a_terminal(program, arguments, **more):
    """What a command writes to a terminal, byte for byte."""
    own, other = os.openpty()
    process = subprocess.Popen(
        [program / "ptanalyze", *arguments],
        env=environment(program, TERM="xterm-256color", **more),
        stdin=subprocess.DEVNULL,
        stdout=other,
    )
    os.close(other)
    out = b""
    try:
        while block := os.read(own, 1 << 16):
            out += block
    except OSError:  # Linux's way to say that the other end is closed
        pass
    os.close(own)
    assert process.wait() == 0
    return out.decode()


def test_colour_is_for_terminals_and_not_with_no_color(program):
    arguments = ["machines", "hydra-haswell"]
    assert "\x1b[36m" in in_a_terminal(program, arguments)
    assert "\x1b[36m" not in in_a_terminal(program, arguments, NO_COLOR="1")
    piped = subprocess.run([program / "ptanalyze", *arguments], env=environment(program), capture_output=True)
    assert piped.returncode == 0 and b"\x1b" not in piped.stdout


def test_the_terminal_says_how_wide_tables_are(program):
    for width in (60, 80, 120):
        out = in_a_terminal(program, ["policies"], COLUMNS=str(width), NO_COLOR="1")
        lines = re.sub("\x1b\\[[0-9;]*m", "", out).split("\r\n")
        assert 40 < max(map(len, lines)) <= width
