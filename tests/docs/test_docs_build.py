"""The manual and the man pages: built without a warning, from the program's own help and files."""

import re
import subprocess
import sys

import click
import pytest
from docstrings import convert
from generated import escaped as markdown
from man_pages import escaped as roff
from pages import DOCS

from command_line import EVERY
from ptanalyze.cli import entries
from ptanalyze.cli import ptanalyze as program
from ptanalyze.cost.result import COLUMNS
from ptanalyze.cost.throughput import WINDOW_COLUMNS

COMMANDS = {"ptanalyze": program} | {f"ptanalyze {name}": command for name, command in EVERY.items()}
WITHOUT_EXAMPLES = {f"ptanalyze{of}" for of in ("", "-dump", "-import", "-topology")}  # groups


@pytest.fixture(scope="module")
def manual(tmp_path_factory):
    """HTML files by name, built with every warning an error and every reference checked; no network."""
    out = tmp_path_factory.mktemp("manual")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-b", "html"]
    command += ["-d", out / "trees", DOCS, out / "html"]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return {path.relative_to(out / "html").as_posix(): path.read_text() for path in out.rglob("*.html")}


@pytest.fixture(scope="module")
def man(tmp_path_factory):
    out = tmp_path_factory.mktemp("man")
    subprocess.run([sys.executable, DOCS / "_ext" / "man_pages.py", out], check=True, capture_output=True)
    return {path.name: path for path in out.iterdir()}


def test_the_man_page_that_the_wheel_brings_is_made_of_the_help_of_now(man):
    """`make man` writes it."""
    assert (DOCS / "man/ptanalyze.1").read_text() == man["ptanalyze.1"].read_text()


def test_every_command_and_option_is_in_the_manual(manual):
    page = manual["reference/commands.html"]
    for name, command in COMMANDS.items():
        assert f">{name}<" in page
        for one in command.params:
            assert all(f">{option}" in page or f" {option}" in page for option in getattr(one, "opts", [])
                       if isinstance(one, click.Option) and not one.hidden), f"{name} {one.name}"  # fmt: skip


def test_every_column_is_in_the_manual(manual):
    keys = {one.key for one in (*COLUMNS, *WINDOW_COLUMNS)}
    assert all(f">{key}<" in manual["reference/json.html"] for key in keys) and "speedup" in keys


def test_the_manual_asks_nothing_of_the_network(manual):
    for name, text in manual.items():
        for outside in ('src="http', "src='http", "@import url(http", '<link rel="stylesheet" href="http'):
            assert outside not in text, name


def test_every_command_has_a_man_page_that_is_good_roff(man):
    assert {name.replace(" ", "-") + ".1" for name in COMMANDS} == set(man)
    for path in man.values():
        command = ["groff", "-man", "-Tutf8", "-ww", "-rLL=80n", path]
        seen = subprocess.run(command, capture_output=True, text=True, check=True)
        assert not seen.stderr, f"{path.name}: {seen.stderr}"
        shown = re.sub(".\b", "", seen.stdout)  # bold is overstruck
        assert "NAME" in shown and "OPTIONS" in shown
        assert "EXAMPLES" in shown or path.name.removesuffix(".1") in WITHOUT_EXAMPLES


def test_the_man_page_says_what_the_help_says(man):
    whole = (man["ptanalyze.1"]).read_text().replace("\\-", "-")
    assert all(f"\\fB{name}\\fR" in whole for name in entries())
    whatif = man["ptanalyze-whatif.1"].read_text().replace("\\-", "-")
    assert "--threads-to-nodes NODES" in whatif and "-p, --policy TEXT" in whatif


# What the manual's extensions make of docstrings and help texts.


def test_a_line_of_name_and_meaning_becomes_a_definition():
    pages, nodes = ["pages  int64[n]", "         how many"], ["nodes  of `frame`"]
    shown = ["``pages``", "    int64[n]", "    how many", "", "``nodes``", "    of ``frame``", ""]
    assert convert(["Counts.", "", *pages, *nodes]) == ["Counts.", "", "", *shown]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a*b|c_", "a\\*b\\|c\\_"), ("one ` alone", "one \\` alone"), ("`x_y` and z_", "``x_y`` and z\\_")],
)
def test_docstrings_hold_no_markup_but_code(text, shown):
    assert convert([text]) == [shown, ""]


def test_help_is_text_in_markdown_but_code_stays_code():
    assert markdown("[x>=1] `a*b` 1/N^2 <dir>") == r"\[x\>=1\] `a*b` 1/N\^2 \<dir\>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("--set", r"\-\-set"), (".TH x", r"\&.TH x"), ("'quoted'", r"\&\(aqquoted\(aq"), ("\\n", r"\en")],
)
def test_help_is_text_in_roff(text, shown):
    assert roff(text) == shown
