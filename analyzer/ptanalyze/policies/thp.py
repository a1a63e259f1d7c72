"""thp: 2 MiB pages wherever memory is anonymous, in the guest, in the host, or in both.

Memory that the program forbids huge pages stays as it is: madvise(MADV_NOHUGEPAGE), as the trace has it, and
all after prctl(PR_SET_THP_DISABLE). A dump alone tells only the latter. What the program asks huge pages for
has them in the baseline already (world.scenario.with_advice).

It changes page sizes, no placement, so it goes together with every policy that places tables. vMitosis
(section 4.1) measures them with all memory contiguous, and with a fragmented guest over a host that is
not: fragmentation=0.5 host_fragmentation=0.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from ..core.columns import CAREFUL, MADVISE, UNWRITTEN, UNWRITTEN_BYTES, Finding, noted
from ..core.errors import plural, size_in_words
from ..core.machine import Strict
from ..core.snapshot import Topology, Tree, leaf
from ..core.trace import REGION_SHIFT, Trace
from ..world import trees
from ..world.address_space import leaf_entries
from ..world.mm_events import DISABLED, FORBIDDEN, PRCTL, advice, allowed, parted, region_of_interest, split
from .contract import Availability, Policy, Scenario

PAGE_BYTES, PAGES, REGION_MIB = 4096, 512, 2
UNWRITTEN_MUCH = 0.1  # of what becomes huge
LAYERS = "whose pages: the guest's (or, native, the only ones), the host's, or both"
FRAGMENTATION = "share of the regions that could be huge and stay 4 KiB: no contiguous memory for them"
HOST = "the same for the host's memory; -1: as the guest's"
MIN_PAGES = "mapped 4 KiB pages of 512 that make a region huge; 1: khugepaged's max_ptes_none = 511"
ACTS = {"gpt": {"page sizes of gPT"}, "ept": {"page sizes of ePT"}}
ACTS["both"] = ACTS["gpt"] | ACTS["ept"]
THP = partial(Finding, policy="thp")
SPLIT = (
    "MiB end as 4 KiB pages: calls change a part of each 2 MiB there, which splits its huge page. None is "
    "brought back within the run: khugepaged scans 16 MiB in 10 s, for all programs together"
)


class Params(Strict):
    layers: Annotated[Literal["both", "gpt", "ept"], Meta(description=LAYERS)] = "both"
    fragmentation: Annotated[float, Meta(ge=0, le=1, description=FRAGMENTATION)] = 0.0
    host_fragmentation: Annotated[float, Meta(ge=-1, le=1, description=HOST)] = -1.0
    min_pages: Annotated[int, Meta(ge=1, le=512, description=MIN_PAGES)] = 1
    host_min_pages: Annotated[int, Meta(ge=1, le=512, description=f"of the host: {MIN_PAGES}")] = 1
    seed: Annotated[int, Meta(ge=0, description="which regions stay 4 KiB")] = 0


def reshape(scenario: Scenario, params: Params) -> Scenario:
    """The Scenario with larger pages; facts tell the number of regions and wasted memory."""
    snapshot, trace, deposited = scenario.snapshot, scenario.trace, scenario.unwalked_table_pages
    facts: dict[str, int] = {}
    found: list[Finding] = []
    gone: list[np.ndarray] = []  # flat ids of leaf tables
    if params.layers != "ept":
        drawn = params.min_pages, params.fragmentation, params.seed
        huge = trees.promote_guest(scenario.space, *drawn, forbidden(scenario), parted=parted(trace))
        snapshot = replace(snapshot, guest=huge.tree) if huge.regions else snapshot
        huge, trace, small = split_guest(scenario, huge)
        deposited += huge.regions - small
        facts |= facts_of(huge, "")
        if small:
            facts["regions_split"] = small
            found.append(THP("split", f"{small * REGION_MIB} {SPLIT}"))
        gone.append(huge.tables)
        found += guest_findings(huge, scenario, facts.get(UNWRITTEN_BYTES, 0))
        bloat, own = huge.bloat_pages * PAGE_BYTES, scenario.space.program_tables
        found += too_much(bloat, scenario.snapshot.guest, own, "program", snapshot.topology)
    if params.layers != "gpt" and not scenario.snapshot.native:
        share = params.fragmentation if params.host_fragmentation < 0 else params.host_fragmentation
        huge = trees.promote_host(snapshot, params.host_min_pages, share, params.seed)
        snapshot = replace(snapshot, host=huge.tree) if huge.regions else snapshot
        facts |= facts_of(huge, "ept_") | {"ept_table_pages_saved": huge.regions}
        gone.append(scenario.space.guest_tables + huge.tables)
        bloat, host = huge.bloat_pages * PAGE_BYTES, scenario.snapshot.nested
        found += too_much(bloat, host, np.ones(len(host), bool), "VM", snapshot.topology)
    copied, zeroed = collapsed(scenario, np.concatenate(gone))
    # a guest keeps a leaf table for each huge page, to split it (pgtable_trans_huge_deposit); KVM keeps none
    shaped = scenario.reshaped(
        snapshot=snapshot,
        trace=trace,
        facts=facts,
        findings=found,
        unwalked_table_pages=deposited,
        data_copied=scenario.data_copied + copied,
        data_zeroed=scenario.data_zeroed + zeroed,
    )
    if shaped.refiltered:
        return shaped.with_findings(
            THP("refiltered", "page sizes change TLB reach: a filter pass of its own")
        )
    return shaped


def split_guest(scenario: Scenario, huge: trees.Promoted) -> tuple[trees.Promoted, Trace, int]:
    """(Promoted with the memory that the program has not given back, the trace of its split pages, regions
    that are split in the end)."""
    tree, bloat = scenario.snapshot.guest, huge.bloat_pages
    base = tree.base[huge.tables] >> np.uint64(REGION_SHIFT)
    table = dict(zip(base.tolist(), huge.tables.tolist(), strict=True))
    trace, small = split(scenario.trace, base, scenario.linux)
    for block, left in small.items():
        bits = np.packbits(leaf(tree.entries[table[block]], 1, tree.encoding), bitorder="little")
        bloat -= PAGES - (left | int.from_bytes(bits.tobytes(), "little")).bit_count()
    return huge._replace(bloat_pages=bloat), trace, len(small)


def forbidden(scenario: Scenario) -> np.ndarray:
    """uint64[n, 2]: addresses where the program forbids huge pages."""
    if allowed(scenario.snapshot, scenario.trace) == DISABLED:
        return np.array([[0, ~np.uint64(0)]], np.uint64)
    return advice(scenario.trace.events).forbidden


def collapsed(scenario: Scenario, tables: np.ndarray) -> tuple[int, int]:
    """(pages of 4 KiB copied, zeroed) to collapse what leaf tables (flat ids) map when the trace begins.

    What is mapped later is faulted in as whole pages: there are no small ones to collapse.
    """
    if scenario.traced and region_of_interest(scenario.trace.events).begin is None:
        return 0, 0
    pages = scenario.entries[tables]
    copied = int(pages.sum())
    return copied, PAGES * int(np.count_nonzero(pages)) - copied


def facts_of(huge: trees.Promoted, prefix: str) -> dict[str, int]:
    """{name: number} of Promoted pages."""
    told = {f"{prefix}regions_forbidden": huge.forbidden} if huge.forbidden else {}
    if huge.zero_pages > UNWRITTEN_MUCH * PAGES * huge.regions:
        told[prefix + UNWRITTEN_BYTES] = huge.zero_pages * PAGE_BYTES
    return told | {
        f"{prefix}regions_promoted": huge.regions,
        f"{prefix}regions_left_by_fragmentation": huge.fragmented,
        f"{prefix}regions_without_a_block": huge.without_block,
        f"{prefix}bloat_bytes": huge.bloat_pages * PAGE_BYTES,
    }


def guest_findings(huge: trees.Promoted, scenario: Scenario, unwritten: int) -> Iterator[Finding]:
    space = scenario.space
    if gone := int((space.regions.leaf >= space.guest_tables + space.host_tables).sum()):
        yield THP("regions-gone", f"{gone} touched regions were gone at the snapshot: they stay 4 KiB")
    if huge.forbidden:
        why = PRCTL if allowed(scenario.snapshot, scenario.trace) == DISABLED else FORBIDDEN
        yield THP(MADVISE, f"{huge.forbidden * REGION_MIB} MiB are {why}: thp leaves them alone")
    if unwritten:
        yield THP(
            UNWRITTEN,
            f"{size_in_words(unwritten)} that the program reads was never written: one page of zeros, in "
            "caches; huge pages make memory of it, whose reads may cost more than the walks that are saved, "
            "so no speed-up is given",
            CAREFUL,
            "memory that was never written becomes memory of its own",
        )
    if huge.regions and not huge.fragmented:
        yield noted("contiguous", policy="thp")
    if huge.without_block:
        text = f"{plural(huge.without_block, 'region')} left at 4 KiB: no free aligned guest block is known"
        yield THP("no-block", text)


def too_much(bloat: int, tree: Tree, own: np.ndarray, whose: str, topology: Topology) -> Iterator[Finding]:
    """Where huge pages add more than there is: `bloat` bytes to what the tables `own` (bool[T]) of a
    Tree map, or to more than the largest node of the captured machine holds."""
    if not bloat:
        return
    pages = leaf_entries(tree) * PAGES ** (tree.level.astype(np.int64) - 1)
    has = int(pages[own].sum()) * PAGE_BYTES
    node = max((int(np.diff(node.frames, axis=1).sum()) for node in topology.nodes), default=0) * PAGE_BYTES
    if bloat > has:
        yield THP(
            "bloat",
            f"huge pages add {size_in_words(bloat)} to the {size_in_words(has)} that the "
            f"{whose} has: it uses few pages of each 2 MiB",
            CAREFUL,
            "huge pages add more memory than the program has",
        )
    if 0 < node < bloat + has:
        yield THP(
            "more-than-a-node",
            f"with huge pages the {whose} takes {size_in_words(bloat + has)}, more than a node "
            f"of the captured machine holds ({size_in_words(node)})",
            CAREFUL,
            "with huge pages it may not fit a node",
        )


POLICY = Policy(
    "thp",
    "2 MiB pages in anonymous memory, less what the program forbids or fragmentation denies; gPT, ePT, both",
    params=Params,
    source="Linux transparent huge pages (khugepaged, mm/khugepaged.c); vMitosis, sections 4.1 and 5.1",
    availability=Availability("GLIBC_TUNABLES=glibc.malloc.hugetlb=1 ./app", "for memory from malloc"),
    reshape=reshape,
    scope=lambda params: ACTS[params.layers],
    extra_needs=lambda params: ("nested tables",) if params.layers == "ept" else ("VMAs",),
)
