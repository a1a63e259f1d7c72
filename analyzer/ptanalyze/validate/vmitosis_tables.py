"""vMitosis, Tables 4 to 6: groups of vCPUs, system calls, page-table memory; reads of a walk."""

from collections.abc import Iterator

import numpy as np

from ..analysis.cpu_groups import groups
from ..analysis.walk import explain
from ..capture.synth.plan import lay_out
from ..capture.synth.process import START
from ..core.errors import bundled
from ..core.machine import load_machine
from ..formats.node_latency import read_matrix
from .bench import Bench
from .calls import million_entries_per_second
from .published import published
from .row import DEFINITION, FITTED, REPLAYED, Row, row

PAPER = published("vmitosis")
SOCKETS = [(0, 4, 8), (1, 5, 9), (2, 6, 10), (3, 7, 11)]
PAGE, GIB, MIB, WORKLOAD = 4096, 1 << 30, 1 << 20, 3 << 39  # 1.5 TiB
ENTRIES = {"4KiB": 1, "4MiB": 1 << 10, "4GiB": 1 << 20}
# ADR 9: the cells from which models/costs/server-2020.toml was made
FITTED_LINUX = {(call, size) for call in ("mmap", "mprotect", "munmap") for size in ("4KiB", "4GiB")}
FITTED_COPIES = {("mprotect", "4KiB"), *((call, "4GiB") for call in ("mmap", "mprotect", "munmap"))}


def table_4(bench: Bench) -> Iterator[Row]:
    """Groups from the published latencies of 12 of the 192 vCPUs."""
    matrix = read_matrix(bundled("models") / "reference" / "vmitosis-table-4.tsv")
    by_latency = groups(matrix.ns, matrix.cpus)
    named = sum(len(group) for group in by_latency if group in SOCKETS)
    note = "the published matrix is input, the groups are not"
    yield row(PAPER["groups"], len(by_latency), REPLAYED, note)
    yield row(PAPER["grouped"], named, REPLAYED, note)


def table_5(bench: Bench) -> Iterator[Row]:
    """System calls, by models/costs/server-2020.toml."""
    machine = load_machine("vmitosis-cascade-lake")
    note = "cost file server-2020; ADR 9 says which cells it was made from"
    for size, entries in ENTRIES.items():
        for call in ("mmap", "mprotect", "munmap"):
            single, copied = (million_entries_per_second(machine, call, entries, copies) for copies in (1, 4))
            kind = FITTED if (call, size) in FITTED_LINUX else REPLAYED
            yield row(PAPER[f"{call}-{size}-linux"], single, kind, note)
            kind = FITTED if (call, size) in FITTED_COPIES else REPLAYED
            yield row(PAPER[f"{call}-{size}-replication"], copied, kind, note)


def table_6(bench: Bench) -> Iterator[Row]:
    """Bytes of all tables that map 1.5 TiB, upper levels included, times the policy's copies of each."""
    small, huge = table_bytes(WORKLOAD), table_bytes(WORKLOAD, huge=True)
    note = "every table page of 1.5 TiB laid out, upper levels included; copies as the policy makes them"
    made = copies_made(bench)
    for copies, (gpt, ept) in made.items():
        for name, times in (("ept", ept), ("gpt", gpt)):
            yield row(PAPER[f"{name}-{copies}"], times * small / GIB, DEFINITION, note)
        both = (gpt + ept) * small
        yield row(PAPER[f"both-{copies}"], both / GIB, DEFINITION, note)
        yield row(PAPER[f"share-{copies}"], 100 * both / WORKLOAD, DEFINITION, note)
    extra = sum(made[4]) - sum(made[1])
    yield row(PAPER["one-table-share"], 100 * small / WORKLOAD, DEFINITION, note)
    yield row(PAPER["extra-share"], 100 * extra * small / WORKLOAD, DEFINITION, note)
    yield row(PAPER["huge-extra"], extra * huge / MIB, DEFINITION, note)
    less = "36 MiB of 1.5 TiB are 0.0023 %; the paper's 0.003 % are rather the 48 MiB of all four copies"
    yield row(PAPER["huge-share"], 100 * extra * huge / WORKLOAD, DEFINITION, less)


def copies_made(bench: Bench) -> dict[int, tuple[float, float]]:
    """{replicas: (copies of a gPT page, of an ePT page)} that vmitosis-replicate makes on as many nodes."""
    capture = bench.capture(trace=False, size=8 << 20, guest="visible")
    nodes = {1: "0", 2: "0,1", 4: "0,1,2,3"}
    policies = [("vmitosis-replicate", {"nodes": some}) for some in nodes.values()]
    results = bench.replay(capture, ["linux", *policies])
    made = {copies: results[f"vmitosis-replicate nodes={some}"] for copies, some in nodes.items()}
    return {
        copies: (result.table_pages / result.single_copy, result.host_pages / result.host_single_copy)
        for copies, result in made.items()
    }


def table_bytes(size: int, huge: bool = False) -> int:
    regions = (START >> 21) + np.arange(size >> 21)
    return PAGE * len(lay_out(regions, np.full(len(regions), huge), 4))


def cold_walks(bench: Bench) -> Iterator[Row]:
    """Reads of a walk with empty caches, step by step through made page tables."""
    note = "one address of a made capture, walked with empty caches"
    for levels in (4, 5):
        capture = bench.capture(trace=False, size=4 << 20, guest="visible", levels=levels, threads=1)
        yield row(PAPER[f"reads-{levels}"], len(explain(capture.snapshot, START).steps), DEFINITION, note)
    native = bench.capture(trace=False, size=4 << 20, threads=1)
    same = "a shadow table is walked as a native one: one address of a made capture, with empty caches"
    yield row(PAPER["shadow-reads"], len(explain(native.snapshot, START).steps), DEFINITION, same)
