"""One HTML page about captures, for people: it loads nothing from anywhere and reads whole without scripts.

What is on it is found elsewhere (api.report); here it is put into words, tables and figures.
"""

from .page import Page, html
from .study import Study

__all__ = ["Page", "Study", "html"]
