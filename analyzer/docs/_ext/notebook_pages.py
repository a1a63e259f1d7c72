"""Notebooks: where they are, how they are run, how they are stored, and their copies with outputs.

python analyzer/docs/_ext/notebook_pages.py strip              takes out what an editor leaves in them
python analyzer/docs/_ext/notebook_pages.py render [01 ...]    writes notebooks/rendered (`make rendered`)
"""

import ast
import base64
import html
import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from copy import deepcopy
from io import BytesIO
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image

# Where the notebooks and their rendered copies are, and what is code in them.

ROOT = Path(__file__).parents[3]
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


# said of one run: this one has no compiled code yet
COMPILING = re.compile(r"(ptanalyze: (compiling \d+ functions, .*|\d+ of \d+ compiled)\n)+")


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
                if "outputs" in cell:
                    cell.outputs = [
                        one for one in cell.outputs if not COMPILING.fullmatch(one.get("text", ""))
                    ]

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


# How they are stored: without outputs, counts and metadata.

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def stripped(path):
    """Text of the notebook as it is stored: nbformat 4.5, code and prose alone."""
    found = nbformat.read(path, as_version=4)
    cells = [
        {"cell_type": cell.cell_type, "id": cell.id, "metadata": {}, "source": cell.source.strip("\n")}
        | ({"outputs": [], "execution_count": None} if cell.cell_type == "code" else {})
        for cell in found.cells
        if cell.source.strip()
    ]
    notebook = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return nbformat.writes(nbformat.from_dict(notebook)) + "\n"


# Their copies with outputs, which a forge shows.

COLOURS = 256  # of a plot: half of the bytes, and no difference to be seen
RICHEST = ("image/png", "text/html", "text/plain")


def kept(notebook):
    """The notebook as its rendered copy: of each output the richest form, with nothing of one run in it."""
    copy = deepcopy(notebook)
    copy.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate((cell for cell in copy.cells if cell.cell_type == "code"), 1):
        cell.metadata, cell.execution_count = {}, number
        cell.outputs = [kept_output(output, number) for output in cell.outputs]
    return copy


def kept_output(output, number):
    if output.output_type == "stream":
        return output
    kind = next(kind for kind in RICHEST if kind in output.data)
    data = {kind: output.data[kind]}
    if kind == "image/png":
        data = {kind: smaller(data[kind]), "text/plain": output.data["text/plain"]}
    elif kind == "text/html":
        data = {kind: re.sub(r"\bT_[0-9a-f]{5}", f"T_{number}", data[kind])}
    return nbformat.v4.new_output("display_data", data)


def smaller(png):
    picture = Image.open(BytesIO(base64.b64decode(png))).convert("RGB")
    file = BytesIO()
    picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        file, "png", optimize=True
    )
    return base64.b64encode(file.getvalue()).decode()


def said(notebook):
    """[[(kind, words)]] of the outputs of each code cell: of a picture its title."""
    return [[said_by(output) for output in cell.outputs] for cell in notebook.cells if "outputs" in cell]


def said_by(output):
    if output.output_type == "stream":
        return output.name, output.text
    kind = next(kind for kind in RICHEST if kind in output.data)
    text = output.data["text/plain" if kind == "image/png" else kind]
    return kind, html.unescape(
        " ".join(re.sub(r"<style.*?</style>|<[^>]+>", " ", text, flags=re.DOTALL).split())
    )


def strip():
    for path in NOTEBOOKS:
        path.write_text(stripped(path), "utf-8")


def render(numbers):
    with tempfile.TemporaryDirectory() as place, running(Path(place)) as run:
        for path in [path for path in NOTEBOOKS if path.stem[:2] in (numbers or path.stem)]:
            notebook = nbformat.read(path, as_version=4)
            run(notebook, place)
            rendered(path).parent.mkdir(exist_ok=True)
            rendered(path).write_text(nbformat.writes(kept(notebook)) + "\n", "utf-8")
            print(rendered(path))


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    strip() if what == "strip" else render(numbers)
