"""Hydra, Table 4 and its other statements on footprints."""

from collections.abc import Iterator

from .bench import Bench
from .footprints import footprint, gib, sharing
from .published import published
from .row import DEFINITION, FITTED, MODELLED, Row, row

PAPER = published("hydra")
PROGRAMS = {"Graph500": 160, "Btree": 110, "HashJoin": 145, "XSBench": 85, "Canneal": 110}  # GB, Table 3
EVERYTHING = {"XSBench"}  # section 5.2: every page table is replicated on every socket
CORES, ENTRIES = 288, 512


def table_4(bench: Bench) -> Iterator[Row]:
    """Page tables under Linux, Mitosis and Hydra, a replay at full size that touches each leaf table once."""
    for program, gigabytes in PROGRAMS.items():
        name = program.lower()
        published_bytes = PAPER[f"{name}-hydra"].value
        share = 1.0 if program in EVERYTHING else sharing(gigabytes / ENTRIES, published_bytes)
        results = footprint(gigabytes, share)
        note = "sizes of Table 3, all mapped by 4 KiB pages, GB as 2^30 bytes"
        yield row(PAPER[f"{name}-linux"], gib(results["linux"]), DEFINITION, note)
        yield row(PAPER[f"{name}-mitosis"], gib(results["mitosis"]), DEFINITION, note)
        if program in EVERYTHING:
            note = "every socket touches every leaf table, as section 5.2 says"
            yield row(PAPER[f"{name}-hydra"], gib(results["hydra"]), MODELLED, note)
        else:
            note = f"sharing fitted on this: each other socket touches {100 * share:.1f} % of leaf tables"
            yield row(PAPER[f"{name}-hydra"], gib(results["hydra"]), FITTED, note)
    yield from overheads()


def overheads() -> Iterator[Row]:
    results = footprint(PROGRAMS["Canneal"], 0)
    note = "8 bytes of leaf entry per page of 4 KiB, and the tables above it"
    for design in ("linux", "mitosis"):
        share = 100 * gib(results[design]) / PROGRAMS["Canneal"]
        yield row(PAPER[f"overhead-{design}"], share, DEFINITION, note)


def radixvm(bench: Bench) -> Iterator[Row]:
    """A page table for each core."""
    share = 100 * CORES / ENTRIES
    note = "closed form: 288 copies of 8 bytes for each 4 KiB page, of memory that holds data"
    yield row(PAPER["radixvm"], share, DEFINITION, note)
