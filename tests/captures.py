"""Captures that tests make, unpack, shorten, strip, spoil, or fill with hostile names."""

import json
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from naive.strip import REACH, keep
from ptanalyze.capture.vm.join import join
from ptanalyze.core.errors import bundled
from ptanalyze.core.interval import Interval
from ptanalyze.core.machine import load_machine, machine_names
from ptanalyze.core.safe_files import open_inside
from ptanalyze.core.snapshot import BATCHES, Heat
from ptanalyze.core.trace import SLOT_BITS, Event
from ptanalyze.cost.law import PageTrial
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.heat import BYTE_ORDER, HEADER_DTYPE, MAGIC, RECORD_DTYPE, VERSION
from ptanalyze.formats.record import MANIFEST, read_manifest, seal
from ptanalyze.formats.snapshot import write_snapshot
from ptanalyze.formats.trace import read_trace
from ptanalyze.world.address_space import address_space
from ptanalyze.world.tlb_filter import TlbFilter
from ptanalyze_formats.trace_writer import new_trace
from strategies import PAGE, REGION, build_snapshot, place

# The recorded VMs of tests/data/vm_small, unpacked and joined.

DATA = Path(__file__).parent / "data" / "vm_small"
NAMES = ("visible-bound", "visible-interleaved", "oblivious-interleaved-thp")


def unpack(name, directory):
    """Directory with host/, guest/ and touch.log of a recorded VM."""
    with tarfile.open(DATA / f"{name}.tar.xz") as archive:
        archive.extractall(directory / name, filter="data")
    return directory / name


def joined(name, directory):
    """(capture directory, Fit) of a recorded VM."""
    place = unpack(name, directory)
    return place / "vm", join(place / "host", place / "guest", place / "vm")


def touched(log):
    """uint64[n]: every address that the guest touched, by the lines "kind vcpu start bytes stride"."""
    lines = [line.split()[2:] for line in log.splitlines() if not line.startswith("pid")]
    spans = [(int(start, 16), int(length), int(step)) for start, length, step in lines]
    return np.concatenate([np.arange(at, at + length, step, np.uint64) for at, length, step in spans])


def pages_of(trace, page):
    """int64, the shape of `page`: page numbers of addresses, of pages as a Trace numbers them."""
    return trace.regions[page >> SLOT_BITS].astype(np.int64) << SLOT_BITS | page & ((1 << SLOT_BITS) - 1)


def touches_of(trace, least=1):
    """[(page number, whether written, accesses)] of a Trace, read in batches of `least` touches."""
    rows = []
    for batch in trace.batches(least):
        columns = pages_of(trace, batch.page), batch.write, batch.count
        rows += zip(*(column.tolist() for column in columns), strict=True)
    return rows


def contents(path):
    """Bytes of a file of a capture, which may be packed."""
    with open_inside(path) as file:
        return file.read()


# Copies of captures with the beginning of their trace, for tests of commands and not of numbers.

TOUCHES = {  # enough for tables to be read from DRAM when warm
    "embeddings": 100_000,
    "lookup": 300_000,
    "sysbench-memory": 50_000,
    "vm-numa-visible": 50_000,
    "vm-numa-oblivious": 50_000,
}


def shorter_samples(place):
    """The bundled captures in `place`, of traces the whole chunks that hold the first TOUCHES."""
    for sample, touches in TOUCHES.items():
        shorter(bundled("samples") / sample, place / sample, touches)
    return place


def shorter(capture, copy, touches):
    shutil.copytree(capture, copy, ignore=shutil.ignore_patterns(".*", "trace.*", MANIFEST))
    known = open_capture(capture)
    if known.has_trace:
        write_trace(copy / "trace.ptt", beginning(known.trace, touches))
    manifest = json.loads((capture / MANIFEST).read_text())
    seal(copy, manifest["kind"], manifest["provenance"])
    return copy


def beginning(trace, touches):
    """Trace of the whole chunks that hold the first `touches`."""
    count = int(trace.chunks["first"].searchsorted(touches))
    chunks = trace.chunks[:count]

    def batches(least):
        for batch in trace.batches(least):
            if batch.chunks.start >= count:
                return
            stop = min(batch.chunks.stop, count)
            n = int(chunks["touches"][batch.chunks.start : stop].sum())
            columns = {name: getattr(batch, name)[:n] for name in ("page", "write", "count")}
            yield replace(batch, chunks=slice(batch.chunks.start, stop), **columns)

    return replace(trace, chunks=chunks, events=trace.events[trace.events["chunk"] <= count], batches=batches)


# A Trace written again as a trace.ptt, or without what its program called outside the region of interest.

BATCH = 1 << 16
CALLS = (Event.MMAP, Event.MUNMAP, Event.MPROTECT, Event.MREMAP, Event.MADVISE, Event.BRK)


def without_calls_outside(trace):
    """The Trace less the memory calls before its first ROI_START and after its last ROI_END."""
    kind, at = trace.events["kind"], np.arange(len(trace.events))
    starts, ends = np.flatnonzero(kind == Event.ROI_START), np.flatnonzero(kind == Event.ROI_END)
    outside = (at < min(starts, default=0)) | (at > max(ends, default=len(at)))
    return replace(trace, events=trace.events[~(outside & np.isin(kind, CALLS))])


def write_trace(path, trace, strip=False):
    """Write a Trace; reading it again gives the same chunks, events, touches and regions.

    strip  without the touches of each chunk that change no TLB
    """
    with new_trace(path, **{**trace.facts, **({"stripped": REACH} if strip else {})}) as writer:
        events = iter(trace.events)
        event = next(events, None)
        for batch in trace.batches(BATCH):
            page = pages_of(trace, batch.page)
            start = int(trace.chunks["first"][batch.chunks.start])
            for number in range(batch.chunks.start, batch.chunks.stop):
                while event is not None and event["chunk"] <= number:
                    write_event(writer, event)
                    event = next(events, None)
                chunk = trace.chunks[number]
                part = slice(int(chunk["first"]) - start, int(chunk["first"] + chunk["touches"]) - start)
                own = page[part], batch.write[part], batch.count[part].astype(np.int64)
                kept = keep(*own) if strip else slice(None)
                named = {name: chunk[name] for name in ("thread", "cpu", "time", "instructions")}
                writer.chunk(*(column[kept] for column in own), **named)
        while event is not None:
            write_event(writer, event)
            event = next(events, None)


def write_event(writer, event):
    arguments = (event[name] for name in ("kind", "a", "b", "c", "d"))
    writer.event(*arguments, **{name: event[name] for name in ("result", "thread", "cpu", "time")})


# Traces written again without what can be left out, and their walks.


def stripped(trace, path):
    """The trace written again without what can be left out, chunk by chunk."""
    write_trace(path, trace, strip=True)
    return read_trace(path)


def walks(trace, snapshot, machine):
    space, placement = address_space(snapshot, trace.regions), place(trace, 3, 2)
    return TlbFilter(trace, space, placement, machine.tlb).first()


def same_walks(trace, snapshot, path):
    """Fewer touches; under the TLB of every machine of the package, the same walks in the same chunks."""
    short = stripped(trace, path)
    assert short.touches < trace.touches and short.regions.tolist() == trace.regions.tolist()
    assert (short.chunks["accesses"] == trace.chunks["accesses"]).all()
    for machine in {machine.tlb: machine for machine in map(load_machine, machine_names())}.values():
        expected, found = (walks(t, snapshot, machine) for t in (trace, short))
        for column in ("page", "write", "offset", "hits"):
            assert np.array_equal(getattr(found, column), getattr(expected, column)), (machine.name, column)
    return short.touches / trace.touches


# Files of samples of accessed bits, written from plain lists.


def write_bits(path, samples, spread=0, within=lambda base, ms: 0.5):
    """samples: [(ms, {(first byte of a page, its level)})], in the order of time.

    A round each, all of whose readings came when the last did: the reader takes it for one of `ms`.
    spread  ns between the shortest window and the longest, each sample
    within  the part of it that is within the window of the table at `base`, of samples of `ms`
    """
    header = np.array([(MAGIC, VERSION, BYTE_ORDER, 512, RECORD_DTYPE.itemsize, b"")], HEADER_DTYPE)
    records = []
    for number, (ms, pages) in enumerate(samples):
        tables = {}
        for address, level in sorted(pages):
            slot = address >> (3 + 9 * level) & 511
            table = address >> (12 + 9 * level) << (12 + 9 * level), level
            tables[table] = tables.get(table, 0) | 1 << slot
        for asked in sorted({ms * 10**6 + spread // 2 for ms, _ in samples}):
            for (base, level), bits in tables.items():
                window = ms * 10**6 + round(spread * within(base, ms))
                records.append((base, level, 0, window, [bits >> 64 * k & (1 << 64) - 1 for k in range(8)]))
            records.append((9, 0, 0, spread, [ms * 10**6, 10**5, 10**5, 9, asked, number, 0, 0]))
    path.write_bytes(header.tobytes() + np.array(records, RECORD_DTYPE).tobytes())
    return path


def write_rounds(path, rounds, lengths, *, cpus=1.0, price=0, window=lambda base, ms: ms, tables=None):
    """Files of rounds of one clearing and readings after each of `lengths`, ms.

    rounds  [{first byte of a 4 KiB page: ms after clearing at which it is first walked for}]
    window  (base of a table, ms asked for) -> ms of its window, 0: not known
    tables  bases of the tables that are read again and again, None: all; the last reading is of all
    """
    header = np.array([(MAGIC, VERSION, BYTE_ORDER, 512, RECORD_DTYPE.itemsize, b"")], HEADER_DTYPE)
    records, every = [], sorted({page >> 21 << 21 for pages in rounds for page in pages})
    for number, pages in enumerate(rounds):
        used = sorted({page >> 21 << 21 for page, at in pages.items() if at <= max(lengths)})
        for ms in lengths:
            read = every if tables is None or ms == lengths[-1] else tables
            windows = []
            for base in [base for base in used if base in read]:
                wide = window(base, ms)
                bits = sum(
                    1 << (page >> 12 & 511)
                    for page, at in pages.items()
                    if page >> 21 << 21 == base and at <= (wide or ms)
                )
                words = [bits >> 64 * k & (1 << 64) - 1 for k in range(8)]
                records.append((base, 1, round(wide * cpus * 1e4), round(wide * 1e6), words))
                windows += [round(wide * 1e6)] if wide else []
            least, most = (min(windows), max(windows)) if windows else (round(ms * 1e6), round(ms * 1e6))
            now = number * 10**9 + round(ms * 1e6)
            said = [least, 10**5, 10**5, len(read), round(ms * 1e6), number, round(now * cpus), now]
            records.append((len(every), 0, price, most - least, said))
    path.write_bytes(header.tobytes() + np.array(records, RECORD_DTYPE).tobytes())
    return path


def evenly(pages):
    """Heat by {(address, level): share of 40 samples of 100 ms that found it used}, alike all the time."""
    at = sorted(pages)
    each = 40 // BATCHES
    seen = np.array([[[round(pages[one] * each)]] * BATCHES for one in at], np.uint8)
    address, level = (np.array(column) for column in zip(*at, strict=True))
    return Heat(
        address.astype(np.uint64), level.astype(np.uint8), seen.reshape(-1, BATCHES, 1),
        np.full((BATCHES, 1), each), np.array([0.1]), np.zeros(1), np.zeros((len(at), 1)),
    )  # fmt: skip


# Captures of a live process on a host with one node: its page tables, and samples of accessed bits.

HEAP = 1 << 30
USED = 256  # pages, of as many again that are not


def one_node_capture(directory, heat=True):
    """Sealed; the used pages are HEAP and 255 after it, the first in more samples than the rest."""
    directory.mkdir()
    pages = [(HEAP + k * PAGE, k) for k in range(2 * USED)]
    write_snapshot(directory, build_snapshot(pages, vmas=[(0, 1 << 47, "")], nodes=1, table_nodes=[0]))
    if heat:
        every = {(HEAP + k * PAGE, 1) for k in range(USED)}
        write_bits(directory / "heat.bits", [(10, every), (10, {(HEAP, 1)})] * 20)
    seal(directory, "process", {})
    return open_capture(directory)


# A capture of several processes.


def make_family(place):
    """A capture of PID 7 with 8 and 9 inside: 7 and 8 map the same two pages, 9 one of them elsewhere."""
    member(place, 7, [(REGION, 5), (REGION + 4096, 6), (3 * REGION, 9)], processes=[8, 9])
    member(place / "pid-8", 8, [(4 * REGION, 5), (4 * REGION + 4096, 6)])
    member(place / "pid-9", 9, [(REGION + 8192, 5)])
    return place


def member(directory, pid, pages, **more):
    directory.mkdir(parents=True)
    write_snapshot(directory, build_snapshot(pages, facts={"pid": pid}))
    seal(directory, "process", {"pid": pid, "comm": f"p{pid}", **more})


# A capture whose every name was chosen to do harm where it is shown.

EVIL = "\x1b]0;title\x07\x1b[31m\u202e\u2066two\u2028lines\x9b1m\x7f$\\frac{$ <script>alert(1)</script>\"'>"
FORMULA = "=HYPERLINK(1)"
HARM = {"\x1b", "\x07", "\x9b", "\x7f", "\u202e", "\u2066", "\u2028"}
NO_UTF8 = b"/tmp/caf\xe9$\\frac{$.dat"


def hostile_copy(source, target):
    """Copy the capture `source` to `target` with names that do harm, and seal it again; returns `target`."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".cache"))
    lines = (target / "maps").read_bytes().splitlines()
    names = [EVIL.encode(), FORMULA.encode(), NO_UTF8]
    lines = [b" ".join([*line.split()[:5], names[k % len(names)]]) for k, line in enumerate(lines)]
    (target / "maps").write_bytes(b"\n".join(lines) + b"\n")
    snapshot = json.loads((target / "snapshot.json").read_bytes())
    facts = snapshot["facts"].items()
    words = {key: EVIL for key, value in facts if isinstance(value, str) and key != "time"}
    snapshot["facts"] |= words | {"comm": EVIL, EVIL: EVIL, "unknown": [EVIL]}
    snapshot["facts"].get("completeness", {}).update(explained=False, explanation=EVIL)
    (target / "snapshot.json").write_text(json.dumps(snapshot))
    seal(target, read_manifest(target).kind, {"command": EVIL, EVIL: EVIL, "trace": EVIL, "list": [EVIL]})
    return target


# A record of a trial of page sizes.

TRIAL = PageTrial(
    program="redis-server",
    kernel="6.18.0",
    cpu="a CPU",
    date="2026-11-28",
    nodes=2,
    figure="system calls per CPU second",
    gain=Interval(1.49, 1.52, 1.55),
    contiguous=Interval(1.08, 1.11, 1.13),
    pairs=6,
    seconds=61.5,
    blocks=473,
    resident_bytes=1 << 30,
    huge_share_found=0.0,
    huge_share_huge=0.97,
    refused={"EINVAL": 114},
)
