"""The help: four groups that fit a terminal and import no command; every option says what it is."""

import re
import subprocess
import sys
from inspect import cleandoc

import click
import pytest

from every_command import EVERY, LEAVES
from ptanalyze.capture.live import cacheline
from ptanalyze.cli import COMMANDS, ENTRIES
from ptanalyze.cli import ptanalyze as program

LONGEST = 45  # characters of a summary: fits 80 columns behind the longest name
SAYS_ITS_DEFAULT = re.compile(r"\bDefault: .+\.$")


OPTIONS = {
    (name, one.opts[0]): one
    for name, command in {"": program, **EVERY}.items()
    for one in command.params
    if isinstance(one, click.Option)
}


def test_the_help_imports_no_command_and_nothing_slow():
    code = (
        "import sys; from ptanalyze.cli import run; run(['--help']); "
        "print([m for m in sys.modules if m.startswith('ptanalyze.cli.')"
        " or m in ('numpy', 'numba', 'pandas', 'pyarrow', 'rich')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_commands_are_listed_in_four_groups_that_fit_80_columns(pt, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = pt("--help").out
    assert max(map(len, out.splitlines())) <= 80
    places = [out.index(f"\n{heading}:\n") for heading in COMMANDS]
    assert list(COMMANDS) == ["Capture", "Inspect", "Ask", "Model"] and places == sorted(places)
    for name, entry in ENTRIES.items():
        assert re.search(rf"^  {name} +{re.escape(entry.summary)}$", out, re.MULTILINE), name


@pytest.mark.parametrize("name", EVERY)
def test_a_summary_is_a_short_sentence(name):
    summary = EVERY[name].short_help
    assert summary and summary[0].isupper() and summary.endswith(".") and len(summary) <= LONGEST


@pytest.mark.parametrize("name", EVERY)
def test_a_command_explains_itself_in_sentences(name):
    first = cleandoc(EVERY[name].help).split("\n\n")[0]
    assert (first[0].isupper() and first[-1] in ".:") or "completion" in first


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_an_example_that_names_options_it_has(name):
    text = LEAVES[name].help.replace("\n", " ")
    example = re.search(r"Examples?(?: \([^)]*\))?: +(.*)", text)
    assert example or name == "completion", name
    options = {word for one in LEAVES[name].params for word in (*one.opts, *one.secondary_opts)}
    told = re.findall(rf"ptanalyze {name}((?: [^;&|]*)?)", example[1]) if example else []
    used = {
        word.partition("=")[0] for line in told for word in line.split(" -- ")[0].split() if word[0] == "-"
    }
    assert used <= options, used - options


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_an_option_says_what_it_is_and_its_default(name, option):
    one = OPTIONS[name, option]
    assert one.help and one.help[0].isupper() | one.help.startswith(("perf stat",)), one.help
    assert one.help.endswith("."), one.help
    if not (one.is_flag or one.required):
        assert one.show_default or SAYS_ITS_DEFAULT.search(one.help) or "Also " in one.help, one.help


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_an_option_shows_its_default_where_it_has_one_and_does_not_say_it_twice(name, option):
    one = OPTIONS[name, option]
    assert not (one.show_default and "Default:" in one.help)


def test_defaults_that_are_told_in_words_are_those_of_the_code():
    assert f"Default: {cacheline.ROUNDS}." in OPTIONS["topology measure", "--rounds"].help
    assert f"Default: {cacheline.REPEAT}." in OPTIONS["topology measure", "--repeat"].help


@pytest.mark.parametrize("name", EVERY)
def test_the_help_of_a_command_fits_80_columns(pt, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, pt(*name.split(), "--help").out.splitlines())) <= 80


def test_the_former_name_of_jobs_is_taken_and_not_shown(pt, sample):
    assert "--threads " not in pt("whatif", "--help").out and "-j, --jobs" in pt("whatif", "--help").out
    old = pt("classify", sample, "--weight", "walks", "--threads", 2, "--csv")
    assert old.code == 0 and old.out == pt("classify", sample, "--weight", "walks", "-j", 2, "--csv").out
