"""Each notebook runs in a kernel of this interpreter, without an error or a warning, wherever it is opened.

With compiled kernels on disk each takes well under a minute on two cores. The limit is a cell's, and is wide:
the first run compiles, and CI is shared.
"""

import os
import subprocess
import sys

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from notebook_files import NOTEBOOKS

CELL_SECONDS = 600
HOMES = ("HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    """Caches shared by the kernels: walks of the bundled captures, and matplotlib's list of fonts."""
    place = tmp_path_factory.mktemp("caches")
    found = {"XDG_CACHE_HOME": str(place / "cache"), "MPLCONFIGDIR": str(place / "matplotlib")}
    code = "import matplotlib.font_manager"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **found}, check=True, capture_output=True)
    return found


class Kernels(AsyncKernelManager):
    """Kernels of this interpreter, whatever the user has installed."""

    def __init__(self, **how):
        super().__init__(**how, kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))


@pytest.fixture(autouse=True)
def homes(caches, tmp_path, monkeypatch):
    """Nothing is read from the user's directories, or written there."""
    for name in HOMES:
        directory = tmp_path / name.lower()
        directory.mkdir(mode=0o700)
        monkeypatch.setenv(name, str(directory))
    for name, value in caches.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("JUPYTER_PATH", raising=False)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_says_nothing_but_what_it_shows(path, tmp_path):
    opened_in = tmp_path / "elsewhere"
    opened_in.mkdir()
    notebook = nbformat.read(path, as_version=4)
    asked = nbformat.v4.new_code_cell("import sys\nprint(sys.executable)")
    notebook.cells.append(asked)
    how = {"timeout": CELL_SECONDS, "resources": {"metadata": {"path": str(opened_in)}}}
    NotebookClient(notebook, kernel_name="python3", kernel_manager_class=Kernels, **how).execute()
    assert asked.outputs[0].text.strip() == sys.executable
    said = [out for cell in notebook.cells for out in cell.get("outputs", []) if out.get("name") == "stderr"]
    assert not said, said[0].text
    assert not list(opened_in.iterdir()), "it leaves files where it was opened"
    assert shown(notebook, "image/png"), "its plots are not shown"
    assert shown(notebook, "text/html"), "its tables are not shown"


def shown(notebook, kind):
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    return [out for out in outputs if kind in out.get("data", {})]
