"""vMitosis, section 5.2: shadow paging, and section 4.4: the cost of migration where nothing moves."""

from collections.abc import Iterator

from .bench import Bench
from .published import published
from .row import DEFINITION, MODELLED, Row, row
from .wide import made, run_cycles, scaled, speedup

PAPER = published("vmitosis")
MIB = 1 << 20
SIZES = ("4KiB", "4MiB", "4GiB")


def shadow(bench: Bench) -> Iterator[Row]:
    """A single table instead of two: walks, initialization, and programs that change their tables."""
    results = bench.replay(made(bench, "visible"), ["linux", "shadow+mitosis"])
    note = f"{scaled(bench)}; shadow tables replicated, against two tables with a single copy each"
    yield row(PAPER["shadow-best"], speedup(results["shadow+mitosis"]), MODELLED, note)
    before, after = initializations(bench)
    note = (
        "made by synth: first touches of 256 MiB by 4 threads, priced with the zeroing of their pages; the "
        "VM's memory is backed already"
    )
    for name in ("shadow-init-least", "shadow-init-most"):
        yield row(PAPER[name], after / before, MODELLED, note)
    calls = changing(bench, ["linux", "shadow"])
    note = "made by synth: in the limit of a program that does nothing but mprotect 64 KiB and touch them"
    yield row(PAPER["shadow-worst"], calls["shadow"]["mprotect"] / calls["linux"]["mprotect"], MODELLED, note)


def initializations(bench: Bench) -> tuple[float, float]:
    """(cycles under linux, under shadow) of first touches alone."""
    size = 256 * MIB
    capture = bench.capture(size=size, guest="visible", init_trace=True, accesses=1, threads=4)
    results = bench.replay(capture, ["linux", "shadow"], cold=True)
    linux, shadow = (run_cycles(results[name]) for name in ("linux", "shadow"))
    return linux, shadow


def changing(bench: Bench, policies: list[str]) -> dict[str, dict[str, float]]:
    """{policy: {call: ns}} of a program that protects and unmaps 64 KiB again and again."""
    capture = bench.capture(
        size=64 * MIB, guest="visible", threads=1, nodes=4, accesses=200_000, mprotect_every=1000,
        munmap_every=1000,
    )  # fmt: skip
    results = bench.replay(capture, policies, cold=True)
    return {
        name: {call.call: call.ns for call in result.price.system_calls} for name, result in results.items()
    }


def migration(bench: Bench) -> Iterator[Row]:
    """Calls of vMitosis in its migration mode over Linux's: counters are kept, no copies."""
    calls = changing(bench, ["linux", "vmitosis-migrate"])
    note = (
        "made by synth, calls of 64 KiB for all sizes: the policy writes what Linux writes, and moves nothing"
    )
    for size in SIZES:
        for call in ("mmap", "mprotect", "munmap"):
            ratio = calls["linux"][call] / calls["vmitosis-migrate"][call]
            yield row(PAPER[f"{call}-{size}-migration"], ratio, DEFINITION, note)
