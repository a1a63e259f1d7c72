"""vMitosis, Figure 2: where leaf entries are, seen from each socket."""

from collections.abc import Iterator

import numpy as np

from ..core.interval import Interval
from .bench import Bench
from .published import Figure, published
from .row import DEFINITION, MODELLED, Row, not_reproducible, row
from .wide import CANNEAL, CLASSES, counted, made, shares

PAPER = published("vmitosis")
EXPECTED = (
    "local-local-expected",
    "local-remote-expected",
    "remote-local-expected",
    "remote-remote-expected",
)
GRAPH500 = (
    "as expected by the paper (1/N^2); the interval ends where both tables follow first touch alike; the "
    "published shares lie between, as if part of the VM's memory had been touched before"
)
CANNEAL_NOTE = (
    "made by synth, 1 : 100: of 380 GB that one socket initializes, the 30 that it cannot hold are put on "
    "the next; that 17 % of the gPT were elsewhere depends on memory that was in use before"
)
OBLIVIOUS = (
    "made by synth: the host interleaves; in the paper all gPT pages were on one socket and most ePT pages "
    "on another one: from where the VM's memory was touched at first is not described"
)


def figure_2(bench: Bench) -> Iterator[Row]:
    """Classes of leaf entries."""
    even = made(bench, "visible", trace=False, placement="interleave", host_placement="interleave")
    percent = 100 * shares(even)
    middle = percent.mean(axis=0)
    note = "made by synth, both tables interleaved: the paper's expectation rests on even distributions"
    for name, value in zip(EXPECTED, middle, strict=True):
        yield row(PAPER[name], value, DEFINITION, note)
    yield row(PAPER["local-local-most"], middle[0], DEFINITION, note)
    yield row(PAPER["remote-remote-least"], middle[3], DEFINITION, note)
    yield row(PAPER["one-remote-walks"], middle[1] + middle[2], DEFINITION, note)
    first = 100 * shares(made(bench, "visible", trace=False)).mean(axis=0)
    yield from classes("graph500", "numa-visible", middle, first, GRAPH500)
    single = 100 * shares(bench.capture(trace=False, guest="visible", **CANNEAL))
    yield from classes("canneal", "numa-visible", single.mean(axis=0), single.mean(axis=0), CANNEAL_NOTE)
    yield row(PAPER["canneal-socket"], single[0, 0], MODELLED, CANNEAL_NOTE)
    yield row(PAPER["canneal-others"], single[1:, 3].mean(), MODELLED, CANNEAL_NOTE)
    published_most = 100 * counted("canneal", "numa-visible")[:, 0].max()
    title = "Canneal, NUMA-visible, Local-Local on its socket"
    figure = measured("canneal-visible-socket", title, published_most)
    yield row(figure, single[0, 0], MODELLED, CANNEAL_NOTE)
    yield from oblivious(middle)


def oblivious(even: np.ndarray) -> Iterator[Row]:
    for workload in ("canneal", "graph500"):
        for visible in classes(workload, "numa-oblivious", even, even, OBLIVIOUS):
            yield not_reproducible(visible.figure, OBLIVIOUS, visible.ours)
    yield not_reproducible(PAPER["oblivious-local-local"], OBLIVIOUS, even[0])
    yield not_reproducible(PAPER["oblivious-one-remote"], OBLIVIOUS, 100 - even[0])


def classes(workload: str, vm: str, ours: np.ndarray, other: np.ndarray, note: str) -> Iterator[Row]:
    """A row per class: the mean over sockets, as published in counts; the interval reaches to `other`."""
    known = 100 * counted(workload, vm).mean(axis=0)
    for kind, published_share, middle, end in zip(CLASSES, known, ours, other, strict=True):
        title = f"{workload.capitalize()}, {vm.replace('numa', 'NUMA')}, {kind}, mean of the sockets"
        figure = measured(f"{workload}-{vm}-{kind}", title, published_share)
        yield row(figure, Interval(min(middle, end), middle, max(middle, end)), MODELLED, note)


def measured(name: str, title: str, value: float) -> Figure:
    return PAPER.measured(name, "Figure 2, section 2.2", title, "%", value)
