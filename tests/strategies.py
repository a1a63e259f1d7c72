"""Small snapshots, traces and machines: built by hand from plain lists, or drawn by Hypothesis."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from ptanalyze.core.machine import Array, Cache, Latency, Machine, Tlb, WalkCaches
from ptanalyze.core.snapshot import NO_PARENT, VMA_DTYPE, Node, Snapshot, Topology, Tree
from ptanalyze.core.trace import CHUNK_DTYPE, EVENT_DTYPE, THREAD_DTYPE, Event, Placement, Touches, Trace

FRAMES_PER_NODE = 1 << 24  # node n holds frames n << 24 ... (n + 1) << 24
PAGE, REGION = 1 << 12, 1 << 21
PRESENT_FLAGS = {"x86": 0x67, "ept": 0x37, "kvm": 0x867}
PROTNONE = 0x100
ANY_FRAME = st.integers(0, 2 * FRAMES_PER_NODE - 1)
TOUCHES = st.tuples(  # (page number, whether written, accesses) that a trace encodes in each of its ways
    st.integers(0, 12)
    | st.integers(1 << 20, (1 << 20) + 3000)
    | st.integers(1 << 34, (1 << 34) + (1 << 26))
    | st.integers(0, (1 << 45) - 1),
    st.booleans(),
    st.integers(1, 6) | st.integers(1, (1 << 18) - 1),
)


@dataclass(frozen=True)
class Page:
    """One leaf: address va (bytes, aligned to the leaf) -> frame; level 1, 2, 3 = 4 KiB, 2 MiB, 1 GiB."""

    va: int
    frame: int
    level: int = 1
    protnone: bool = False


def build_topology(nodes=2):
    ranges = [np.array([[n * FRAMES_PER_NODE, (n + 1) * FRAMES_PER_NODE]], np.int64) for n in range(nodes)]
    return Topology(tuple(Node(n, (n,), ranges[n]) for n in range(nodes)))


def build_tree(pages, frames, *, levels=4, encoding="x86", node_of=None):
    """Tree that maps `pages` (Page or (va, frame[, level])); table pages take next(frames), depth first."""
    root = {}
    for page in (p if isinstance(p, Page) else Page(*p) for p in pages):
        table = root
        for level in range(levels, page.level, -1):
            table = table.setdefault(slot_of(page.va, level), {})
        table[slot_of(page.va, page.level)] = page
    rows, entries = [], []
    _emit(root, levels, 0, NO_PARENT, rows, entries, frames, encoding)
    base, frame, parent, level = (np.array(column) for column in zip(*rows, strict=True))
    return Tree(
        np.array(entries, np.uint64),
        base.astype(np.uint64),
        frame.astype(np.int64),
        parent.astype(np.int32),
        np.array([node_of(f) for f in frame] if node_of else frame // FRAMES_PER_NODE).astype(np.int16),
        level.astype(np.uint8),
        np.zeros(len(rows), np.uint8),
        levels,
        encoding,
    )


def slot_of(address, level):
    return address >> (12 + 9 * (level - 1)) & 511


def _emit(table, level, base, parent, rows, entries, frames, encoding):
    me, frame = len(rows), next(frames)
    rows.append((base, frame, parent, level))
    raw = [0] * 512
    entries.append(raw)
    for slot, child in sorted(table.items()):
        if isinstance(child, Page):
            raw[slot] = _leaf(child, level, encoding)
        else:
            below = base + (slot << (12 + 9 * (level - 1)))
            child_frame = _emit(child, level - 1, below, me, rows, entries, frames, encoding)
            raw[slot] = child_frame << 12 | PRESENT_FLAGS[encoding]
    return frame


def _leaf(page, level, encoding):
    huge = 0x80 if level > 1 else 0
    if page.protnone and encoding == "x86":
        return ((~page.frame << 12) & ((1 << 52) - (1 << 12))) | PROTNONE | huge
    return page.frame << 12 | PRESENT_FLAGS[encoding] | huge


def frames_on(nodes, first=0):
    """Frames for table pages: one on each of `nodes` in turn, forever."""
    for k, node in enumerate(itertools.cycle(nodes)):
        yield node * FRAMES_PER_NODE + first + k


def guest_frames(tree):
    """[(gPA, level)] of everything a guest tree needs mapped: its data pages and its own tables."""
    needed = [(int(frame) << 12, 1) for frame in tree.frame]
    for table in range(len(tree)):
        level = int(tree.level[table])
        for raw in (int(e) for e in tree.entries[table] if int(e)):
            if level == 1 or raw & 0x80:
                needed.append(((raw if raw & 1 else ~raw) & ((1 << 52) - (1 << (3 + 9 * level))), level))
    return needed


def build_snapshot(
    pages,
    host_pages=None,
    *,
    levels=4,
    host_levels=4,
    nodes=2,
    table_nodes=(0,),
    host_table_nodes=(0,),
    vmas=None,
    host_encoding="ept",
    facts=None,
):
    """Snapshot from plain lists.

    pages       [Page or (va, frame[, level])] of the guest tree, or of the only one
    host_pages  None: native. A list: 2D, and guest frames it does not name are mapped 1:1 by 4 KiB
    table_nodes, host_table_nodes  nodes that table pages are placed on in turn
    vmas        [(start, end, name[, emulator])]; default one VMA "heap" over everything
    """
    topology = build_topology(nodes)
    if host_pages is None:
        guest, host = build_tree(pages, frames_on(table_nodes, 1 << 22), levels=levels), None
    else:
        guest = build_tree(
            pages,
            itertools.count(1 << 20),
            levels=levels,
            node_of=lambda f: table_nodes[f % len(table_nodes)],
        )
        named = [p if isinstance(p, Page) else Page(*p) for p in host_pages]
        covered = lambda at: any(p.va <= at < p.va + (1 << (3 + 9 * p.level)) for p in named)  # noqa: E731
        rest = sorted({at for at, _ in guest_frames(guest) if not covered(at)})
        named += [Page(at, at >> 12) for at in rest]
        frames = frames_on(host_table_nodes, 1 << 22)
        host = build_tree(named, frames, levels=host_levels, encoding=host_encoding)
    rows = vmas or [(0, 1 << 47, "heap")]
    table = np.zeros(len(rows), VMA_DTYPE)
    for row, (start, end, _, *emulator) in zip(table, rows, strict=True):
        row["start"], row["end"], row["prot"], row["emulator"] = start, end, 3, bool(emulator and emulator[0])
    return Snapshot(guest, table, tuple(row[2] for row in rows), topology, host, facts or {})


def build_trace(chunks, events=(), threads=None):
    """Trace from plain lists.

    chunks  [(thread, [va or (va, write) or (va, write, count), ...])]
    events  [(chunk index it comes before, thread, Event, (a, b, c, d), result)], sorted by chunk
    """
    touches = [[_touch(t) for t in run] for _, run in chunks]
    flat = [t for run in touches for t in run]
    regions = list(dict.fromkeys(va >> 21 for va, _, _ in flat))
    ids = {region: k for k, region in enumerate(regions)}
    page = np.array([ids[va >> 21] << 9 | va >> 12 & 511 for va, _, _ in flat], np.uint32)
    write = np.array([w for _, w, _ in flat], bool)
    count = np.array([n for _, _, n in flat], np.uint32)
    table = np.zeros(len(chunks), CHUNK_DTYPE)
    table["touches"] = [len(run) for run in touches]
    table["first"] = np.cumsum(table["touches"]) - table["touches"]
    table["accesses"] = [sum(n for _, _, n in run) for run in touches]
    table["time"] = np.arange(len(chunks)) * 1000
    table["thread"] = [thread for thread, _ in chunks]
    table["cpu"] = -1
    happened = np.zeros(len(events), EVENT_DTYPE)
    for row, (chunk, thread, kind, arguments, result) in zip(happened, events, strict=True):
        row["chunk"], row["thread"], row["kind"], row["result"], row["cpu"] = chunk, thread, kind, result, -1
        for name, value in zip("abcd", arguments, strict=False):
            row[name] = value
    count_threads = threads or 1 + max([t for t, _ in chunks] + [e[1] for e in events], default=0)
    people = np.zeros(count_threads, THREAD_DTYPE)
    people["tid"], people["parent"], people["end"] = np.arange(count_threads) + 100, -1, -1

    def batches(least):
        first = 0
        while first < len(table):
            last = first + 1
            while last < len(table) and table["touches"][first:last].sum() < least:
                last += 1
            a = int(table["first"][first])
            b = a + int(table["touches"][first:last].sum())
            yield Touches(slice(first, last), page[a:b], write[a:b], count[a:b])
            first = last

    return Trace(table, happened, people, np.array(regions, np.uint64), batches, {})


def _touch(touch):
    va, write, count = (touch, False, 1) if isinstance(touch, int) else (*touch, 1)[:3]
    return va, bool(write), count


def place(trace, cpus, nodes):
    """Placement: thread t on CPU t mod cpus, CPU c on node c mod nodes."""
    node = (np.arange(cpus) % nodes).astype(np.int16)
    cpu = lambda threads: (threads % cpus).astype(np.int32)  # noqa: E731
    return Placement(cpu(trace.chunks["thread"]), node, cpu(trace.events["thread"]), "by thread")


def small_tlb(l1=(4, 2), l2=(12, 3), huge=(2, 2), l2_1g=None, l2_holds=("4k", "2m")):
    """A TLB small enough that a few pages overflow it; each array is (entries, ways)."""
    array = lambda shape: Array(entries=shape[0], ways=shape[1])  # noqa: E731
    return Tlb(
        l1_4k=array(l1), l1_2m=array(huge), l1_1g=array(huge), l2=array(l2), l2_holds=l2_holds,
        l2_1g=array(l2_1g) if l2_1g else None,
    )  # fmt: skip


def small_machine(nodes=2, cache_lines=(4, 12), nested=True):
    """A tiny Machine: one CPU a node, caches of a few page-table lines, remote twice as far as local."""
    few = Array(entries=2, ways=2)
    matrix = tuple(tuple(100.0 if a == b else 200.0 for b in range(nodes)) for a in range(nodes))
    return Machine(
        name="small", description="for tests", nodes=nodes, cpus_per_node=1, ghz=2.0, tlb=small_tlb(),
        walk_caches=WalkCaches(
            pde=Array(entries=6, ways=2), pdpte=few, pml4e=few, pml5e=few, nested=few if nested else None
        ),
        l2=Cache(bytes=64 * cache_lines[0], ways=2, share=1.0, cycles=14.0),
        llc=Cache(bytes=64 * cache_lines[1], ways=4, share=1.0, cycles=50.0),
        latency=Latency(idle=matrix), costs="small", sources={},
    )  # fmt: skip


@st.composite
def trees(draw, levels=4, frames=ANY_FRAME, max_pages=10):
    """[Page]: disjoint leaves of mixed sizes, huddled so that they share tables and cache lines."""
    highest = 0x7FFF_C000_0000 if levels == 4 else 0x00FF_FFFF_C000_0000
    base = draw(st.sampled_from([0, 0x5555_5540_0000, highest]))
    where = st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 1, 7, 8, 9, 510, 511]))
    pages, taken = [], set()
    for gig, region, slot in draw(st.lists(where, min_size=1, max_size=max_pages)):
        level = draw(st.sampled_from([1, 1, 1, 1, 2, 3]))
        va = (base >> 30 << 30) + (gig << 30)
        va += (region << 21 if level < 3 else 0) + (slot << 12 if level < 2 else 0)
        claim = {(3, va >> 30)} if level == 3 else {(2, va >> 21)} if level == 2 else {(1, va >> 12)}
        above = {(3, va >> 30), (2, va >> 21)}
        below = {t for t in taken if t[0] < level and t[1] >> 9 * (level - t[0]) == va >> (3 + 9 * level)}
        if (above & taken) or (claim & taken) or below:
            continue
        taken |= claim
        frame = draw(frames) >> 9 * (level - 1) << 9 * (level - 1)
        pages.append(Page(va, frame, level, protnone=draw(st.integers(0, 9)) == 0))
    return pages


@st.composite
def snapshots(draw, native=None, nodes=2):
    """Small snapshots, native and 2D, 4 and 5 levels, mixed leaf sizes, with holes in the host."""
    levels, host_levels = draw(st.sampled_from([4, 4, 5])), draw(st.sampled_from([4, 4, 5]))
    native = draw(st.booleans()) if native is None else native
    spread = st.lists(st.integers(0, nodes - 1), min_size=1, max_size=4)
    if native:
        return build_snapshot(draw(trees(levels)), levels=levels, nodes=nodes, table_nodes=draw(spread))
    frames = st.integers(0, 64) | st.integers(511, 514) | st.integers(1 << 18, (1 << 18) + 1200)
    pages = draw(trees(levels, frames))
    huge = draw(st.lists(st.sampled_from([(0, 2), (1 << 21, 2), (1 << 30, 3)]), unique=True))
    snapshot = build_snapshot(
        pages, [Page(at, at >> 12, level) for at, level in huge],
        levels=levels, host_levels=host_levels, nodes=nodes, table_nodes=draw(spread),
        host_table_nodes=draw(spread), host_encoding=draw(st.sampled_from(["ept", "kvm"])),
    )  # fmt: skip
    if draw(st.booleans()):  # a hole: the host lost one entry of a leaf table
        leaves = np.flatnonzero(snapshot.host.level == 1)
        table = draw(st.sampled_from(leaves.tolist())) if len(leaves) else 0
        slots = np.flatnonzero(snapshot.host.entries[table])
        snapshot.host.entries[table, draw(st.sampled_from(slots.tolist()))] = 0
    return snapshot


def with_vmas(snapshot, draw, names=("x",)):
    """The Snapshot with VMAs cut at pages near its leaves, with gaps, some shared, some the tracer's."""
    near = sorted({va + k * PAGE for va in _mapped_pages(snapshot.guest) for k in (0, 1, 3, 5)})
    cuts = [*sorted(draw(st.sets(st.sampled_from(near), max_size=8))), near[-1] + (1 << 36)]
    kept = [pair for pair in itertools.pairwise(cuts) if draw(st.integers(0, 4))]
    odd = st.integers(0, 5).map(lambda n: n == 0)
    rows = [(start, end, 3, draw(odd), draw(odd)) for start, end in kept]
    named = tuple(draw(st.sampled_from(names)) for _ in rows)
    return replace(snapshot, vmas=np.array(rows, VMA_DTYPE), vma_names=named)


@st.composite
def traces(draw, snapshot, max_touches=12):
    """Traces of 4 threads that touch the snapshot's pages, and a few others; they unmap, protect, advise."""
    levels, threads = snapshot.guest.levels, 4
    known = _mapped_pages(snapshot.guest)
    va = st.sampled_from([*known, *(v + PAGE for v in known), 0x1234_5000, (1 << (11 + 9 * levels)) - PAGE])
    touch = st.tuples(va, st.booleans(), st.integers(1, 3))
    run = st.tuples(st.integers(0, threads - 1), st.lists(touch, max_size=max_touches))
    chunks = draw(st.lists(run, max_size=8))
    event = st.tuples(
        st.integers(0, len(chunks)),
        st.integers(0, threads - 1),
        st.sampled_from([Event.MUNMAP, Event.MPROTECT, Event.MADVISE]),
        st.tuples(va, st.sampled_from([PAGE, 2 * PAGE, REGION, 1 << 30]), st.sampled_from([0, 1, 4, 8, 14])),
        st.sampled_from([0, 0, 0, -22]),
    )
    pages, who = st.sampled_from([PAGE, 3 * PAGE]), st.tuples(st.integers(0, len(chunks)), st.just(0))
    maps = st.tuples(st.just(0), pages, st.sampled_from([0, 3]), st.sampled_from([0x22, 0x32]))
    moves = st.tuples(va, pages, st.sampled_from([PAGE, 2 * PAGE]), st.sampled_from([1, 3]))
    calls = st.one_of(st.tuples(st.just(Event.MMAP), maps, va), st.tuples(st.just(Event.MREMAP), moves, va))
    event = st.one_of(event, event, st.builds(lambda at, call: (*at, *call), who, calls))
    return build_trace(chunks, sorted(draw(st.lists(event, max_size=4)), key=lambda e: e[0]), threads)


def _mapped_pages(tree):
    found = []
    for table in range(len(tree)):
        level = int(tree.level[table])
        for slot in np.flatnonzero(tree.entries[table]).tolist():
            if level == 1 or int(tree.entries[table, slot]) & 0x80:
                found.append(int(tree.base[table]) + (slot << (3 + 9 * level)))
    return found
