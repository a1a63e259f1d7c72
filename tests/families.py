"""A capture of several processes."""

from ptanalyze.formats.manifest import seal
from ptanalyze.formats.snapshot import write_snapshot
from strategies import REGION, build_snapshot


def make_family(place):
    """A capture of PID 7 with 8 and 9 inside: 7 and 8 map the same two pages, 9 one of them elsewhere."""
    member(place, 7, [(REGION, 5), (REGION + 4096, 6), (3 * REGION, 9)], processes=[8, 9])
    member(place / "pid-8", 8, [(4 * REGION, 5), (4 * REGION + 4096, 6)])
    member(place / "pid-9", 9, [(REGION + 8192, 5)])
    return place


def member(directory, pid, pages, **more):
    directory.mkdir(parents=True)
    write_snapshot(directory, build_snapshot(pages), {"pid": pid})
    seal(directory, "process", {"pid": pid, "comm": f"p{pid}", **more})
