"""Hydra, Figures 1, 2, 9, 10: system calls alone and among spinning threads."""

from collections.abc import Iterator
from functools import cache

from msgspec.structs import replace

from ..core.machine import load_costs, load_machine
from .bench import Bench
from .published import published
from .row import DEFINITION, FITTED, MODELLED, Row, row
from .spinning import ALONE, CROWDED, calls

PAPER = published("hydra")
SPINNING = "35 spinning threads per socket, where the figures may end; cost file hydra-haswell"
FIT = "hydra-haswell is derived from this number (ADR 9)"
NONE = "nobody shares a table page and nobody runs elsewhere: what Linux does"
SLOWER_CALL = 3  # section 1: mprotect of Linux 6.5.7 takes about 3 times as long as that of 4.17
SIZES = {"128 KB": 32, "512 KB": 128}  # pages

replayed = cache(calls)


def figure_1(bench: Bench) -> Iterator[Row]:
    """mprotect of one page."""
    alone, crowded = replayed("mprotect"), replayed("mprotect", 1, CROWDED)
    linux = alone["linux"]
    yield row(PAPER["mprotect-linux"], crowded["linux"] / linux, FITTED, FIT)
    note = f"{SPINNING}; the call takes 3 times as long (section 1), shootdowns what they take in 4.17"
    yield row(PAPER["mprotect-linux-6.5"], newer_kernel(), MODELLED, note)
    yield row(PAPER["mprotect-mitosis-alone"], alone["mitosis"] / linux, FITTED, FIT)
    yield row(PAPER["mprotect-hydra-alone"], alone["hydra"] / linux, DEFINITION, NONE)
    near = replayed("mprotect", 1, (35, 0))
    note = "35 spinning threads on the caller's socket, 35 or none on each of the others"
    yield row(PAPER["mprotect-hydra-remote"], crowded["hydra"] / near["hydra"], MODELLED, note)
    yield row(PAPER["mprotect-unfiltered"], crowded["unfiltered"] / crowded["mitosis"], MODELLED, SPINNING)
    note = (
        f"{SPINNING}. Does not go together with the 2.6x of munmap: threads that spin on the caller's own "
        "socket are interrupted under Hydra too, and those that make munmap 2.6 times slower make mprotect "
        "3.2 times slower"
    )
    yield row(PAPER["mprotect-gain"], crowded["linux"] / crowded["hydra"], MODELLED, note)


def newer_kernel() -> float:
    """Slow-down of mprotect in a kernel whose call takes longer while its shootdowns take as long."""
    costs = load_costs(load_machine("hydra-haswell"))
    call = replace(costs.call, mprotect=SLOWER_CALL * costs.call.mprotect)
    slower = replace(costs, call=call)
    return calls("mprotect", 1, CROWDED, slower)["linux"] / calls("mprotect", costs=slower)["linux"]


def figure_2(bench: Bench) -> Iterator[Row]:
    """mprotect with local and remote spinning threads, and of 512 KB."""
    near, far = (replayed("mprotect", 1, (2, 1)), replayed("mprotect", 1, (1, 2)))
    base = replayed("mprotect", 1, (1, 1))["linux"]
    ratio = (far["linux"] - base) / 7 / (near["linux"] - base)
    yield row(PAPER["remote-spinners"], ratio, FITTED, "both are derived from Figures 1 and 10 (ADR 9)")
    alone, crowded = (replayed("mprotect", SIZES["512 KB"], spinning) for spinning in (ALONE, CROWDED))
    note = "128 entries in each of 8 copies; the plot's numbers are not in the text"
    yield row(PAPER["half-mib-mitosis"], alone["mitosis"] / alone["linux"], MODELLED, note)
    yield row(PAPER["half-mib-mitosis-crowded"], crowded["mitosis"] / crowded["linux"], MODELLED, SPINNING)
    yield row(PAPER["half-mib-hydra-crowded"], crowded["hydra"] / crowded["linux"], MODELLED, SPINNING)


def figure_9(bench: Bench) -> Iterator[Row]:
    """Calls on 128 KB, nobody else running."""
    pages = SIZES["128 KB"]
    note = "mmap writes no entries: faults do"
    yield row(PAPER["mmap-mitosis"], over_linux("mmap", "mitosis", pages), DEFINITION, note)
    note = "32 entries in each of 8 copies; the plot's numbers are not in the text"
    for call in ("mprotect", "munmap"):
        yield row(PAPER[f"{call}-mitosis"], over_linux(call, "mitosis", pages), MODELLED, note)
        yield row(PAPER[f"{call}-hydra"], over_linux(call, "hydra", pages), DEFINITION, NONE)


def figure_10(bench: Bench) -> Iterator[Row]:
    """munmap of one page."""
    linux, crowded = replayed("munmap")["linux"], replayed("munmap", 1, CROWDED)
    yield row(PAPER["munmap-mitosis-crowded"], crowded["mitosis"] / linux, FITTED, FIT)
    yield row(PAPER["munmap-hydra-crowded"], crowded["hydra"] / linux, FITTED, FIT)
    note = "copies as derived from mprotect's 25 %"
    yield row(PAPER["munmap-mitosis-alone"], over_linux("munmap", "mitosis"), MODELLED, note)
    yield row(PAPER["munmap-hydra-alone"], over_linux("munmap", "hydra"), DEFINITION, NONE)


def over_linux(call: str, design: str, pages: int = 1) -> float:
    ns = replayed(call, pages)
    return ns[design] / ns["linux"]
