"""Without a trace: where the leaf entries of all mapped pages are, every page once for every node."""

import msgspec
import numpy as np

from . import cost
from . import entries as bits
from .errors import UsageError
from .kernels.replay import LL, RL, counters
from .result import Result
from .snapshot import EMULATOR

TABLES_AT_ONCE = 4096


def static_results(snapshot, machine, chosen, costs, provenance, contended=False):
    """[Result] for [(Policy, parameters)], as whatif.whatif without a trace: no TLB, no caches, no events.

    Each mapped page is one walk from each node, and one DRAM read of its leaf entry. Native snapshots only.
    """
    if not snapshot.native:
        raise UsageError(
            "capture: two-dimensional and without a trace: use `ptanalyze classify`, or record a trace"
        )
    tree = snapshot.guest
    program = tree.flags & EMULATOR == 0
    pages, tables = mapped_pages(tree) * program, int(np.count_nonzero(program))
    counted = []
    for policy, params in chosen:
        placed, copies = _homes(policy, params, tree, machine, snapshot)
        counted.append((policy, params, _count(pages, tree.level, placed, machine.nodes), copies))
    return [
        Result(
            policy=policy.name,
            params=msgspec.structs.asdict(params),
            machine=machine.name,
            placement="every node once",
            baseline=chosen[0][0].name,
            walks=int(count.classes.sum()),
            hits=np.zeros(3, np.int64),
            reads=count.reads,
            classes=count.classes,
            events=count.events,
            table_pages=tables * copies,
            table_pages_peak=tables * copies,
            single_copy=tables,
            host_pages=0,
            price=cost.price(count, machine, costs, contended=contended),
            notes=("no trace: every mapped page counts once for each node, events are not known",),
            provenance=provenance,
        )
        for policy, params, count, copies in counted
    ]


def mapped_pages(tree):
    """int64[T]: leaf entries of each table page, whatever page size they map."""
    pages = np.zeros(len(tree), np.int64)
    for begin in range(0, len(tree), TABLES_AT_ONCE):
        part = slice(begin, begin + TABLES_AT_ONCE)
        raw, level = tree.entries[part], tree.level[part]
        for one in (1, 2, 3):
            here = np.flatnonzero(level == one)
            pages[begin + here] = bits.leaf(raw[here], one, tree.encoding).sum(axis=1)
    return pages


def _homes(policy, params, tree, machine, snapshot):
    """(int16[nodes, T] node that serves each table to each reader, copies of a table)."""
    readers = np.arange(machine.nodes, dtype=np.int16)[:, None]
    one = np.zeros((1, len(tree)), np.int16)
    if policy.name == "linux":
        node = np.asarray(tree.node)
        if (node < 0).any() or (node >= machine.nodes).any():
            wrong = int(node[(node < 0) | (node >= machine.nodes)][0])
            raise UsageError(
                f"gpt.tables: node = {wrong}: machine {machine.name} has nodes 0..{machine.nodes - 1}"
            )
        return readers * 0 + node, 1
    if policy.name == "interleave":
        return readers * 0 + (np.arange(len(tree)) % machine.nodes).astype(np.int16), 1
    if policy.name == "bind":
        return readers * 0 + params.node + one, 1
    if policy.name == "ideal":
        return readers + one, 1
    if policy.name == "mitosis" and not params.nodes:
        return readers + one, machine.nodes
    raise UsageError(
        f"policy {policy.name}: depends on what threads touch, and there is no trace: "
        "record one with `ptanalyze record -o DIR -- COMMAND`"
    )


def _count(pages, level, home, nodes):
    count = counters(nodes)
    for reader in range(nodes):
        for one in (1, 2, 3):
            here = level == one
            count.reads[8 * one, reader, :, 1] = np.bincount(
                home[reader][here], weights=pages[here], minlength=nodes
            ).astype(np.int64)
        local = int(pages[home[reader] == reader].sum())
        count.classes[reader, LL], count.classes[reader, RL] = local, int(pages.sum()) - local
    return count
