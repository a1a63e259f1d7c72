"""Each notebook runs without an error or a warning, wherever it is opened, and shows what is stored of it."""

import sys

import nbformat
import pytest
from notebook_files import NOTEBOOKS, rendered, running
from render import said


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with running(tmp_path_factory.mktemp("kernel")) as run:
        yield run


FEW = [pytest.param(path, marks=() if path is NOTEBOOKS[0] else pytest.mark.full) for path in NOTEBOOKS]


@pytest.mark.parametrize("path", FEW, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_runs_and_shows_what_its_rendered_copy_shows(run, path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    run(notebook, tmp_path)
    errors = [
        out for cell in notebook.cells for out in cell.get("outputs", []) if out.get("name") == "stderr"
    ]
    assert not errors, errors[0].text
    assert not list(tmp_path.iterdir()), "it leaves files where it was opened"
    stored = nbformat.read(rendered(path), as_version=4)
    assert said(notebook) == said(stored), "its outputs have changed: make rendered"


def test_the_kernel_is_of_this_interpreter(run, tmp_path):
    asked = nbformat.v4.new_code_cell("import sys\nprint(sys.executable)")
    run(nbformat.v4.new_notebook(cells=[asked]), tmp_path)
    assert asked.outputs[0].text.strip() == sys.executable
