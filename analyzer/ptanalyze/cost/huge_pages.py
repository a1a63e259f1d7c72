"""2 MiB pages, as the counters of a run show them: how much of a walk then waits for DRAM is hardly known."""

from ..core.interval import Interval
from .closed_forms import Run

# ePT over gPT walk cycles: 1.01 to 1.27 in the published runs of 4 KiB pages; 0.25 to 0.88 in those of THP
LEAST_EPT = 0.9
FEW = 0.1  # share of walks that end at 2 MiB pages
# f of the five published programs with THP: none for GUPS, PageRank and LibLinear, all of it for BTree
SHARE = Interval(0.0, 0.2, 1.0)
PART = Interval(0.5, 0.9, 0.95)  # the gPT's of the waiting: the host's table of 2 MiB pages mostly is cached


def in_the_host(run: Run) -> bool:
    """Whether a virtual machine's run had 2 MiB pages, at least in the host: nested walks are shorter."""
    return bool(run.gpt and run.ept and run.ept < LEAST_EPT * run.gpt)


def signs(run: Run) -> str:
    """A sentence: how a run shows 2 MiB pages, and what follows; "" where it does not."""
    if run.huge_walks is not None and run.huge_walks > FEW:
        sign = f"{run.huge_walks:.0%} of its walks end at 2 MiB pages"
    elif in_the_host(run) and run.gpt and run.ept:
        sign = (
            f"ePT walk cycles are {run.ept / run.gpt:.2f} times the gPT's, with 4 KiB pages about 1 or more"
        )
    else:
        return ""
    return (
        f"2 MiB pages: {sign}; between none and all of the walk cycles wait for DRAM, no counter of a local "
        "run says how much: add a run with remote tables"
    )
