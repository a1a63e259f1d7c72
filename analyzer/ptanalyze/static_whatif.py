"""Without a trace: where the leaf entries of all mapped pages are, every page once for every node."""

from dataclasses import replace

import msgspec
import numpy as np

from . import cost
from .classify import classify
from .errors import UsageError
from .kernels.replay import counters
from .policies import fixed_copies
from .policies.base import World
from .result import Result
from .snapshot import Node, Topology
from .trace import CHUNK_DTYPE, EVENT_DTYPE, THREAD_DTYPE, Trace
from .walks import Placement, WalkStream
from .world.address_space import address_space
from .world.history import history

NO_TRACE = "no trace: every mapped page counts once for each node, events are not known"


def static_results(snapshot, machine, chosen, costs, provenance, contended=False):
    """[Result] for [(Policy, parameters)], as whatif.whatif without a trace: no TLB, no caches, no events.

    Each leaf entry of the guest is one walk from each node: one DRAM read of it, and one of the host's leaf
    entry for its first frame; pages that the host does not map are left out, and a note says how many.
    UsageError for policies that depend on what threads touch.
    """
    world = untouched(snapshot, machine)
    placed = [_placed(policy, params, world) for policy, params in chosen]
    counted = [_count(world, state.serve, home) for state, home, _, _ in placed]
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
            table_pages=pages,
            table_pages_peak=pages,
            single_copy=int(np.count_nonzero(world.space.program_tables)),
            host_pages=host_pages,
            host_single_copy=world.space.host_tables,
            price=cost.price(count, machine, costs, contended=contended),
            notes=(NO_TRACE, *_left_out(unresolved)),
            provenance=provenance,
        )
        for (policy, params), (_, _, pages, host_pages), (count, unresolved) in zip(
            chosen, placed, counted, strict=True
        )
    ]


def untouched(snapshot, machine):
    """The World of a snapshot in which nothing was touched and nothing happened."""
    none = np.zeros(0, np.int32)
    trace = Trace(
        np.zeros(0, CHUNK_DTYPE), np.zeros(0, EVENT_DTYPE), np.zeros(0, THREAD_DTYPE), np.zeros(0, np.uint64),
        lambda least: iter(()), {},
    )  # fmt: skip
    placement = Placement(none, np.arange(machine.nodes, dtype=np.int16), none, "")
    space = address_space(snapshot, trace.regions)
    stream = WalkStream(np.zeros(0, np.uint32), np.zeros(0, bool), np.zeros(1, np.int64), np.zeros((0, 3)))
    past = history(snapshot, trace, space, placement, stream)
    return World(space, past, machine, tuple(range(machine.nodes)))


def _placed(policy, params, world):
    """(State, int16[T] home of each table, guest table pages, host table pages)."""
    space = world.space
    split = space.guest_tables
    state = pages = None
    if policy.hooks is fixed_copies.HOOKS:
        state, *pages = policy.start(world, params)
        parts = (state.home[:split], state.home[split:])
        homes = [_home(state, *one) for one in zip(parts, state.serve, strict=True)]
    if state is None or any(home is None for home in homes):
        raise UsageError(
            f"policy {policy.name}: depends on what threads touch, and there is no trace: "
            "record one with `ptanalyze record -o DIR -- COMMAND`"
        )
    return state, np.concatenate(homes), *pages


def _home(state, home, serve):
    """Homes of one dimension's tables, in their order where the rule is round-robin; None: not known."""
    rule, node = state.rule.tolist()
    if (serve >= 0).all():
        return np.zeros_like(home)
    if (home < 0).any() and rule == fixed_copies.FIRST_TOUCH:
        return None
    turn = np.arange(len(home)) % len(serve) if rule == fixed_copies.INTERLEAVE else node
    return np.where(home < 0, turn, home).astype(np.int16)


def _count(world, serve, home):
    """(Counters, pages without a class by reason): one classification by home and level of the tables."""
    space, nodes = world.space, world.nodes
    level = np.minimum(space.tables.level, 3)
    kinds, of_table = np.unique(np.stack([home, level]), axis=1, return_inverse=True)
    seen = classify(_with_nodes(space, of_table.reshape(-1), kinds.shape[1]))
    pages = seen.counts[0, 0]
    count = counters(nodes)
    for guest, host in np.argwhere(pages).tolist():
        n = int(pages[guest, host])
        for reader in range(nodes):
            far = _read(count, 8, kinds[:, guest], serve[0, reader], reader, n)
            far_host = 0 if space.native else _read(count, 1, kinds[:, host], serve[1, reader], reader, n)
            count.classes[reader, 2 * far + far_host] += n
    return count, seen.unresolved


def _with_nodes(space, of_table, nodes):
    """The AddressSpace with tables on other nodes, of another number."""
    nowhere = np.zeros((0, 2), np.int64)
    topology = Topology(tuple(Node(node, (), nowhere) for node in range(nodes)))
    tables = space.tables._replace(node=of_table)
    return replace(space, snapshot=replace(space.snapshot, topology=topology), tables=tables)


def _read(count, bit, kind, serve, reader, n):
    """Count n DRAM reads of leaf entries of tables of one (home, level); 1 if they are remote, else 0."""
    home, level = kind.tolist()
    server = serve if serve >= 0 else home
    count.reads[bit * level, reader, server, 1] += n
    return int(server != reader)


def _left_out(unresolved):
    return [f"{count} mapped pages left out: {reason}" for reason, count in unresolved.items() if count]
