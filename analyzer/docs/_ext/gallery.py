"""Directive ptanalyze-gallery: plots, drawn from small synthetic captures while the manual is built."""

import logging
import tempfile
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import ptanalyze
from ptanalyze.show import plots
from ptanalyze_report.figures import image


def pictures(place):
    """(command, what it shows, Figure): captures are made in `place`."""
    vm = ptanalyze.synth(place / "vm", "16M", guest="visible", fragmentation=0.3, threads=4, accesses=3000)
    found = ptanalyze.replay(vm, ["linux", "mitosis", "hydra"], windows=8, cold=True)
    pages = ptanalyze.page_tables(vm)
    low = int(pages.loc[pages["level"] == 1, "base"].iloc[0])
    yield (
        "classify",
        "local and remote leaf entries, from each socket",
        plots.locality(ptanalyze.classify(vm)),
    )
    yield "info", "every table page, by address, level and node", plots.page_table_map(pages)
    yield "walk", "one translation, read by read", plots.walk(ptanalyze.walk(vm, low))
    yield "whatif", "speed-ups with their intervals, and memory", plots.speedup(found.frame)
    yield "whatif --plot-kind reads", "which node serves whom", plots.reads(found.reads)
    yield "timeline", "locality over time", plots.timeline(found.timeline)
    lines = ptanalyze.fragmentation(vm, after=True)
    yield "fragmentation", "how scattered the host's entries are", plots.fragmentation(lines)


class Gallery(SphinxDirective):
    """A figure for each of `pictures`: inside the page, so that no file is kept or loaded."""

    def run(self):
        made = []
        with tempfile.TemporaryDirectory() as place:
            for command, what, figure in pictures(Path(place)):
                source, width, height = image(figure)
                alt = " ".join(figure.get_suptitle().split()).replace("&", "&amp;").replace('"', "&quot;")
                made.append(
                    nodes.paragraph(
                        "", "", nodes.literal("", f"ptanalyze {command}"), nodes.Text(f": {what}")
                    )
                )
                html = f'<img src="{source}" width="{width}" height="{height}" alt="{alt}">'
                made.append(nodes.raw("", html, format="html"))
        return made


def setup(app):
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # sockets are names of bars here, not numbers
    app.add_directive("ptanalyze-gallery", Gallery)
    return {"parallel_read_safe": True}
