"""The page of questions names every command; worked examples are what validate says now."""

import re
import sys

from pages import DOCS

from ptanalyze.cli import ENTRIES
from ptanalyze.validate.run import flat, validate

sys.path.insert(0, str(DOCS / "_ext"))

from worked_examples import FIGURES, section


def test_every_command_answers_a_question():
    page = (DOCS / "which-command.md").read_text("utf-8")
    named = set(re.findall(r"`(?:sudo )?ptanalyze (\w+)", page))
    assert named == set(ENTRIES)


def test_worked_examples_are_what_validate_says():
    """Of figures whose numbers need no workload to be made; `make examples` writes the page anew."""
    page = (DOCS / "worked-examples.md").read_text("utf-8")
    assert [f"## {paper}, {one}" for paper, (_, figures) in FIGURES.items() for one in figures] == re.findall(
        r"^## .+$", page, re.MULTILINE
    )
    rows = [flat(row) for _, found in validate(("vmitosis",), "Figure 1,") for row in found]
    assert len(rows) > 20 and section("vmitosis", "Figure 1", rows) in page
