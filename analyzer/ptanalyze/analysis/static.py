"""Replay without a trace: the leaf entry of every mapped page is read once from every node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..core.errors import RefusedError
from ..core.jackknife import share_bounds
from ..core.snapshot import Node, Topology
from ..cost import price as cost
from ..cost.result import EVERY_NODE, Once, Result
from ..kernels.replay import Counters, counters
from ..policies.base import RECORD
from ..policies.combine import check_nodes, own_code
from ..world.address_space import known_pages
from ..world.site import LEFT_OUT
from .elsewhere import elsewhere
from .heat_classes import classify_heat
from .leaf_classes import classify_pages
from .priced import cycles_before
from .processes import ONCE_EACH, alike
from .refusals import label
from .runs import Run, start
from .untraced import bound_note, cached
from .weights import RESHAPED, note

if TYPE_CHECKING:
    from ..policies import Plan
    from ..world.address_space import AddressSpace
    from ..world.world import World
    from .leaf_classes import Classification
    from .setup import Setup


def static_results(
    worlds: Sequence[World],
    plans: Sequence[Plan],
    setup: Setup,
    provenance: dict[str, str],
    refused: dict[str, str] | None = None,
) -> list[Result]:
    """[Result] for Plans on untouched Worlds, as replay.replay_world: no TLB, no caches, no events.

    worlds  of a process, and of those captured with it whose counts are added to its own

    Each leaf entry of the guest is one walk from each node, or as many as its Heat estimates: one DRAM read
    of it, and one of the host's leaf entry for its first frame; pages that the host does not map are left
    out, a note has their number. RefusedError for policies that depend on threads' accesses, unless
    `refused` takes names and reasons.
    """
    results, held = [], cached(worlds)
    for plan in plans:
        try:
            results.append(_untraced_result(plan, worlds, plans[0].name, held, setup, provenance))
        except RefusedError as error:
            if refused is None or plan is plans[0]:
                raise
            refused[label(plan, plans)] = error.why
    return results


class _Process(NamedTuple):
    """A Plan on the World of one process; unresolved, remote: as _count returns them."""

    run: Run
    world: World
    counted: Counters
    unresolved: dict[str, int]
    remote: np.ndarray | None


def _process(plan: Plan, world: World) -> _Process:
    captured = world.snapshot.guest
    with own_code(plan):
        world = plan.reshape(world)
    heat, guest = world.snapshot.heat, world.snapshot.guest
    if heat and guest is not captured and known_pages(guest, heat) < known_pages(captured, heat):
        raise RefusedError(RESHAPED, plan.name)
    run = start(plan, world)
    return _Process(run, world, *_count(world, served(plan, run, world)))


def _untraced_result(
    plan: Plan,
    worlds: Sequence[World],
    baseline: str,
    held: str,
    setup: Setup,
    provenance: dict[str, str],
) -> Result:
    each = [_process(plan, world) for world in worlds]
    first = each[0].world
    beyond = elsewhere(first.snapshot, first.machine)
    if len(each) > 1 and any(one.world.data_copied for one in each):
        raise RefusedError(ONCE_EACH, plan.name)
    count = _added([one.counted for one in each])
    ran = _added([one.run.counters for one in each])
    pages, host_pages = int(ran.pages[0]), int(ran.host_pages[0])
    return Result(
        policy=plan.name,
        params=plan.params,
        machine=first.machine.name,
        placement=EVERY_NODE,
        baseline=baseline,
        walks=int(count.classes.sum()),
        hits=np.zeros(3, np.int64),
        reads=count.reads,
        classes=count.classes,
        calls=ran.events,
        host_calls=ran.host_events,
        table_pages=pages,
        table_pages_peak=pages,
        single_copy=sum(int(np.count_nonzero(one.world.space.program_tables)) for one in each),
        host_pages=host_pages,
        host_single_copy=sum(one.world.space.host_tables for one in each),
        aside_pages=sum(one.world.aside_pages for one in each),
        each_once=first.snapshot.heat is None,
        cached=held,
        elsewhere=beyond,
        price=cost.price(count, first.machine, setup.costs, contended=setup.contended),
        once=_untraced_once(each, setup),
        facts=each[0].run.facts(first) if len(each) == 1 else {},
        notes=(
            note([one.world.snapshot for one in each], first.left_out),
            bound_note(len(first.machine.cpu_nodes)),
            *filter(None, [held, beyond]),
            *([alike(len(each), first.snapshot.heat is not None)] if len(each) > 1 else []),
            *dict.fromkeys(note for one in each for note in one.world.notes),
            *_left_out(sum((Counter(one.unresolved) for one in each), Counter())),
            *(f"{plan.name}: {line}" for line in _sampling([one.remote for one in each])),
            *plan.notes,
        ),
        provenance=provenance,
    )


def _added(each: Sequence[Counters]) -> Counters:
    return Counters(*(np.sum(arrays, axis=0) for arrays in zip(*each, strict=True)))


def _untraced_once(each: Sequence[_Process], setup: Setup) -> Once:
    """What it takes to get from the captured tables to the policy's; when it pays is not known."""
    own = sum(one.run.before.events.sum(axis=0) for one in each)
    host = sum(one.run.before.host_events.sum(axis=0) for one in each)
    spent = sum(cycles_before(one.run, one.world, setup) for one in each)
    copied = sum(one.world.data_copied for one in each)
    return Once(own, host, copied, spent, None, 0, None, None, None)


def served(plan: Plan, run: Run, world: World) -> np.ndarray:
    """int16[T, nodes]: node that serves each table to each reader."""
    space = world.space
    split, servers = space.guest_tables, []
    for (part, _), state, ids in zip(
        (plan.guest, plan.host),
        run.states,
        (slice(0, split), slice(split, split + space.host_tables)),
        strict=True,
    ):
        with own_code(plan):
            served = part.at_rest(state, ids) if part.at_rest else None
        if served is None:
            missing = f"depends on what threads touch, and no trace tells: {RECORD}"
            raise RefusedError(LEFT_OUT if world.left_out else missing, plan.name)
        check_nodes(plan.name, "at_rest returned", served, world.machine)
        servers.append(served)
    return np.concatenate(servers)


def _count(world: World, server: np.ndarray) -> tuple[Counters, dict[str, int], np.ndarray | None]:
    """(Counters, pages without a class by reason, walks of samples as _remote returns them): a classification
    by servers and level of the tables."""
    space, nodes, readers = world.space, world.nodes, world.machine.cpu_nodes
    level = np.minimum(space.tables.level, 3).astype(np.int16)
    kinds, of_table = _distinct(np.column_stack([server, level]))
    placed = _with_nodes(space, of_table, len(kinds))
    seen = classify_heat(placed) if space.snapshot.heat else classify_pages(placed)
    pages = seen.counts[0, 0]
    count = counters(nodes, world.sockets)
    for guest, host in np.argwhere(pages).tolist():
        n = int(pages[guest, host])
        for reader in readers:
            far = _read(count, 8, kinds[guest], reader, n)
            far_host = 0 if space.native else _read(count, 1, kinds[host], reader, n)
            count.classes[reader // world.domains, 2 * far + far_host] += n
    return count, seen.unresolved, _remote(seen, kinds[:, :nodes] == np.arange(nodes), list(readers))


def _remote(seen: Classification, local: np.ndarray, readers: list[int]) -> np.ndarray | None:
    """float64[parts + 1, 2]: walks with local leaf entries, and all, without each part of the time's samples,
    at last with all; NaN where nothing is left, None where nothing was sampled.

    local  bool[kinds of servers, nodes]: whether a table of a kind is local to each node
    """
    if seen.left_out is None or not seen.counts.any():
        return None
    local = local[:, readers]
    both = (local[:, None] if seen.native else local[:, None] & local).mean(axis=-1)
    found = [
        (float((known * both).sum()), total) if (total := int(known.sum())) else (np.nan, np.nan)
        for part in [*seen.left_out[:, 0, 0], seen.counts[0, 0]]
        for known in [part[: len(local), : both.shape[1]]]
    ]
    return np.array(found)


def _sampling(each: Sequence[np.ndarray | None]) -> list[str]:
    """Lines: between which bounds the share of all walks with a remote leaf entry lies, by the samples."""
    walks = [one for one in each if one is not None]
    if not walks:
        return []
    local, total = np.sum(walks, axis=0).T
    remote = 1 - local / total
    low, high = share_bounds(remote[-1], remote[:-1])
    return [f"{100 * low:.1f} to {100 * high:.1f} % of walks read a remote leaf entry (95 %, by the samples)"]


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(distinct rows, index into them of each row); column by column, as numbers sort faster than rows."""
    of_row = np.zeros(len(rows), np.int64)
    for column in rows.T:
        span = int(column.max(initial=0)) + 2
        _, first, of_row = np.unique(of_row * span + column + 1, return_index=True, return_inverse=True)
    return rows[first], of_row


def _with_nodes(space: AddressSpace, of_table: np.ndarray, nodes: int) -> AddressSpace:
    """The AddressSpace with tables on other nodes, `nodes` in number."""
    nowhere = np.zeros((0, 2), np.int64)
    topology = Topology(tuple(Node(node, (), nowhere) for node in range(nodes)))
    tables = space.tables._replace(node=of_table)
    return replace(space, snapshot=replace(space.snapshot, topology=topology), tables=tables)


def _read(count: Counters, bit: int, kind: np.ndarray, reader: int, n: int) -> int:
    """Count n DRAM reads of leaf entries of tables of a (servers, level); 1 if they are remote, else 0."""
    *servers, level = kind.tolist()
    count.reads[bit * level, reader, servers[reader], 1] += n
    return int(servers[reader] != reader)


def _left_out(unresolved: Mapping[str, int]) -> list[str]:
    return [f"{count} mapped pages left out: {reason}" for reason, count in unresolved.items() if count]
