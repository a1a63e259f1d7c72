"""Samples beside the whole trace: the error of every rate, and whether the interval tells of it.

Bundled captures and three synthetic ones, replayed exactly and from two samples of every rate. Per rate, over
all: the largest error of walks and of the remote share of reads from DRAM, how often the interval covers the
exact value (walks, remote share, speed-ups) and half its mean width, whether a ranking changed where the
exact gap exceeds the interval, and the time beside that of the whole. Refused: the sample holds too little of
a capture for an interval. `others`: the same of further synthetic captures.
Windows are cut out of whole traces as `record --every` would have recorded them.
"""

import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from ptanalyze.analysis.asked_policies import policies_of
from ptanalyze.analysis.sampled import remote_share
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.capture.synth.capture import synthesize
from ptanalyze.capture.synth.parameters import Parameters
from ptanalyze.core.errors import UsageError
from ptanalyze.formats.capture import open_capture

from .cut_windows import cut

MACHINE = "vmitosis-cascade-lake"
SAMPLES = ("lookup", "sysbench-memory", "vm-numa-oblivious", "vm-numa-visible")
SYNTH = {"uniform": "uniform", "zipf": "zipf:1.1", "sequential": "sequential"}
# pattern, MiB, node of each thread, seed: the last six were made once how to sample was decided
OTHERS = [
    ("btree", 256, "0,1,1,2", 5),
    ("anneal", 256, "0,1,1,2", 6),
    ("uniform", 384, "0,1,1,2", 7),
    ("zipf:0.8", 768, "0,1,1,2", 8),
    ("sequential", 300, "0,1,1,2", 9),
    ("btree", 400, "0,1,2,3", 21),
    ("uniform", 640, "0,0,1,2", 22),
    ("zipf:0.99", 512, "0,1,1,1", 23),
    ("sequential", 450, "0,0,1,1", 24),
    ("anneal", 512, "0,1,2,2", 25),
    ("uniform", 1536, "0,1,1,3", 31),
    ("zipf:1.2", 1280, "0,0,2,3", 32),
    ("zipf:1.05", 896, "0,1,2,3", 51),
    ("sequential", 700, "0,1,2,2", 52),
    ("btree", 900, "0,0,1,3", 53),
    ("anneal", 700, "0,0,0,1", 54),
    ("uniform", 1024, "0,1,2,3", 55),
    ("sequential", 333, "0,0,1,2", 56),
]
RATES = [f"sets:1/{n}" for n in (2, 4, 8, 16)] + [f"regions:1/{n}" for n in (2, 4, 8, 16, 32, 64)]
SAMPLES_OF = {2: (0, 1), 4: (0, 2), 8: (0, 5), 16: (0, 11), 32: (0, 20), 64: (0, 41)}  # of each rate, @ which
WINDOWS = {"windows:1/4": 4, "windows:1/10": 10}
NUMBER = 20  # windows of a trace
MIB = 1 << 20
SIZE, ACCESSES = 512, 2_000_000  # of SYNTH: MiB, accesses
MOST_WALKS, MOST_POINTS, LEAST_COVERED = 0.10, 0.01, 0.90
SMALLEST = {
    "SAMPLES": ("lookup",),
    "SYNTH": {},
    "OTHERS": [],
    "RATES": ["sets:1/2", "regions:1/2"],
    "WINDOWS": {"windows:1/4": 4},
}
NO_EFFECT = 0.01  # speed-ups nearer to 1 have none whose error could be told


NUMBERS = ("walks", "remote", "cycles", "speedup")


class Error(NamedTuple):
    """Of one sample of one capture; the numbers None: refused."""

    capture: str
    rate: str
    walks: float | None = None  # relative
    remote: float | None = None  # share
    cycles: float | None = None  # per walk of the baseline, relative
    speedup: float | None = (
        None  # of the effect (the ratio less 1), the largest of all policies that have one
    )
    width: float | None = (
        None  # from the middle of the remote share to an end of its interval; None: all agree
    )
    covered: tuple[bool, ...] = ()  # walks, remote share, of what is neither counted nor always the same
    speedups: tuple[bool, ...] = ()  # the same of speed-ups by the middle of the assumptions
    swapped: bool = False
    time: float = 0.0  # of the exact replay's


def captures(place):
    """Iterate (name, Capture)."""
    for name in SAMPLES:
        yield name, open_capture(name)
    for name, pattern in SYNTH.items():
        where = "0,0,0,1" if pattern != "sequential" else "0,1,2,3"
        yield f"synth {name}", made(Path(place) / name, pattern, SIZE, where, accesses=ACCESSES)


def others(place):
    """The same of OTHERS."""
    for number, known in enumerate(OTHERS):
        yield f"{known[0]} {known[1]} MiB", made(Path(place) / str(number), *known)


def made(path, pattern, size, where, seed=0, accesses=1_500_000):
    """A synthetic Capture of so many MiB, of four threads."""
    known = {"pattern": pattern, "size": size * MIB, "threads_to_nodes": where, "seed": seed}
    synthesize(Parameters(**known, accesses=accesses, threads=4, scale=32), path)
    return open_capture(path)


def answers(capture, sample=None):
    """([Result], seconds of CPU time)."""
    setup = Setup.of(machine=MACHINE, sample=sample, cache_share="0.25")
    of_vms = ["vmitosis-migrate", "vmitosis-replicate", ("vmitosis-replicate", {"mode": "no-p"})]
    policies = ["first-touch", "mitosis", "hydra"] if capture.snapshot.native else of_vms
    began = time.process_time()
    wanted = policies_of(policies)
    results = replay_snapshot(capture.snapshot, capture.trace, wanted, setup, refused={})  # no stored stream
    return results, time.process_time() - began


def error(name, rate, exact, results, took):
    """Error of a sample's Results beside the exact ones."""
    base, known, share = exact[0], results[0].sampled, remote_share(exact[0].reads)
    inside = lambda interval, value: interval.low - 1e-9 <= value <= interval.high + 1e-9  # noqa: E731
    estimates = [(known.walks, base.walks), (known.remote_share, share)]

    def covered(estimates):
        """Of those that could have failed: no width, and the value held, is what never changes."""
        return tuple(
            inside(interval, value)
            for interval, value in estimates
            if interval.high - interval.low > 1e-9 * value or not inside(interval, value)
        )

    pairs = [(a.price.speedup.middle, b.sampled.speedup) for a, b in zip(exact[1:], results[1:], strict=True)]
    return Error(
        name,
        rate,
        abs(results[0].walks / base.walks - 1) if base.walks else 0.0,
        abs(known.remote_share.middle - share),
        abs(results[0].row()["cycles_per_walk"] / base.row()["cycles_per_walk"] - 1),
        max((abs((b.middle - a) / (a - 1)) for a, b in pairs if abs(a - 1) > NO_EFFECT), default=0.0),
        known.remote_share.high - known.remote_share.middle or None,
        covered(estimates),
        covered([(b, a) for a, b in pairs]),
        any(swapped(one, other) for one, other in combinations(pairs, 2)),
        took,
    )


def swapped(one, other):
    """Whether two policies, (exact speed-up, estimate) each, change places although they are far apart."""
    gap, found = one[0] - other[0], one[1].middle - other[1].middle
    width = max(max(b.high - b.middle, b.middle - b.low) for b in (one[1], other[1]))
    return abs(gap) > width and gap * found < 0


def windowed(capture, one_in):
    """What answers() needs of a capture whose trace has windows, one_in-th of the time long."""
    every = int(np.ptp(capture.trace.chunks["time"])) // NUMBER + 1
    return SimpleNamespace(snapshot=capture.snapshot, trace=cut(capture.trace, every, every // one_in))


def errors(of=captures):
    """[Error] of every capture and sample."""
    found = []
    with tempfile.TemporaryDirectory() as place:
        for name, capture in of(place):
            answers(capture)
            exact, seconds = answers(capture)
            for rate in (*RATES, *WINDOWS):
                for part, sample in parts(capture, rate):
                    try:
                        results, took = answers(part, sample)
                    except UsageError:
                        found.append(Error(name, rate))
                        continue
                    found.append(error(name, rate, exact, results, took / seconds))
    return found


def parts(capture, rate):
    """[(capture or its windows, sample to be asked for)] of a rate."""
    if rate in WINDOWS:
        return [(windowed(capture, WINDOWS[rate]), None)]
    return [(capture, f"{rate}@{which}") for which in SAMPLES_OF[int(rate.partition("/")[2])]]


def share_of(hits):
    return sum(hits) / len(hits) if hits else 1.0


def mean_time(held):
    """Of the synthetic captures of 2 million accesses; the others are replayed in a fraction of a second."""
    times = [one.time for one in held if one.capture.startswith("synth")]
    return f"{sum(times) / len(times):.2f}" if times else "-"


def summary(every):
    """A row per rate: what the gate asks."""
    for rate in dict.fromkeys(one.rate for one in every):
        own = [one for one in every if one.rate == rate]
        held = [one for one in own if one.walks is not None]
        if not held:
            continue
        covered = [hit for one in held for hit in one.covered]
        speedups = [hit for one in held for hit in one.speedups]
        widths = [one.width for one in held if one.width is not None]
        worst = {key: max(held, key=lambda one: getattr(one, key)) for key in NUMBERS}
        misses = {
            "walks": worst["walks"].walks > MOST_WALKS,
            "remote share": worst["remote"].remote > MOST_POINTS,
            "coverage": min(map(share_of, (covered, speedups))) < LEAST_COVERED,
            "ranking": any(one.swapped for one in held),
        }
        yield {
            "sample": rate,
            "samples": f"{len(held)} of {len(own)}",
            "walks, %": f"{100 * worst['walks'].walks:.1f} ({worst['walks'].capture})",
            "remote share, points": f"{100 * worst['remote'].remote:.2f} ({worst['remote'].capture})",
            "interval, points": f"{100 * sum(widths) / max(len(widths), 1):.2f}",
            "cycles per walk, %": f"{100 * worst['cycles'].cycles:.1f} ({worst['cycles'].capture})",
            "effect, %": f"{100 * worst['speedup'].speedup:.1f} ({worst['speedup'].capture})",
            "covered, %": f"{100 * share_of(covered):.0f} of {len(covered)}",
            "speed-ups covered, %": f"{100 * share_of(speedups):.0f} of {len(speedups)}",
            "time": mean_time(held),
            "not met": ", ".join(name for name, missed in misses.items() if missed) or "-",
        }


def run():
    rows = []
    for row in summary(errors()):
        note = ", ".join(
            f"{name} {value}" for name, value in row.items() if name not in ("sample", "covered, %")
        )
        covered = row["covered, %"].partition(" of ")[0]
        rows.append((f"{row['sample']}: exact value within the interval", covered, "%", note))
    return rows


def main(of):
    """Write the table of the manual."""
    every = errors(of)
    rows = list(summary(every))
    print(" | ".join(["", *rows[0], ""]).strip())
    print("|" + "---|" * len(rows[0]))
    for row in rows:
        print(" | ".join(["", *row.values(), ""]).strip())
    for one in every:
        print(one, file=sys.stderr)


if __name__ == "__main__":
    main(others if sys.argv[1:] == ["others"] else captures)
