"""What the manual's extensions make of docstrings and help texts."""

import sys

import pytest
from pages import DOCS

sys.path.insert(0, str(DOCS / "_ext"))

from docstrings import convert
from generated import escaped as markdown
from man_pages import escaped as roff


def test_a_line_of_name_and_meaning_becomes_a_definition():
    assert convert(["Counts.", "", "pages  int64[n]", "         how many", "nodes  of `frame`"]) == [
        "Counts.",
        "",
        "",
        "``pages``",
        "    int64[n]",
        "    how many",
        "",
        "``nodes``",
        "    of ``frame``",
        "",
    ]


def test_what_follows_a_definition_without_indentation_is_a_paragraph():
    assert convert(["a  first", "Then text."])[-3:] == ["", "Then text.", ""]


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
