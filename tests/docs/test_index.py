"""The index of the manual: tasks that a reader looks for by name are there by that name."""

import re

import pytest
from pages import DOCS

TASKS = (
    "Record with Pin",
    "Read a perf profile",
    "Dump a live VM",
    "Add a policy",
    "Add a machine",
)


def listed(caption):
    """Titles of the pages below a caption of the index."""
    tree = re.search(
        rf":caption: {caption}\n:maxdepth: 1\n\n(.*?)\n```", (DOCS / "index.md").read_text(), re.S
    )
    return [(DOCS / f"{page}.md").read_text("utf-8").splitlines()[0] for page in tree[1].split()]


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_a_page_of_its_name(task):
    assert f"# {task}" in listed("How to")


@pytest.mark.parametrize("caption", ["Tutorial", "How to", "Reference", "Explanation"])
def test_every_part_of_the_manual_has_pages(caption):
    assert len(listed(caption)) >= 3
