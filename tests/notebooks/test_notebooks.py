"""Notebooks: what is stored of them, and that they run and show it."""

import ast
import json
import re
import sys

import nbformat
import pytest
from notebook_pages import NOTEBOOKS, ROOT, code_of, imported, rendered, running, said, stripped

from ptanalyze_law.prior import reference

DRAWS_FROM = {"numpy", "pandas", "ptanalyze", "ptanalyze_law", "pathlib", "seaborn", "tempfile"}
POLICY = {"msgspec", "numba", "typing"}  # what a policy is written with
# add-a-policy.md
CONTRACT = {"ptanalyze.policies", "ptanalyze.policies.contract", "ptanalyze.kernels.replay"}
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path):
    return nbformat.read(path, as_version=4)


@each
def test_it_is_valid_and_has_no_outputs_counts_or_foreign_metadata(path):
    text = path.read_text("utf-8")
    nbformat.validate(json.loads(text))
    assert text == stripped(path), "python analyzer/docs/_ext/notebook_pages.py strip mends it"
    ids = [cell["id"] for cell in json.loads(text)["cells"]]
    assert len(set(ids)) == len(ids)


@each
def test_its_rendered_copy_is_of_the_same_cells_and_shows_pictures_and_tables(path):
    copy = read(rendered(path))
    assert stripped(rendered(path)) == path.read_text("utf-8"), "it was edited: make rendered"
    shown = {kind for cell in copy.cells for out in cell.get("outputs", []) for kind in out.get("data", ())}
    assert shown == {"image/png", "text/html", "text/plain"}, "a forge shows these"


def test_there_is_no_other_rendered_copy_and_all_are_small():
    copies = set(rendered(NOTEBOOKS[0]).parent.iterdir())
    assert copies == {rendered(path) for path in NOTEBOOKS}
    assert sum(path.stat().st_size for path in copies) < 1.5e6


@each
@pytest.mark.parametrize("stored", [lambda path: path, rendered], ids=["source", "rendered"])
def test_nothing_in_it_is_of_one_machine(path, stored):
    text = re.sub(r'"image/png": ".*?"', "", stored(path).read_text("utf-8"))
    assert not re.search(r"/(home|root|tmp|work|usr|Users)/|[A-Z]:\\\\", text)
    assert not re.search(r"https?://", text), "a notebook needs no network"


@each
def test_it_uses_the_public_api_alone(path):
    known = DRAWS_FROM | POLICY if "policy" in path.stem else DRAWS_FROM
    contract = CONTRACT if "policy" in path.stem else set()
    for module in imported(code_of(read(path))):
        assert module.partition(".")[0] in known, module
        assert not module.startswith("ptanalyze.") or module in contract, module


@each
def test_every_name_in_what_to_change_is_one_of_the_package(path):
    """A call in the last cell parses, and names a function of the API or one made in the notebook."""
    import ptanalyze

    notebook = read(path)
    made = {node.name for node in ast.walk(ast.parse(code_of(notebook))) if isinstance(node, ast.FunctionDef)}
    for snippet in re.findall(r"`([^`]+\))`", notebook.cells[-1].source):
        for node in ast.walk(ast.parse(snippet)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id in made, snippet
            elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "ptanalyze":
                assert node.attr in ptanalyze.API, snippet


def test_counters_and_run_times_in_the_sixth_are_the_published_ones():
    code = code_of(read(NOTEBOOKS[5]))
    rows = reference()
    rows = rows[(rows["family"] == "thin-2D-4K") & (rows["workload"] == "btree")]
    published = {config: part.set_index("quantity")["value"] for config, part in rows.groupby("config")}
    files = re.findall(r'write_text\("""(.*?)"""\)', code, re.DOTALL)
    for config, text in zip(("LL", "RRI"), files, strict=True):
        counted = {name: int(n) for n, name in re.findall(r"(\d+),,([\w.]+):u", text)}
        assert counted == published[config].drop("run_time").astype(int).to_dict()
        assert f"{published[config]['run_time']:.0f}000000000,ns,duration_time," in text
    measured = ast.literal_eval(re.search(r"measured = (\{.*?\})", code)[1])
    assert set(measured) == set(published) - {"LL", "RRI"}
    assert measured == {config: published[config]["run_time"] for config in measured}


def test_the_manual_lists_every_notebook():
    page = (ROOT / "analyzer/docs/tutorial/notebooks.md").read_text("utf-8")
    for path in NOTEBOOKS:
        heading = read(path).cells[0].source.splitlines()[0].removeprefix("# ").partition(". ")[2]
        assert path.name in page, path.name
        assert heading in page, heading


# Each notebook runs without an error or a warning, wherever it is opened, and shows what is stored of it.


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with running(tmp_path_factory.mktemp("kernel")) as run:
        yield run


FEW = [pytest.param(path, marks=() if path is NOTEBOOKS[0] else pytest.mark.full) for path in NOTEBOOKS]


@pytest.mark.parametrize("path", FEW, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_runs_and_shows_what_its_rendered_copy_shows(run, path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    run(notebook, tmp_path)
    outputs = (out for cell in notebook.cells for out in cell.get("outputs", []))
    errors = [out for out in outputs if out.get("name") == "stderr"]
    assert not errors, errors[0].text
    assert not list(tmp_path.iterdir()), "it leaves files where it was opened"
    stored = nbformat.read(rendered(path), as_version=4)
    assert said(notebook) == said(stored), "its outputs have changed: make rendered"


def test_the_kernel_is_of_this_interpreter(run, tmp_path):
    asked = nbformat.v4.new_code_cell("import sys\nprint(sys.executable)")
    run(nbformat.v4.new_notebook(cells=[asked]), tmp_path)
    assert asked.outputs[0].text.strip() == sys.executable
