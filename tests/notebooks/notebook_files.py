"""Notebooks: where they are, what is code in them, and how they are run in a kernel of this interpreter."""

import ast
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

# Where the notebooks and their rendered copies are, and what is code in them.

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def rendered(path):
    """The copy with outputs, which a forge shows."""
    return path.parent / "rendered" / path.name


def code_of(notebook):
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")


def imported(code):
    """Names of the modules that code imports, dotted; of `from a import b` a."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


# Notebooks run in a kernel of this interpreter, whatever kernels the user has installed.

CELL_SECONDS = 600  # wide: the first run compiles, and CI is shared
HOMES = ("HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")


class Kernels(AsyncKernelManager):
    def __init__(self, **how):
        super().__init__(**how, kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))


@contextmanager
def running(place):
    """A function that runs a notebook in a directory, in place; all of them share a kernel.

    Each finds no names of those before. An error in a cell is raised.
    """
    client = NotebookClient(new_notebook(), timeout=CELL_SECONDS, kernel_manager_class=Kernels)

    def run(notebook, directory):
        start = f"%reset -f\nimport os as _os; _os.chdir({str(directory)!r}); del _os"
        for one in (new_notebook(cells=[new_code_cell(start)]), notebook):
            client.nb = one
            for k, cell in enumerate(one.cells):
                client.execute_cell(cell, k)

    with client.setup_kernel(env=os.environ | variables(place)):
        yield run


def variables(place):
    """Variables of a kernel that reads nothing of the user's and writes nothing there; its caches are in
    `place`."""
    homes = {name: place / name.lower() for name in HOMES}
    for directory in homes.values():
        directory.mkdir(mode=0o700)
    found = {name: str(directory) for name, directory in homes.items()}
    found |= {"XDG_CACHE_HOME": str(place / "cache"), "MPLCONFIGDIR": str(place / "matplotlib")}
    fonts = [sys.executable, "-c", "import matplotlib.font_manager"]  # says that it makes its list
    subprocess.run(fonts, env=os.environ | found, check=True, capture_output=True)
    return found
