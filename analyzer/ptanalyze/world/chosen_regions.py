"""Which regions a sample holds: one of each n that are alike, by what is known of their walks.

Regions are alike whose leaf table is on the same node, which the same nodes walk first and most, and about as
often. They are put in that order, then by address; of each n in a row every sample has one, by hash. Runs of
the order are strata, each scaled to its walks, which are known (Cochran, "Sampling Techniques", 1977: 5A.9,
stratification after selection; 6.10, separate ratio estimator).
"""

from dataclasses import replace

import numpy as np

from ..core.sample import Sample
from ..core.trace import SLOT_BITS
from .region_walks import RegionWalks
from .sampling import Sampling, hashed

GROUPS = 16
MOST_STRATA = 16
IN_STRATUM = 2  # regions of a sample, at least
LINE_BITS = 3  # of the number of an entry: eight share a cache line
POWERS = 32  # of 4 in a number of walks, at most


def chosen_regions(sample: Sample, va: np.ndarray, node: np.ndarray, walks: RegionWalks) -> Sampling:
    """Sampling of regions by their walks.

    va, node  [R]: address >> 21 of each, and where its leaf table is
    """
    n, total = sample.one_in, walks.total
    walked = np.flatnonzero(total)
    kind = kinds(np.stack([node, walks.first, walks.most])[:, walked], total[walked])
    order = np.lexsort([va[walked], kind])
    walked, kind = walked[order], kind[order]
    stratum = np.zeros(len(va), np.int64)
    stratum[walked] = strata(kind, max(IN_STRATUM * n, -(-len(walked) // MOST_STRATA)))
    block = np.arange(len(walked)) // n
    walked = walked[np.lexsort([hashed(va[walked]), block])]
    held = np.arange(len(walked)) % n == sample.which
    count = int(stratum.max(initial=0)) + 1
    region = np.full(len(va), GROUPS * count, np.int16)
    region[walked[held]] = (block % GROUPS * count + stratum[walked])[held]
    chosen = np.zeros(len(va), bool)
    chosen[walked[held]] = True
    beyond = lines_above(va, walks.by_node, chosen) - lines_above(va, walks.by_node, total > 0) / n
    slot = np.zeros(1 << SLOT_BITS, np.int16)
    return Sampling(sample, GROUPS * count, region, slot, stratum, 1 / n, beyond, strata=count)


def lines_above(va: np.ndarray, by_node: np.ndarray, which: np.ndarray) -> float:
    """Cache lines of the tables above the leaves that a node's CPUs walk through to some of the regions.

    by_node, which  [R, nodes] walks, bool[R]; the mean of all nodes, by their walks
    """
    lines = [len(np.unique(va[which & (own > 0)] >> np.uint64(LINE_BITS))) for own in by_node.T]
    walks = by_node.sum(axis=0)
    return float(np.average(lines, weights=walks)) if walks.any() else 0.0


def of_regions(known: Sampling, va: np.ndarray, wanted: np.ndarray) -> Sampling:
    """The same Sampling by the numbers of other Regions, whose addresses >> 21 are `wanted`."""
    if np.array_equal(va, wanted):
        return known
    order = np.argsort(va)
    at = order[np.minimum(np.searchsorted(va, wanted, sorter=order), len(va) - 1)]
    here = va[at] == wanted
    region = np.where(here, known.region[at], known.outside).astype(np.int16)
    return replace(known, region=region, stratum=np.where(here, known.stratum[at], 0))


def kinds(keys: np.ndarray, walks: np.ndarray) -> np.ndarray:
    """int64[R]: the same number for regions alike in int[k, R] keys whose walks are within a power of 4.

    Powers are counted down from the region with the same keys that is walked most.
    """
    rows, of = np.unique(keys, axis=1, return_inverse=True)
    most = np.zeros(rows.shape[1], np.int64)
    np.maximum.at(most, of, walks)
    fewer = np.floor(np.log2(most[of] / walks) / 2).astype(np.int64)
    number: np.ndarray = of * POWERS + fewer
    return number


def strata(kind: np.ndarray, least: int) -> np.ndarray:
    """int64[R]: stratum of each region, of sorted kinds: of whole kinds, `least` regions or more in each."""
    starts = [0]
    for at in (np.flatnonzero(np.diff(kind)) + 1).tolist():
        if at - starts[-1] >= least and len(kind) - at >= least:
            starts.append(at)
    found: np.ndarray = np.searchsorted(starts, np.arange(len(kind)), side="right") - 1
    return found
