"""The table pages of a dumped process against the kernel's own count of them, mm->pgtables_bytes."""

from typing import Any

import numpy as np

from ..core.snapshot import Tree

COUNTED_LEVELS = 3  # mm_inc_nr_ptes, _pmds and _puds (include/linux/mm.h): neither P4D tables nor the root


def beyond(tree: Tree, counted: int) -> int:
    """Table pages that the kernel counts and the tree lacks; negative: the tree has more."""
    return counted - int(np.count_nonzero(tree.level <= COUNTED_LEVELS))


def explained(difference: int, huge_leaves: int) -> bool:
    """Whether the difference can be the tables in reserve, a table per huge anonymous page."""
    return 0 <= difference <= huge_leaves


def completeness(tree: Tree, huge_leaves: int, pgtables_bytes: int) -> dict[str, Any]:
    """snapshot_file.Completeness, as a dict, of a tree that was inferred from the leaves in pagemap."""
    counted = pgtables_bytes // 4096
    difference = beyond(tree, counted)
    known = explained(difference, huge_leaves)
    return {
        "tables": len(tree),
        "counted_by_kernel": counted,
        "huge_leaves": huge_leaves,
        "difference": difference,
        "explained": known,
        "explanation": "as many tables as the leaves need, and those deposited for huge pages"
        if known
        else "pagemap does not show tables that map nothing",
    }
