"""Write the notebooks with their outputs into notebooks/rendered: `make rendered`.

python tests/notebooks/render.py [01 ...]
"""

import base64
import html
import re
import sys
import tempfile
from copy import deepcopy
from io import BytesIO
from pathlib import Path

import nbformat
from notebook_files import NOTEBOOKS, rendered, running
from PIL import Image
from strip import METADATA

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


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place, running(Path(place)) as run:
        for path in [path for path in NOTEBOOKS if path.stem[:2] in (sys.argv[1:] or path.stem)]:
            notebook = nbformat.read(path, as_version=4)
            run(notebook, place)
            rendered(path).parent.mkdir(exist_ok=True)
            rendered(path).write_text(nbformat.writes(kept(notebook)) + "\n", "utf-8")
            print(rendered(path))
