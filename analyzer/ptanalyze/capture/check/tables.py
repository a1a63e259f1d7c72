"""Checks that a dumped page table is a tree, agrees with itself, and is complete."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, SupportsInt

import numpy as np

from ...core import snapshot as entries
from ...core.columns import FAILED, NOTE, OK, PARTIAL
from ...core.errors import UNKNOWN_NODE
from ...core.snapshot import BAD_TYPE, FAULT, INFERRED, NO_PARENT, TORN, Snapshot, Topology, Tree, blocks
from ...world.address_space import vma_of

# The result of a check: the numbers examined and wrong, and a verdict.


@dataclass(frozen=True)
class Check:
    """`wrong` of `examined` did not pass; `verdict` is OK, NOTE (worth knowing), PARTIAL or FAILED."""

    name: str
    examined: int
    wrong: int
    verdict: str
    reason: str = ""


def finding(
    name: str, examined: SupportsInt, wrong: SupportsInt, reason: str, verdict: str = FAILED
) -> Check:
    """A Check that is OK when nothing is wrong, else `verdict` with `reason`."""
    count = int(wrong)
    return Check(name, int(examined), count, verdict if count else OK, reason if count else "")


COUNTED_LEVELS = 3  # mm_inc_nr_ptes, _pmds and _puds (include/linux/mm.h): neither P4D tables nor the root


def check_tables(snapshot: Snapshot) -> list[Check]:
    """Findings about the guest (or native) tree and, when there is one, the host tree."""
    findings = [*check_tree(snapshot.guest, "gpt", snapshot.topology if snapshot.native else None)]
    if snapshot.host is not None:
        findings += check_tree(snapshot.host, "ept", snapshot.topology)
    findings += check_vmas(snapshot)
    findings += check_facts(snapshot)
    return findings


def check_tree(tree: Tree, name: str, topology: Topology | None) -> Iterator[Check]:
    """The tree is closed: children where their parents' entries point, no frame twice below a root.

    Levels, parents and addresses are what formats.snapshot.read_tree lets pass.
    """
    below = np.flatnonzero(tree.parent != NO_PARENT)
    known = tree.flags & INFERRED == 0
    why = "parents' entries do not point at the table that was dumped below them"
    yield finding(f"{name}: links", len(below), broken_links(tree, below), why)
    why = "present entries of upper tables have no dumped table"
    yield finding(f"{name}: closed", *missing_children(tree), why)
    frames = tree.frame[known]
    leafless = np.bincount(tree.parent[below], minlength=len(tree)) == 0
    own = known & ~((tree.level == 2) & leafless)  # of hugetlb's shared mappings a PMD page is several's
    places = np.stack([np.cumsum(tree.parent == NO_PARENT), tree.frame])[:, own]
    twice = places.shape[1] - np.unique(places, axis=1).shape[1]
    yield finding(f"{name}: frames once", len(frames), twice, "table frames appear twice")
    if topology is not None and len(topology):
        node = topology.node_of_frame(frames)
        nowhere, why = node == UNKNOWN_NODE, "table frames lie outside every NUMA node's memory"
        yield finding(f"{name}: frames in nodes", len(frames), np.count_nonzero(nowhere), why)
        agree = (tree.node[known] == node) | (tree.node[known] == UNKNOWN_NODE) | nowhere
        why = "tables' nodes contradict the frame ranges of the topology"
        yield finding(f"{name}: nodes agree", len(frames), np.count_nonzero(~agree), why)
    broken = np.count_nonzero(tree.flags & (TORN | FAULT | BAD_TYPE))
    yield finding(f"{name}: whole", len(tree), broken, "tables changed or vanished while read", PARTIAL)
    why = "tables are inferred from pagemap: their frames and nodes are unknown"
    yield finding(f"{name}: known", len(tree), np.count_nonzero(~known), why, PARTIAL)


def broken_links(tree: Tree, tables: np.ndarray) -> int:
    """Number of `tables` (int64[n]) at which the entry of their parent does not point."""
    broken = 0
    for level in np.unique(tree.level[tables]).tolist():
        ids = tables[tree.level[tables] == level]
        parent = tree.parent[ids]
        slot = (tree.base[ids] - tree.base[parent]) >> np.uint64(12 + 9 * level)
        links = tree.entries[parent, slot.astype(np.int64)]
        same = entries.frame(links, level + 1, tree.encoding, leaves=False) == tree.frame[ids]
        same |= tree.flags[ids] & INFERRED != 0
        broken += int(np.count_nonzero(~(entries.table(links, level + 1, tree.encoding) & same)))
    return broken


def missing_children(tree: Tree) -> tuple[int, int]:
    """(entries of upper tables that point to a table, number of those tables that are missing)."""
    children = np.bincount(tree.parent[tree.parent != NO_PARENT], minlength=len(tree))
    examined = missing = 0
    for level, ids, raw in blocks(tree, range(2, tree.levels + 1)):
        count = entries.table(raw, level, tree.encoding).sum(axis=1)
        examined += int(count.sum())
        missing += int(np.abs(count - children[ids]).sum())
    return examined, missing


def check_vmas(snapshot: Snapshot) -> Iterator[Check]:
    """Whether leaf entries lie in VMAs, and their pages in nodes."""
    vmas, tree = snapshot.vmas, snapshot.guest
    if not len(vmas):
        yield finding("vmas: known", 1, 1, "the capture does not know the VMAs", PARTIAL)
        return
    examined = outside = nowhere = 0
    for level, ids, raw in blocks(tree, range(1, tree.levels + 1)):
        table, slot = np.nonzero(entries.leaf(raw, level, tree.encoding))
        base = tree.base[ids[table]] + (slot.astype(np.uint64) << np.uint64(3 + 9 * level))
        frame = entries.frame(raw[table, slot], level, tree.encoding)
        examined += len(base)
        outside += int(np.count_nonzero(vma_of(base, vmas) == len(vmas)))
        nowhere += int(np.count_nonzero(snapshot.topology.node_of_frame(frame) == UNKNOWN_NODE))
    reason, verdict = "mapped pages lie in no VMA", FAILED
    if not (snapshot.facts.get("quiescence") or {}).get("quiet", True):
        reason, verdict = f"{reason}: the process mapped and unmapped memory while it was read", PARTIAL
    yield finding("pages: in VMAs", examined, outside, reason, verdict)
    if snapshot.native:
        why = "pages lie outside every node's memory (device memory)"
        yield finding("pages: in nodes", examined, nowhere, why, NOTE)


def check_facts(snapshot: Snapshot) -> Iterator[Check]:
    """Findings from the dumper's own facts: quiescence, completeness, the pagemap cross-check."""
    facts = snapshot.facts
    if quiescence := facts.get("quiescence"):
        reason = "the process changed its page tables while they were read"
        yield finding("dump: quiet", 1, not quiescence["quiet"], reason, PARTIAL)
    if completeness := facts.get("completeness"):
        known, why = judged(snapshot.guest, completeness, replicated=bool(facts.get("replicas")))
        reason = f"table pages differ from the kernel's count: {why}"
        yield finding("dump: complete", completeness["tables"], not known, reason, PARTIAL)
    if verify := facts.get("verify"):
        reason = "pages differ from /proc/PID/pagemap"
        yield finding("dump: pagemap agrees", verify["checked"], verify["mismatched"], reason)
        reason = "pages are hidden by pagemap ([vvar] and other VM_PFNMAP areas)"
        yield finding("dump: pagemap shows", verify["checked"], verify["hidden"], reason, NOTE)


def judged(tree: Tree, completeness: Mapping[str, Any], replicated: bool = False) -> tuple[bool, str]:
    """(explained, why not), from the kernel's count; where that is unknown, as the dumper recorded it.

    replicated  the kernel counts the tables of all nodes' trees, not only of this one: as recorded, too
    A dumper that takes P4D tables to be counted is wrong about every process on five levels.
    """
    counted = completeness["counted_by_kernel"]
    if counted is None or replicated:
        return completeness["explained"], completeness["explanation"]
    difference = counted - int(np.count_nonzero(tree.level <= COUNTED_LEVELS))
    if completeness["explained"]:
        why = f"by {difference}, which tables in reserve for huge pages do not explain"
    else:
        why = completeness["explanation"]
    return 0 <= difference <= completeness["huge_leaves"], why  # a table in reserve per huge anonymous page
