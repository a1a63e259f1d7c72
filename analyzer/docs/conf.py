"""Sphinx configuration: `make docs`, or `python -m sphinx -W -n analyzer/docs build/docs`. No network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from ptanalyze import __version__

project = "ptanalyze"
copyright = "the ptanalyze contributors, MIT licence"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "generated", "gallery", "docstrings"]
exclude_patterns = ["_ext"]
html_theme = "furo"
html_title = f"ptanalyze {release}"
html_show_sourcelink = False
smartquotes = False  # "--set" stays two dashes
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say shapes, dtypes and units
nitpick_ignore_regex = [("py:.*", r"(?!ptanalyze).*")]  # other projects' pages are not asked: no network
