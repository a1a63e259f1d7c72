"""Shell completion: what the shells ask for, and bash itself."""

import os
import re
import subprocess
import sys

import pytest


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


def completed(program, shell, *words):
    """What `ptanalyze` offers a shell for its last word."""
    *_, last = words
    line = " ".join(["ptanalyze", *words])
    asked = {"COMP_WORDS": line, "COMP_CWORD": last if shell == "fish" else str(len(words))}
    done = subprocess.run(
        [program / "ptanalyze"],
        env=environment(program, _PTANALYZE_COMPLETE=f"{shell}_complete", **asked),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_subcommands_options_policies_and_machines_are_offered(program, shell):
    assert "whatif" in completed(program, shell, "wh")
    assert "--baseline" in completed(program, shell, "whatif", "--b")
    assert "vmitosis-cascade-lake" in completed(program, shell, "whatif", "-m", "vm")
    offered = completed(program, shell, "whatif", "-p", "hy")
    assert "hydra" in offered and "mitosis" not in offered
    assert "ptemagnet+hydra" in completed(program, shell, "sweep", "-p", "ptemagnet+hy")
    assert "sapphire-rapids" in completed(program, shell, "machines", "sa")


def test_what_is_a_choice_is_offered(program):
    assert "vm-numa-visible" in completed(program, "bash", "classify", "vm-numa-v")
    assert "prefetch=" in completed(program, "bash", "whatif", "-p", "hydra", "--set", "pre")
    assert "tlbflush=off" in completed(program, "bash", "whatif", "-p", "hydra", "--set", "tlbflush=")
    assert "round-robin" in completed(program, "bash", "whatif", "--threads-to-nodes", "rou")
    assert "perf-script" in completed(program, "bash", "import", "perf-s")
    assert "lookup@hydra" in completed(program, "bash", "compare", "lookup@hy")
    assert "mitosis,hydra" in completed(program, "bash", "whatif", "-p", "mitosis,hy")
    assert "vmitosis" in completed(program, "bash", "validate", "--paper", "vm")
    for option, word in (("--guest", "oblivious"), ("--pattern", "btree"), ("--placement", "interleave")):
        assert word in completed(program, "bash", "synth", option, word[:2]), option


def test_files_are_offered_where_no_machine_has_that_name(program):
    assert completed(program, "bash", "whatif", "-m", "./my").startswith("file")


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
