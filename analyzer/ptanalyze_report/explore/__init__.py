"""A page table to look around in, in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ptanalyze as pt

if TYPE_CHECKING:
    from .widget import Explorer


def explore(capture: pt.formats.CaptureLike = None) -> Explorer:
    """The map of a capture's page tables: zoom from the whole address space to one table page.

    It colours tables by their node, and draws the walk of an address. In a notebook; it needs a running
    kernel. UsageError without page tables, or without anywidget.
    """
    try:
        from .widget import Explorer
    except ImportError as missing:
        raise pt.UsageError("explore needs anywidget: pip install 'ptanalyze[notebooks]'") from missing
    return Explorer(pt.load(capture))
