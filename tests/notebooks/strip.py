"""Strip from the notebooks what an editor leaves in them: outputs, counts, metadata.

python tests/notebooks/strip.py
"""

import nbformat
from notebook_files import NOTEBOOKS

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


if __name__ == "__main__":
    for path in NOTEBOOKS:
        path.write_text(stripped(path), "utf-8")
