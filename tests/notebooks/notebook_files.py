"""Where the notebooks and their rendered copies are, and what is code in them."""

import ast
from pathlib import Path

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
