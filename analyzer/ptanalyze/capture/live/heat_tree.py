"""Samples of accessed bits of a process and its descendants, taken at the same time, in one capture."""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ...core.errors import PartialDataError, UsageError
from ...formats.heat_file import FILE
from .dump import dump_process, seal_dump
from .heat import LENGTHS, dump_after, provenance, sample_each
from .process import Process, opened
from .tree import alive, descendants


def heat_tree(pid: int, directory: Path, seconds: int, lengths: Sequence[int] = LENGTHS) -> list[str]:
    """As heat.heat_process of `pid` into `directory`, of its descendants into pid-PID/ there; all sealed.

    Descendants that end before they have a sample, or begin meanwhile, are left out, and lines say so. Errors
    for `pid` as of heat_process.
    """
    lines, others, found = [], provenance(), [pid, *descendants(pid)]
    places = {one: directory if one == pid else directory / f"pid-{one}" for one in found}
    with ExitStack() as stack:
        processes: dict[int, Process] = {}
        for one, place in places.items():
            place.mkdir(mode=0o700, exist_ok=one == pid)
            try:
                processes[one] = stack.enter_context(opened(one))
                dump_process(one, place, bpf=True)
            except (PartialDataError, UsageError) as error:
                processes.pop(one, None)
                lines.append(ended(one, pid, place, error))
        said = sample_each({one: places[one] / FILE for one in processes}, seconds, lengths)
        new = [one for one in descendants(pid) if one not in found]
        for one, of in said.items():
            if isinstance(of, Exception):
                lines.append(ended(one, pid, places[one], of))
            else:
                lines += [*of, *dump_after(processes[one], places[one])]
    inside = [one for one, of in said.items() if one != pid and not isinstance(of, Exception)]
    for one in inside:
        seal_dump(places[one], others)
    seal_dump(directory, others | {"processes": inside})
    lines += [f"PID {one}: began while others were sampled; left out" for one in new]
    return list(dict.fromkeys(lines))


def ended(one: int, pid: int, place: Path, error: Exception) -> str:
    """Remove what there is of a descendant that has ended; a line. Another's error is raised."""
    if one == pid or alive(one):
        raise error
    shutil.rmtree(place)
    return f"PID {one}: ended before it was sampled; left out"
