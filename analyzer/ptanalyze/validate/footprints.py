"""Page tables of a dataset that threads of every socket share in part (Hydra, section 5.2, Table 4)."""

import numpy as np

from ..cost.result import Result
from .designs import HYDRA, LINUX, MITOSIS
from .script import Script

SOCKETS = 8
GIB, TABLE = 1 << 30, 1 << 12
REGIONS = 512  # leaf tables per GiB
START = 1 << 34  # page number, aligned to the range of an upper table


def footprint(gigabytes: int, shared: float) -> dict[str, Result]:
    """{design: Result} of a process whose main thread maps and fills `gigabytes`, a page per leaf table.

    shared  part of the leaf tables that each of the other sockets touches too, evenly spread: the size of
            page tables depends on the leaf tables that a socket touches, not on how often or where
    """
    script, leaves = Script(range(SOCKETS)), gigabytes * REGIONS
    pages = START + 512 * np.arange(leaves)
    script.mmap(0, START, leaves * 512)
    script.touch(0, pages)
    for thread in range(1, SOCKETS):
        script.touch(thread, spread(pages, shared))
    return script.replay({"linux": LINUX, "mitosis": MITOSIS, "hydra": HYDRA})


def spread(pages: np.ndarray, share: float) -> np.ndarray:
    """`share` of the pages, evenly spaced, at least one."""
    count = max(round(len(pages) * share), 1)
    return pages[np.arange(count) * len(pages) // count]


def sharing(single: float, hydra: float) -> float:
    """Part of the leaf tables that each other socket has, from the bytes of a single copy and under Hydra."""
    return (hydra / single - 1) / (SOCKETS - 1)


def gib(result: Result) -> float:
    return result.table_pages * TABLE / GIB
