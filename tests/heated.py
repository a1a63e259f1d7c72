"""Captures of a live process on a host with one node: its page tables, and samples of accessed bits."""

from heat_bits import write_bits
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.manifest import seal
from ptanalyze.formats.snapshot import write_snapshot
from strategies import PAGE, build_snapshot

HEAP = 1 << 30
USED = 256  # pages, of as many again that are not


def one_node_capture(directory, heat=True):
    """Sealed; the used pages are HEAP and 255 after it, the first in more samples than the rest."""
    directory.mkdir()
    pages = [(HEAP + k * PAGE, k) for k in range(2 * USED)]
    write_snapshot(directory, build_snapshot(pages, vmas=[(0, 1 << 47, "")], nodes=1, table_nodes=[0]))
    if heat:
        every = {(HEAP + k * PAGE, 1) for k in range(USED)}
        write_bits(directory / "heat.bits", [(10, every), (10, {(HEAP, 1)})] * 20)
    seal(directory, "process", {})
    return open_capture(directory)
