"""Whether the trees of a process's nodes agree, on a kernel that replicates page tables."""

from collections.abc import Iterator, Mapping
from typing import Any

from ...core.replicas import Replicas
from .compare_trees import WRONG, Compared, compare_trees, name_of
from .finding import FAILED, NOTE, OK, PARTIAL, Finding
from .tables import check_tree

SIZES = {1: "4 KiB", 2: "2 MiB", 3: "1 GiB"}


def check_replicas(replicas: Replicas, facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield Findings: each replica is a tree, and its leaves are its owners', by size.

    facts  of the dump: unless the process stood still, what differs may have changed while it was read
    """
    quiet = bool((facts.get("quiescence") or {}).get("quiet"))
    for tree, nodes in zip(replicas.trees[1:], replicas.nodes[1:], strict=True):
        yield from (one for one in check_tree(tree, name_of(nodes), None) if one.wrong)
    for compared in compare_trees(replicas):
        yield judged(compared, replicas, quiet)


def judged(compared: Compared, replicas: Replicas, quiet: bool) -> Finding:
    counts = compared.counts
    wrong = sum(counts[kind] for kind in WRONG)
    told = [f"{counts['same']:,} the same", f"{counts['missing']:,} not filled in"]
    told += [f"{counts['less']:,} that allow less"] * bool(counts["less"])
    told += [f"{counts['marks']:,} accessed or dirty here alone"] * bool(counts["marks"])
    reason = ", ".join(told)
    if wrong:
        kinds = ", ".join(f"{counts[kind]:,} {what}" for kind, what in WRONG.items() if counts[kind])
        reason = f"are wrong ({kinds}); {reason}. {'; '.join(compared.examples)}"
    if wrong and not quiet:
        reason += ". The process changed while its trees were read: dump it with --stop"
    examined = wrong + counts["same"] + counts["missing"] + counts["less"]
    verdict = (FAILED if quiet else PARTIAL) if wrong else NOTE if counts["less"] else OK
    name = f"{name_of(replicas.nodes[compared.tree])}: {SIZES[compared.level]} leaves"
    return Finding(name, examined, wrong, verdict, reason)
