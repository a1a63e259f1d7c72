"""The contents of a capture, in plain numbers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import UNKNOWN_NODE, plural, printable, size_in_words
from ..core.interval import interval
from ..core.snapshot import EMULATOR, Heat, Topology, Tree
from ..core.trace import PAGE_LINES, Event, Trace, lines_per_page
from ..cost.law import PageTrial
from ..formats.measured import read_measured
from ..formats.record import TRACE
from ..world.address_space import leaf_entries, tracers_leaves

if TYPE_CHECKING:
    from ..formats.capture import Capture
    from ..formats.snapshot import HostDump

Rows = dict[str, str | int | float]

PROCESS = "process "  # begins the title of a section about one of several processes
PAGE_NAMES = {1: "4 KiB pages", 2: "2 MiB pages", 3: "1 GiB pages"}


def describe(capture: Capture) -> dict[str, Rows]:
    """{section: {quantity: value}} with integers and strings only."""
    provenance = capture.manifest.provenance.items()
    plain = {key: value for key, value in provenance if isinstance(value, (str, int, float))}
    sections: dict[str, Rows] = {}
    sections["capture"] = {
        **program(capture),
        "directory": printable(str(capture.directory)),
        "kind": capture.manifest.kind,
        **plain,
    }
    if capture.has_snapshot:
        snapshot = capture.snapshot
        sections["machine"] = describe_topology(snapshot.topology)
        own = tracers_leaves(snapshot)
        sections["gPT" if not snapshot.native else "page table"] = describe_tree(snapshot.guest, own)
        if snapshot.host is not None:
            sections["ePT"] = describe_tree(snapshot.host)
        sections["how sure"] = describe_facts(snapshot.facts, plain)
        if snapshot.heat is not None:
            sections["heat"] = describe_heat(snapshot.heat)
        if capture.pages and isinstance(trial := read_measured(capture.pages), PageTrial):
            gain = f"{interval(trial.gain)} over pages as found, {plural(trial.pairs, 'pair')}, {trial.date}"
            sections["huge pages"] = {"measured": printable(gain), "kept in": capture.pages.name}
    if capture.has_vm:
        if not capture.has_snapshot:
            sections["machine"] = describe_topology(capture.vm.topology)
            sections["ePT"] = describe_tree(capture.vm.tree)
            sections["how sure"] = describe_facts(capture.vm.facts, plain)
        sections["VM"] = describe_vm(capture.vm)
        if capture.has_snapshot:
            sections["host and guest"] = describe_join(capture.snapshot.facts.get("vm") or {})
    if capture.has_trace:
        sections["trace"] = describe_trace(capture.trace)
    if capture.processes or capture.lost:
        for pid, one in capture.members.items():
            if one.has_snapshot:
                tree = one.snapshot.guest
                rows: Rows = {"name": name(one), "table pages": len(tree)}
                rows["leaf tables"] = int(np.count_nonzero(tree.level == 1))
                sections[f"{PROCESS}{pid}"] = rows
    return sections


def program(capture: Capture) -> Rows:
    """Its command line where the capture says, and how many children have traces of their own."""
    command = capture.manifest.provenance.get("command")
    rows: Rows = {}
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        rows["program"] = printable(shlex.join(command))
    elif capture.has_trace and (text := capture.trace.facts.get("command")):
        rows["program"] = printable(str(text))
    children = [name for name in capture.manifest.files if name.endswith(".ptt") and name != TRACE]
    if children:
        rows["children whose traces cannot be read"] = len(children)
    count, names = capture.untraced_children
    if count:
        rows["children not traced"] = ", ".join([f"{count} seen", *names])
    return rows


def name(capture: Capture) -> str:
    """What its process is called: "postgres: checkpointer"; of a recorded one the program, not its tracer."""
    said = capture.manifest.provenance
    command = said.get("command")
    if not isinstance(command, list) or not command:
        return printable(str(said.get("comm", "")))
    first = str(command[0])
    return printable(first if ": " in first else first.rpartition("/")[2])  # a title, or a path


def code(name: str) -> str:
    """A name for programs: tables_at_level_4, memory_mib, pages_2_mib of "2 MiB pages"."""
    return re.sub(r"\W+", "_", re.sub(r"^(\d .iB) (\w+)", r"\2 \1", name.replace("'", "")).lower()).strip("_")


def for_people(sections: dict[str, Rows]) -> dict[str, Rows]:
    """The sections with spaces for underscores in names, dates for instants, and PIDs as words."""
    return {
        title: {
            key.replace("_", " "): SHOWN.get(key, lambda same: same)(value) for key, value in rows.items()
        }
        for title, rows in sections.items()
    }


def summary(sections: Mapping[str, Rows]) -> str:
    """A capture in a sentence: what it is of, its page tables, its trace."""
    about, several = sections["capture"], sum(title.startswith(PROCESS) for title in sections)
    process = f"{several} processes" if several > 1 else "a process"
    of = f"A capture of {'a VM' if str(about['kind']).startswith('vm') else process}"
    holds = []
    if tables := sections.get("gPT") or sections.get("page table") or sections.get("ePT"):
        mapped = sum(
            (int(tables.get(name, 0)) - int(tables.get(f"{name}, the tracer's", 0))) << 9 * level + 3
            for level, name in PAGE_NAMES.items()
        )
        nodes = plural(int(sections["machine"]["NUMA nodes"]), "node")
        holds.append(f"page tables that map {size_in_words(mapped)} on a machine of {nodes}")
    if trace := sections.get("trace"):
        accesses, threads = int(trace["accesses"]), plural(int(trace["threads"]), "thread")
        holds.append(f"a trace of {accesses:,} accesses by {threads}")
    if heat := sections.get("heat"):
        holds.append(f"{plural(int(heat['samples']), 'sample')} of accessed bits")
    named = f", {about['program']}" if "program" in about else ""
    return f"{of}{named}: {' and '.join(holds) or 'nothing of it is readable'}."


def date(since_1970: float) -> str:
    """ISO 8601 of seconds, or of nanoseconds as in a trace's header."""
    seconds = since_1970 / 1e9 if since_1970 > 1e12 else since_1970
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError, TypeError):
        return str(since_1970)


SHOWN: dict[str, Callable[[Any], Any]] = {"pid": str, "uid": str, "started": date}
TITLES = {"how sure": "how the tables were read"}  # of sections, for people


def describe_topology(topology: Topology) -> Rows:
    frames = sum(int((node.frames[:, 1] - node.frames[:, 0]).sum()) for node in topology.nodes)
    return {
        "NUMA nodes": len(topology),
        "CPUs": sum(len(node.cpus) for node in topology.nodes),
        "memory (MiB)": frames * 4096 >> 20,
    }


def describe_tree(tree: Tree, tracers: Mapping[int, int] | None = None) -> Rows:
    """Tables per level and node, leaves per size, bytes; `tracers`: {level: leaves of the tracer's}."""
    rows: Rows = {"levels": tree.levels, "table pages": len(tree)}
    if own := int(np.count_nonzero(tree.flags & EMULATOR)):
        rows["of them the tracer's"] = own
    rows["table bytes"] = len(tree) * 4096
    for level in range(tree.levels, 0, -1):
        rows[f"tables at level {level}"] = int(np.count_nonzero(tree.level == level))
    leaves = leaf_entries(tree)
    for level, pages in PAGE_NAMES.items():
        if (here := tree.level == level).any():
            rows[pages] = int(leaves[here].sum())
        if tracers and tracers.get(level):
            rows[f"{pages}, the tracer's"] = tracers[level]
    for node in np.unique(tree.node):
        name = "unknown node" if node == UNKNOWN_NODE else f"node {node}"
        rows[f"tables on {name}"] = int(np.count_nonzero(tree.node == node))
    return rows


def describe_vm(host: HostDump) -> Rows:
    """Slots, vCPUs by node and roots of a HostDump."""
    slots = [slot for slot in host.slots if slot.space == 0]
    rows: Rows = {"memory slots": len(slots)}
    rows["memory in slots (MiB)"] = sum(slot.bytes for slot in slots) >> 20
    rows["vCPUs"] = len(host.vcpus)
    nodes = [vcpu.node for vcpu in host.vcpus if vcpu.node is not None]
    for node in sorted(set(nodes)):
        rows[f"vCPUs on node {node}"] = nodes.count(node)
    for kind in sorted({root.kind for root in host.roots}):
        here = [root for root in host.roots if root.kind == kind]
        rows[f"roots: {kind}"] = f"{len(here)}, {sum(root.table is not None for root in here)} of them here"
    return rows


def describe_join(facts: dict[str, Any]) -> Rows:
    """Facts of `ptanalyze join` about both sides of a VM capture."""
    rows: Rows = {}
    for what in ("tables", "pages"):
        if share := (facts.get("fit") or {}).get(what):
            for key, value in share.items() if isinstance(share, dict) else ():
                rows[f"guest {what}: {key.replace('_', ' ')}"] = value
    if facts.get("numa_oblivious") is not None:
        nodes = len(facts.get("guest_nodes") or ())
        rows["guest sees NUMA"] = "no" if facts["numa_oblivious"] else plural(nodes, "node")
    if facts.get("seconds_apart") is not None:
        rows["guest dumped after host (s)"] = facts["seconds_apart"]
    return rows


def describe_facts(recorded: dict[str, Any], manifest: Rows) -> Rows:
    """The dumper's own facts that the manifest lacks; lists of words joined, other lists as their length."""
    facts: Rows = {}
    for key, value in recorded.items():
        if manifest.get(key) == value:
            continue
        if isinstance(value, (str, int, float)):
            facts[key.replace("_", " ")] = value
        elif isinstance(value, list) and value:
            words = all(isinstance(item, str) for item in value)
            facts[key.replace("_", " ")] = ", ".join(value) if words else plural(len(value), "range")
    return facts


def describe_heat(heat: Heat) -> Rows:
    lengths = zip(heat.samples.sum(axis=0).tolist(), heat.seconds.tolist(), strict=True)
    return {
        "samples": int(heat.samples.sum()),
        "sampled (s)": round(heat.sampled_seconds, 3),
        "lengths as measured (ms)": ", ".join(f"{n} of {in_ms(seconds)}" for n, seconds in lengths),
        "pages used": len(heat.address),
        "pages used in every sample": int(np.count_nonzero(heat.saturated)),
        "walks estimated": int(heat.walks.sum()),
    }


def in_ms(seconds: float) -> str:
    """Milliseconds with three digits, all before the point: "9.45", "1,010"."""
    ms = 1e3 * seconds
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


def describe_trace(trace: Trace) -> Rows:
    lines = lines_per_page(trace)
    rows: Rows = {
        "threads": len(trace.threads),
        "accesses": trace.accesses,
        "merged touches": trace.touches,
        "touches that cannot miss the TLB": "left out" if trace.facts.get("stripped") else "kept",
        "instructions": int(trace.chunks["instructions"].sum()),
        "2 MiB regions touched": len(trace.regions),
        "cache lines used of a page": round(lines, 1) if lines < PAGE_LINES else "all, or not known",
        "seconds": round(float(np.ptp(trace.chunks["time"])) / 1e9, 3) if len(trace.chunks) else 0.0,
    }
    for kind in Event:
        count = int(np.count_nonzero(trace.events["kind"] == kind))
        if count:
            rows[f"{kind.name.lower().replace('_', ' ')} events"] = count
    rows |= {
        key.replace("_", " "): value
        for key, value in trace.facts.items()
        if isinstance(value, (str, int, float)) and key not in rows
    }
    return rows
