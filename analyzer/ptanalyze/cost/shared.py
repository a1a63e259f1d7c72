"""What workloads have in common, fitted on the published runs: the prior for a program with a single run."""

from functools import cache

import msgspec

from ..core.decode import Undecodable, plain_toml, struct_of
from ..core.errors import UsageError, bundled
from ..core.interval import Interval


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """Fitted on `workloads` of a family of runs; intervals hold a further program with 90 %.

    walk_time     share of the run time in walks, of programs with a thread whose walks overlap
    dram_share    f, for `stretch`, remote over local latency, of programs with one thread
    many_share    f of programs with many threads, from 0
    gpt_part      the gPT's part of the waiting for both tables: a walk reads one leaf entry of each, so half
    contention    (k - 1) of a contended remote node over (k - 1) of an idle node, at `walk_rate`
    any_contention  the same of programs whose walk cycles are not known
    slope         growth of contention with u / (1 + u), u walk cycles per cycle; 0 with one walker per core
    walk_rate     mean u / (1 + u) of the all-local runs
    data_share    growth of the cycles outside walks with data on an idle remote node, over (stretch - 1)
    data_loaded   the same on a contended one
    noise         a ratio of two runs of the same placement is in 1 - noise .. 1 + noise, with one thread;
                  many_noise: with many; any_noise: of either kind
    repair        the same of a run with repaired tables and one with local ones: t of all, outliers included
    """

    family: str
    workloads: tuple[str, ...]
    walk_time: float
    dram_share: Interval
    many_share: Interval
    gpt_part: Interval
    contention: Interval
    any_contention: Interval
    slope: float
    walk_rate: float
    stretch: float
    data_share: Interval
    data_loaded: Interval
    noise: float
    many_noise: float
    any_noise: float
    repair: float

    def contention_at(self, walk_per_cycle: float | None) -> Interval:
        """Contention of a program with that many walk cycles per cycle; None: not known."""
        if walk_per_cycle is None:
            return self.any_contention
        more = self.slope * (overlap(walk_per_cycle) - self.walk_rate)
        return self.contention.through(lambda ratio: max(ratio + more, 1.0))

    def share(self, crowding: Interval) -> Interval:
        """f with a node's own load between that of one thread (0) and that of all cores (1)."""
        ends = [*zip(self.dram_share, self.many_share, strict=True)]
        low, middle, high = ([alone + crowd * (many - alone) for alone, many in ends] for crowd in crowding)
        return Interval(min(low[0], high[0]), middle[1], max(low[2], high[2]))

    def noise_at(self, crowding: float) -> float:
        """As `share`, of the noise."""
        return self.noise + crowding * (self.many_noise - self.noise)


def overlap(walk_per_cycle: float) -> float:
    """Chance that a walk meets another one of its core: of a queue, with u walk cycles per cycle."""
    return walk_per_cycle / (1 + walk_per_cycle)


@cache
def shared(family: str) -> Shared:
    """Shared of all reference workloads of a family: models/reference/prior.toml, which
    `python -m ptanalyze.validate.prior` writes."""
    path = bundled("models") / "reference" / "prior.toml"
    try:
        return struct_of(plain_toml(path.read_bytes())[family], Shared)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except KeyError:
        raise UsageError(f"{path}: {family}: expected its prior") from None
    except Undecodable as error:
        raise UsageError(f"{path}: {error}") from None
