"""Every code block of the manual that can run is run, page by page, in a directory with the bundled captures.

Blocks of a page run in order and share the directory, as a reader would go on. A block that cannot run here
says why in a comment before it: `% not run: needs root`. `% file: NAME` writes the block to a file.
"""

import json
import shlex
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout

import pytest
from pages import DOCS, PAGES, blocks, commands

from captures import shorter_samples
from ptanalyze.cli import run
from ptanalyze.core.errors import CHECKOUT

RUNNABLE = [page for page in PAGES if any(not block.not_run for block in blocks(page))]
DATA = {"json": json.loads, "toml": tomllib.loads, "text": str}


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    """Bundled captures for all pages, of traces the beginning: it is proven that commands run."""
    return shorter_samples(tmp_path_factory.mktemp("docs"))


@pytest.fixture
def place(captures, tmp_path, monkeypatch):
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps" / "samples").symlink_to(captures)
    (tmp_path / "models").symlink_to(CHECKOUT / "models")
    monkeypatch.setattr("ptanalyze.core.errors.CHECKOUT", tmp_path)
    program = tmp_path / "bin" / "ptanalyze"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ptanalyze "$@"\n')
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(captures / ".cache"))
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return tmp_path


FEW = "tutorial/first-look.md", "tutorial/virtual-machine.md", "howto/compare-placements.md", "howto/plots.md"
SHORT = [pytest.param(page, marks=() if page in FEW else pytest.mark.full) for page in RUNNABLE]


@pytest.mark.parametrize("page", SHORT)
def test_the_code_of_a_page_runs(page, place, capfd):
    names = {}
    for block in blocks(page):
        if block.not_run:
            continue
        if block.file:
            (place / block.file).write_text(block.code)
        if block.language == "sh":
            for line, expected in commands(block.code):
                code = shell(line)
                assert code == expected, f"{line}: exit code {code}\n{capfd.readouterr().err}"
        elif block.language == "python":
            exec(compile(block.code, page, "exec"), names)
        else:
            DATA[block.language](block.code)
        assert "Traceback" not in capfd.readouterr().err


def shell(line):
    """Exit code of a line of shell: of ptanalyze alone in this process, which has compiled its kernels."""
    words = shlex.split(line, comments=True)
    if words[0] != "ptanalyze" or {"|", "&&"} & set(words):
        return subprocess.run(["bash", "-euo", "pipefail", "-c", line]).returncode
    if ">" not in words:
        return run(words[1:])
    *words, _, path = words
    with open(path, "w") as file, redirect_stdout(file):
        return run(words[1:])


def test_what_is_not_run_says_why():
    for page in PAGES:
        for block in blocks(page):
            assert not block.not_run or block.not_run.startswith("needs "), f"{page}: {block.not_run}"
            assert block.not_run or block.language in ("sh", "python", *DATA), f"{page}: {block.language}"


def test_every_mark_stands_before_its_block():
    for page in PAGES:
        marks = [line for line in (DOCS / page).read_text("utf-8").splitlines() if line.startswith("% ")]
        assert len(marks) == sum(bool(block.file or block.not_run) for block in blocks(page)), page
