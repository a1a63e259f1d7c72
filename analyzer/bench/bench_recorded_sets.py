"""Traces recorded as a sample of TLB sets beside whole ones: how far off their walks are.

The captures of bench_sample, whole, thinned before the TLBs as `record --sample` would have done, on
vmitosis-cascade-lake. Per rate: the largest error of walks and whose it is, how often the interval holds the
exact number, and half its mean width. Refused: the sample's walks are in too few of its groups.
"""

import tempfile
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from ptanalyze.analysis.sampled import around, groups_of
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_machine
from ptanalyze.core.sample import sample_of
from ptanalyze.world.placement import place
from ptanalyze.world.site import Site

from .bench_sample import MACHINE, captures, others

RATES = 2, 4, 8, 16
SMALLEST = {"RATES": (2,)}
SAMPLES_OF = {2: (0, 1), 4: (0, 1, 2, 3), 8: (0, 1, 4, 7), 16: (0, 1, 8, 15)}  # of each rate, @ which


class Error(NamedTuple):
    """Of one sample of one capture: relative; half: of the interval; held: whether that holds the number."""

    rate: int
    walks: float
    capture: str
    half: float
    held: bool


def site(capture, sample=None):
    trace, topology = capture.trace, capture.snapshot.topology
    machine = load_machine(MACHINE)
    machine = machine.resized(max(machine.nodes, len(topology)))
    if sample:
        trace = replace(trace, facts={**trace.facts, "sample": sample})
    where = place(trace, machine, topology=topology)
    return Site(capture.snapshot, trace, machine, where, sample=sample_of(sample))


def errors():
    """[Error] of all that is not refused."""
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, capture in chain(captures(scratch), others(scratch)):
            exact = site(capture).walks
            for rate in RATES:
                for which in SAMPLES_OF[rate]:
                    try:
                        weights = site(capture, f"sets:1/{rate}@{which}").weights
                    except UsageError:
                        continue
                    without = [weights.estimate(group) for group in groups_of([weights])]
                    walks = around(weights.estimate(), without, rate)
                    held = walks.low - 0.5 <= exact <= walks.high + 0.5
                    half = (walks.high - walks.middle) / exact
                    found.append(Error(rate, abs(walks.middle / exact - 1), name, half, held))
    return found


def run():
    every, rows = errors(), []
    for rate in RATES:
        own = [one for one in every if one.rate == rate]
        worst, held = max(own, key=lambda one: one.walks), sum(one.held for one in own)
        half = sum(one.half for one in own) / len(own)
        note = (
            f"{worst.capture}; {held} of {len(own)} within the interval, half of which is {100 * half:.1f} %"
        )
        rows.append((f"sets:1/{rate}, recorded: largest error of walks", 100 * worst.walks, "%", note))
    return rows
