"""A capture fit to be shared: host frames become ordinals of their node, names and command lines go.

Kept, because every result depends on it: the shape of the tables, virtual and guest-physical addresses (a
VM's guest frames are the addresses of its second dimension), flags of entries, nodes, CPUs, touches of the
trace. Gone: where anything is in the host's memory, paths, command lines, PIDs, thread IDs and times,
host-virtual addresses, swap entries and everything else behind entries that map nothing.
"""

import os
import re
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

import ptanalyze as pt

from .trace_writer import RULES

# Page frames renumbered node by node, in order, keeping everything that results depend on. Frames move in
# units: the aligned 1 GiB around a 1 GiB page, else an aligned 2 MiB region. A unit keeps its inner order, so
# huge pages stay whole and aligned; units of a node keep theirs. A node's units stand at the start of a new
# range as long as the node's memory; units that no single node owns follow after all nodes, and the new
# topology divides them as the old one did. Frames between units are forgotten.

Ranges = list[tuple[int, int, int]]  # first frame, one past the last, node

REGION, GIANT = 1 << 9, 1 << 18  # frames of a 2 MiB and of a 1 GiB unit
MIXED = -2  # pseudo node of units with several owners or none
MOST_FRAMES = 1 << 40


@dataclass(frozen=True)
class FrameMap:
    """start, new int64[U]: old (sorted) and new first frame of each unit; topology: with new ranges."""

    start: np.ndarray
    new: np.ndarray
    topology: pt.snapshot.Topology

    def frames(self, frames: np.ndarray) -> np.ndarray:
        """int64: new number of each frame that the mapped tree names; -1 (unknown) stays."""
        frames = np.asarray(frames, np.int64)
        if not len(self.start):
            return np.full(frames.shape, -1)
        at = np.clip(np.searchsorted(self.start, frames, side="right") - 1, 0, None)
        return np.where(frames < 0, -1, self.new[at] + frames - self.start[at])

    def entries(self, raw: np.ndarray, level: int, encoding: str) -> np.ndarray:
        """uint64, the shape of `raw`: entries of tables at `level`; those that map nothing are zero."""
        mapped, leaf = pt.snapshot.mapped(raw, level, encoding), pt.snapshot.leaf(raw, level, encoding)
        out = np.zeros_like(raw)
        for chosen, leaves in ((mapped & leaf, True), (mapped & ~leaf, False)):
            old = raw[chosen]
            number = self.frames(pt.snapshot.frame(old, level, encoding, leaves)).astype(
                np.uint64
            ) << np.uint64(12)
            if encoding == "x86":
                number = np.where(pt.snapshot.inaccessible(old, level), ~number, number)
            low = 3 + 9 * level if leaves else 12  # a huge page's low bits are flags (bit 12: PAT)
            mask = np.uint64((1 << 52) - (1 << low))
            out[chosen] = old & ~mask | number & mask
        return out

    def tree(self, tree: pt.snapshot.Tree, inside: Path) -> pt.snapshot.Tree:
        """The Tree with new frames in its tables and entries, which lie in a file in `inside`."""
        return rewritten(tree, self.frames(tree.frame), inside, self.entries)


def frame_map(tree: pt.snapshot.Tree, topology: pt.snapshot.Topology) -> FrameMap:
    """FrameMap of every frame that `tree` names: of its tables, behind its entries, of whole huge pages."""
    regions, giants = units_of(tree)
    regions = regions[~np.isin(regions >> 9, giants)]
    start = np.concatenate([giants * GIANT, regions * REGION])
    size = np.repeat([GIANT, REGION], [len(giants), len(regions)])
    owner = owners(start, size, topology)
    shared = [part for i in straddling(start, size, topology) for part in parts(start[i], size[i], topology)]
    new, ranges, at = np.zeros(len(start), np.int64), [], 0
    for node in topology.nodes:
        at = -(-at // GIANT) * GIANT
        place(owner == node.id, start, size, at, new)
        elsewhere = sum(b - a for a, b, who in shared if who == node.id)
        length = int((node.frames[:, 1] - node.frames[:, 0]).sum()) - elsewhere
        ranges.append((at, at + length, node.id))
        at += length
    at = -(-at // GIANT) * GIANT
    place(owner == MIXED, start, size, at, new)
    if at + int(size[owner == MIXED].sum()) > MOST_FRAMES:
        raise pt.UsageError("frames: more of them than addresses of 52 bits can number")
    order = np.argsort(start)
    made = FrameMap(start[order], new[order], topology)
    for a, b, who in shared:
        first = int(made.frames(np.array([a]))[0])
        ranges.append((first, first + b - a, who))
    return replace(made, topology=with_ranges(topology, ranges))


def place(mine: np.ndarray, start: np.ndarray, size: np.ndarray, at: int, new: np.ndarray) -> None:
    """Number the units `mine` from `at` on, those of 1 GiB first, each kind in order."""
    mine = np.flatnonzero(mine)
    mine = mine[np.lexsort((start[mine], -size[mine]))]
    new[mine] = at + np.cumsum(size[mine]) - size[mine]


def units_of(tree: pt.snapshot.Tree) -> tuple[np.ndarray, np.ndarray]:
    """(regions, giants): sorted numbers of the 2 MiB and 1 GiB units with frames that `tree` names."""
    regions, giants = np.unique(tree.frame[tree.frame >= 0] >> 9), np.zeros(0, np.int64)
    for level, _, raw in pt.snapshot.blocks(tree, range(1, tree.levels + 1)):
        leaf, mapped = (
            pt.snapshot.leaf(raw, level, tree.encoding),
            pt.snapshot.mapped(raw, level, tree.encoding),
        )
        frames = pt.snapshot.frame(raw[mapped & ~leaf], level, tree.encoding, leaves=False)
        regions = np.union1d(regions, frames >> 9)
        frames = pt.snapshot.frame(raw[leaf], level, tree.encoding)
        if level == 3:
            giants = np.union1d(giants, frames >> 18)
        else:
            regions = np.union1d(regions, frames >> 9)
    return regions, giants


def owners(start: np.ndarray, size: np.ndarray, topology: pt.snapshot.Topology) -> np.ndarray:
    """int64[U]: the node that owns all frames of each unit, MIXED where there is no single owner."""
    ranges = sorted((int(a), int(b)) for node in topology.nodes for a, b in node.frames)
    ends = np.array([b for _, b in ranges], np.int64)
    owner = topology.node_of_frame(start).astype(np.int64)
    at = np.searchsorted(ends, start, side="right")
    return np.where((owner >= 0) & (np.append(ends, 0)[at] >= start + size), owner, MIXED)


def straddling(start: np.ndarray, size: np.ndarray, topology: pt.snapshot.Topology) -> np.ndarray:
    """Indices of the units in which some node's memory begins or ends."""
    edges = np.unique(np.concatenate([np.zeros((0,), np.int64), *(n.frames.ravel() for n in topology.nodes)]))
    inside = np.searchsorted(edges, start, side="right") < np.searchsorted(edges, start + size, side="left")
    return np.flatnonzero(inside)


def parts(start: int, size: int, topology: pt.snapshot.Topology) -> Ranges:
    """[(first, one past the last, node)] of the parts of a unit that nodes own."""
    end = start + size
    cut = [(max(a, start), min(b, end), node.id) for node in topology.nodes for a, b in node.frames]
    return [(int(a), int(b), node) for a, b, node in cut if a < b]


def with_ranges(topology: pt.snapshot.Topology, ranges: Ranges) -> pt.snapshot.Topology:
    """`topology` with the ranges [(first, one past the last, node)] in place of its own."""
    frames: dict[int, list[tuple[int, int]]] = {node.id: [] for node in topology.nodes}
    for a, b, who in sorted(ranges):
        frames[who] += [(a, b)] * (a < b)
    return pt.snapshot.Topology(
        tuple(replace(n, frames=np.array(frames[n.id], np.int64).reshape(-1, 2)) for n in topology.nodes)
    )


ARCH = b"x86_64"
NO_TIME = 315_532_800  # 1 January 1980, the earliest that every archive format can say
# what tells how memory is allocated, and nothing of whose it is
ALLOCATOR = re.compile(r"/(libc\.so\.6|libjvm\.so|lib(jemalloc|tcmalloc)(_minimal)?\.so[\d.]*)$")
PLAIN_NAMES = {"", "[heap]", "[stack]", "[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]"}
FACTS = {
    "method", "kernel", "cpu", "quiescence", "completeness", "reading", "retries", "stopped", "streamed",
    "page_type", "node_source", "unknown", "emulator", "encryption_bit", "nested_paging", "parameters",
    "huge_pages", "scale", "page_table_isolation", "kernel_tables", "not_followed", "vcpus",
}  # fmt: skip
TOLD_BY = b"qemu", b"synth"  # answers depend on it: advice that is not passed on, a clock that is native
JOIN_FACTS = {
    "fit", "guest_nodes", "guest_tables_by_guest_node", "numa_oblivious", "seconds_apart",
}  # fmt: skip


def redact(capture: pt.Capture, out: str | PathLike[str]) -> None:
    """Write the Capture's shareable twin to the new directory `out`.

    UsageError if it holds no page tables, or if `out` is there already; CaptureError where it is damaged.
    """
    if not (capture.has_snapshot or capture.has_vm):
        raise pt.UsageError(f"{capture.directory}: holds no page tables, so there are no frames to replace")
    for name, why in pt.formats.damaged_files(capture.directory, capture.manifest):
        raise pt.errors.CaptureError(
            capture.directory / name, "contents", why, "damaged: it would be sealed as whole"
        )
    with pt.formats.new_capture(out) as inside:
        if capture.has_snapshot:
            redact_snapshot(capture.snapshot, inside)
        if capture.has_vm:
            redact_host(capture.vm, inside, alone=not capture.has_snapshot)
        if capture.has_trace:
            redact_trace(capture.directory / pt.formats.TRACE, inside / pt.formats.TRACE)
        if capture.has_heat:  # virtual addresses, no frames
            pt.formats.heat.copy_samples(
                capture.directory / pt.formats.heat.FILE, inside / pt.formats.heat.FILE
            )
        if capture.pages:
            trial = pt.measured.read_measured(capture.pages)
            trial = msgspec.structs.replace(trial, program="program", command="", date="")
            pt.measured.write_calibration(inside / capture.pages.name, trial)
        pt.formats.seal(inside, capture.manifest.kind, {"redacted": True})
        for path in [*inside.iterdir(), inside]:
            os.utime(path, (NO_TIME, NO_TIME))  # 1980: an archive would tell when the copy was made


def redact_snapshot(snapshot: pt.Snapshot, inside: Path) -> None:
    guest, host = snapshot.guest, snapshot.host
    renumbered = frame_map(guest if host is None else host, snapshot.topology)
    if host is None:
        guest = renumbered.tree(guest, inside)
    else:
        # guest-physical addresses stay, entries that map nothing are cleared
        mapped = lambda raw, *how: np.where(pt.snapshot.mapped(raw, *how), raw, np.uint64(0))  # noqa: E731
        guest, host = rewritten(guest, guest.frame, inside, mapped), renumbered.tree(host, inside)
    facts = {key: value for key, value in snapshot.facts.items() if key in FACTS}
    if snapshot.facts.get("vm"):
        facts["vm"] = {key: value for key, value in snapshot.facts["vm"].items() if key in JOIN_FACTS}
    made = replace(snapshot, guest=guest, host=host, topology=renumbered.topology, facts=facts)
    # names of VMAs: the kernel's own stay, the same path or label becomes the same number
    others = dict.fromkeys(name for name in snapshot.vma_names if name not in PLAIN_NAMES)
    number = {name: f"file {k}" for k, name in enumerate(others, 1)}
    number |= {name: found[0] for name in others if (found := ALLOCATOR.search(name))}
    names = tuple(number.get(name, name) for name in snapshot.vma_names)
    pt.formats.write_snapshot(inside, replace(made, vma_names=names))


def redact_host(host: pt.formats.HostDump, inside: Path, alone: bool) -> None:
    """vm.json without addresses of the VMM; with its tables when no snapshot has them."""
    renumbered = frame_map(host.tree, host.topology)
    if alone:
        pt.formats.write_tree(inside, "ept", renumbered.tree(host.tree, inside))
    of_root = {root.frame: -1 - i for i, root in enumerate(host.roots)}
    for root in host.roots:
        if root.table is not None:
            of_root[root.frame] = int(renumbered.frames(np.array([root.frame]))[0])
    changed = msgspec.structs.replace
    made = replace(
        host,
        topology=renumbered.topology,
        slots=tuple(changed(slot, hva=slot.gpa) for slot in host.slots),
        vcpus=tuple(
            changed(v, tid=i, root=None if v.root is None else of_root.get(v.root))
            for i, v in enumerate(host.vcpus)
        ),
        roots=tuple(changed(root, frame=of_root[root.frame]) for root in host.roots),
        facts={key: value for key, value in host.facts.items() if key in FACTS},
    )
    pt.formats.write_vm(inside, made)


def rewritten(
    tree: pt.snapshot.Tree, frame: np.ndarray, inside: Path, convert: Callable[..., np.ndarray]
) -> pt.snapshot.Tree:
    """`tree` with new frames, and entries that `convert` makes of (entries, level, encoding).

    They lie in an unnamed file beside the capture, not in memory.
    """
    with tempfile.TemporaryFile(dir=inside) as file:
        entries = pt.formats.map_new(file, "<u8", tree.entries.shape)
    for level, ids, raw in pt.snapshot.blocks(tree, range(1, tree.levels + 1)):
        entries[ids] = convert(raw, level, tree.encoding)
    return replace(tree, frame=frame, entries=entries)


def redact_trace(source: Path, target: Path) -> None:
    """The trace without command line, PID, thread IDs and start time; touches and thread numbers stay.

    What is no part of a trace stays behind: words in its header, bytes after its last frame.
    """
    trace = pt.formats.trace
    data = trace.map_file(source)
    header = trace.read_header(source, data).copy().reshape(1)
    frames, offset, _ = trace.read_frames(source, data, header[0])
    last = trace.HEADER_BYTES
    if len(frames):
        last = int(offset[-1]) + trace.FRAME_DTYPE.itemsize + int(frames["bytes"][-1])
    kept = next((word for word in TOLD_BY if word in header["tracer"][0]), b"")
    for name in ("pid", "start", "command", "arch", "tracer", "rules", "crc"):
        header[name] = np.zeros(1, header[name].dtype)
    header["arch"], header["rules"] = ARCH, RULES.encode()
    header["tracer"] = kept
    header["bytes"] = min(int(header["bytes"][0]), last)
    header["crc"] = zlib.crc32(header.tobytes())
    with pt.safe_files.open_inside(source) as file:
        pt.formats.copy_private(file, target, last)
    with open(target, "r+b") as file:
        file.write(header.tobytes())
        for start in offset[frames["kind"] == trace.EVENT].tolist():
            number_thread(file, start)


def number_thread(file: BinaryIO, start: int) -> None:
    """Give an event that starts a thread, at this byte of a trace, the thread's number instead of its ID."""
    file.seek(start)
    head, event = (
        np.frombuffer(file.read(form.itemsize), form).copy()
        for form in (pt.formats.trace.FRAME_DTYPE, pt.formats.trace.PAYLOAD_DTYPE)
    )
    if event["kind"][0] == pt.trace.Event.THREAD_START:
        event["a"], head["crc"] = head["thread"], 0
        head["crc"] = zlib.crc32(event.tobytes(), zlib.crc32(head.tobytes()))
        file.seek(start)
        file.write(head.tobytes() + event.tobytes())
