"""Small captures and files of every kind that is read: what is changed."""

import gzip
import json
import lzma
import shutil
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO

import numpy as np

from captures import TRIAL, write_bits, write_rounds
from naive.strip import REACH
from ptanalyze.cli import run
from ptanalyze.core.errors import bundled
from ptanalyze.core.trace import Event
from ptanalyze.formats.measured import write_calibration
from ptanalyze.formats.record import TRACE, new_capture, seal
from ptanalyze.formats.snapshot import HostDump, Root, Slot, Vcpu, write_snapshot, write_tree, write_vm
from ptanalyze.kernels.jit import save_code
from ptanalyze.world.address_space import Nested
from ptanalyze_formats.drmemtrace import RECORD as DRMEMTRACE
from ptanalyze_formats.perf_samples import HEADER as PERF_HEADER
from ptanalyze_formats.trace_writer import UNKNOWN_THREAD, new_trace
from strategies import Page, build_snapshot, build_tree, frames_on
from unit import test_foreign_tables, test_foreign_traces, test_host, test_perf_stat

from .changes import reseal, zipped
from .readers import KEPT, READERS

HEAP, REGION, STACK = 0x5555_5540_0000, 1 << 21, 0x7FFF_0000_0000
MAPS = f"""{HEAP:x}-{HEAP + REGION:x} rw-p 00000000 00:00 0                          [heap]
{HEAP + REGION:x}-{HEAP + (1 << 30):x} r-xp 00001000 08:01 77  /usr/bin/some thing
{HEAP + (1 << 30):x}-{HEAP + (4 << 30):x} rw-s 00001000 08:01 77
{STACK:x}-{STACK + (1 << 20):x} rw-p 00000000 00:00 0 [stack]
""".encode()
SIGNATURE = {"minflt": 1, "majflt": 0, "mm_lock_seq": 3, "pgtables_bytes": 4096}
FACTS = {
    **{"pid": 7, "comm": "x", "uid": 0, "kernel": "6.1", "cpu": "c", "time": "2025-01-01T00:00:00Z"},
    **{"duration_s": 0.1, "method": "bpf", "retries": 0, "stopped": False, "streamed": False, "unknown": []},
    "quiescence": {"before": SIGNATURE, "after": SIGNATURE, "quiet": True},
    "completeness": {
        **{"tables": 5, "counted_by_kernel": 4, "huge_leaves": 1, "difference": 0},
        **{"explained": True, "explanation": "e"},
    },
    "reading": {"changed": 0, "torn": 0, "fault": 0, "bad_type": 0, "dropped": 0},
    "emulator": [[STACK, STACK + (1 << 20)]],
    "verify": {"checked": 4, "mismatched": 0, "hidden": 0, "examples": []},
}
TOUCHED = [
    *(HEAP, HEAP + 4096, HEAP + 8192, HEAP + 511 * 4096, HEAP + REGION, HEAP + REGION + 9 * 4096),
    *(HEAP + 2 * REGION + 12288, HEAP + 3 * REGION, (HEAP >> 30 << 30) + (2 << 30) + 4096),
    *(HEAP + 9 * REGION, STACK + 4096, HEAP + 700 * REGION),
]
NEW, MOVED = HEAP + 5 * REGION, HEAP + 9 * REGION
CALLS = {  # behind which chunk: (event, arguments, result)
    1: (Event.ROI_START, (), 0),
    2: (Event.MMAP, (0, REGION, 3, 0x22), NEW),
    3: (Event.MUNMAP, (HEAP, 8192), 0),
    4: (Event.MPROTECT, (HEAP + 4096, 8192, 1), 0),
    5: (Event.MREMAP, (NEW, REGION, 2 * REGION, 1), MOVED),
    6: (Event.MADVISE, (HEAP, 8192, 4), 0),
    7: (Event.BRK, (HEAP + 20 * REGION,), HEAP + 20 * REGION),
    8: (Event.BRK, (HEAP + 19 * REGION,), HEAP + 19 * REGION),
    9: (Event.MOVE_PAGES, (HEAP, REGION, 1), 0),
}


def pages():
    small = [Page(HEAP + (k << 12), 4096 + k * 7) for k in (0, 1, 2, 7, 8, 9, 511)]
    small += [Page(HEAP + REGION + (k << 12), 9000 + k) for k in range(0, 40, 3)]
    huge = [Page(HEAP + 2 * REGION, 512 * 40, 2), Page(HEAP + 3 * REGION, (1 << 24) + 512 * 7, 2)]
    huge.append(Page((HEAP >> 30 << 30) + (2 << 30), 1 << 18, 3))
    return [*small, *huge, Page(STACK + 4096, (1 << 24) + 5)]


def trace_into(path, touched, roi=False, stripped=()):
    """A trace of four threads, a dozen chunks and every kind of call."""
    rng = np.random.default_rng(len(touched))
    facts = {"tracer": "fuzz", "instructions": True, "pid": 1234, "command": "./x y"}
    with new_trace(path, stripped=stripped, **facts) as writer:
        for k in range(4):
            writer.event(Event.THREAD_START, 1234 + k, 0 if k else UNKNOWN_THREAD, thread=k, time=k)
        for chunk in range(12):
            thread, count = int(rng.integers(4)), int(rng.integers(1, 40))
            page = (rng.choice(np.array(touched, np.int64), count) >> 12) + rng.integers(0, 3, count)
            where = {"thread": thread, "cpu": thread % 2, "time": 10 + 100 * chunk}
            writer.chunk(page, rng.random(count) < 0.4, rng.integers(1, 9, count), instructions=99, **where)
            if chunk in CALLS and (roi or chunk != 1):
                event, arguments, result = CALLS[chunk]
                writer.event(event, *arguments, result=result, **where)


def process(out, levels=4, roi=False, traced=True):
    snapshot = build_snapshot(pages(), levels=levels, nodes=2, table_nodes=(0, 1, 1))
    with new_capture(out) as inside:
        write_snapshot(inside, replace(snapshot, facts=dict(FACTS)))
        (inside / "maps").write_bytes(MAPS)
        if traced:
            trace_into(inside / "trace.ptt", TOUCHED, roi)
            (inside / "record.json").write_text(json.dumps({"command": "x", "n": 3}))
        seal(inside, "process", {"a": 1})


def vm(out, encoding="kvm", levels=4):
    """The joined capture `out`, and its two sides: `out`-host, `out`-guest."""
    small = [page for page in pages() if page.level < 3]
    small = [
        Page(p.va, p.frame % (1 << 18) >> 9 * (p.level - 1) << 9 * (p.level - 1), p.level) for p in small
    ]
    behind = [(0, 1 << 19, 2), (REGION, 1 << 20, 2)]
    nodes = {"nodes": 2, "table_nodes": (0, 1), "host_table_nodes": (1, 0)}
    snapshot = build_snapshot(small, behind, host_encoding=encoding, host_levels=levels, **nodes)
    node = snapshot.topology.node_of_frame(Nested(snapshot.host).host_frames(snapshot.guest.frame))
    join = {"fit": {}, "seconds_apart": 1.0, "guest_nodes": [], "host_facts": {}}
    snapshot = replace(snapshot, guest=replace(snapshot.guest, node=node), facts={**FACTS, "vm": join})
    root = int(snapshot.host.frame[0])
    slots, threads = (Slot(gpa=0, bytes=1 << 32, hva=0x7F0000000000),), enumerate((5, 6))
    vcpus = tuple(Vcpu(tid=tid, cpu=cpu, node=cpu, root=root) for cpu, tid in threads)
    shadow = Root(frame=99, kind="shadow", why="not dumped")
    roots = (Root(frame=root, kind="tdp_mmu", table=0, levels=levels), shadow)
    facts = {"pid": 9, "comm": "qemu", "method": "bpf"}
    host = HostDump(snapshot.host, snapshot.topology, slots, vcpus, roots, facts)
    with new_capture(out) as inside:
        write_snapshot(inside, snapshot)
        (inside / "maps").write_bytes(MAPS)
        write_vm(inside, host)
        trace_into(inside / "trace.ptt", TOUCHED[:7])
        seal(inside, "vm", {})
    with new_capture(f"{out}-host") as inside:
        write_tree(inside, "ept", snapshot.host)
        write_vm(inside, host)
        (inside / "maps").write_bytes(MAPS)
        seal(inside, "vm-host", {})
    with new_capture(f"{out}-guest") as inside:
        write_snapshot(inside, replace(snapshot, host=None, facts=dict(FACTS)))
        (inside / "maps").write_bytes(MAPS)
        trace_into(inside / "trace.ptt", TOUCHED[:7])
        seal(inside, "process", {})


def captures(place):
    """{name: {file: bytes}} of small captures, which are left in the directory `place`."""
    process(place / "four")
    process(place / "five", levels=5, roi=True)
    process(place / "tables", traced=False)
    vm(place / "vm")
    vm(place / "vm-ept", "ept", 5)
    with new_capture(place / "trace") as inside:
        trace_into(inside / "trace.ptt", TOUCHED, roi=True, stripped=REACH)
        seal(inside, "trace", {})
    return {path.name: contents(path) for path in sorted(place.iterdir())}


def contents(capture):
    return {path.name: path.read_bytes() for path in sorted(capture.iterdir()) if path.is_file()}


def samples(place):
    """Copies of the two smallest bundled captures."""
    size = lambda path: sum(file.stat().st_size for file in path.parent.iterdir())  # noqa: E731
    names = sorted(bundled("samples").glob("*/capture.json"), key=size)[:2]
    for path in names:
        shutil.copytree(path.parent, place / path.parent.name, ignore=shutil.ignore_patterns(".cache"))
    return {path.parent.name: contents(place / path.parent.name) for path in names}


LACKEY = b"""==1== Lackey
I  04001090,3
 L 1ffeffe7e,2
 S 04222C4C,4
 M 0421C7E4,8
 L 1ffefff000,4096
I  04001093,5
 L 04222cac,16
 S 1ffeffffff8,32
--1-- x
"""
DATA_SOURCES = b"""\
 7 [000] 1.000001:  2000 ibs_op//:  7f0011223344  68100842 |OP LOAD|LVL L3 or L3 hit|SNP None|TLB L2 miss
 7 [001] 1.000002:  1000 ibs_op//:  7f0011223388   5080024 |OP STORE|LVL N/A|SNP N/A|TLB N/A|BLK  N/A 74
"""
PERF_SCRIPT = b"""# cpu
 prog 123/124 [001] 12.345678: mem-loads:u: 7f0011223344 401000 main+0x1 (/bin/x)
prog  77 [000] 12.345679:   cpu/mem-stores/P:   7f0011223388
 5 [003] 13.1: 1f0000
x y 9 14.000000001: mem-loads:  ffffffff81000000
"""


def texts(place):
    """{kind: [bytes]}; calibrations are left in `place` too. `captures` comes first."""
    models = bundled("models")
    few = build_tree([Page(0x1000, 7), Page(0x555555400000, 99, 2)], frames_on((1,)))
    many = build_tree(test_foreign_tables.PAGES, frames_on((0, 1)))
    dumps = [test_foreign_tables.dump_text(tree).encode() for tree in (few, many)]
    jsons = "\n".join(test_perf_stat.json_line(name, n) for name, n in test_perf_stat.COUNTS.items())
    (place / "local.txt").write_text(test_perf_stat.text())
    write_calibration(place / "trial.toml", TRIAL)
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        run(["calibrate", "--local", f"{place}/local.txt", "-o", f"{place}/calibration.toml"])
    return {
        "lackey": [LACKEY * 3, test_foreign_traces.HANDOUT],
        "perf-script": [PERF_SCRIPT * 2, DATA_SOURCES, b"  124 [001] 1.000001: 5581aa00 55aa00 f+0x0 (x)\n"],
        "vmitosis": dumps,
        "machine": [path.read_bytes() for path in sorted((models / "machines").glob("*.toml"))],
        "costs": [path.read_bytes() for path in sorted((models / "costs").glob("*.toml"))],
        "perf-stat": [text.encode() for text in (test_perf_stat.text(), jsons)],
        **{name: [(place / name).read_bytes()] for name in ("calibration.toml", "trial.toml")},
    }


# A small file of each format, or two: what the readers are given after a change.

HEAT = [(ms, {(k << 21, 2) for k in range(9)} | {(4096, 1)}) for ms in (1, 9, 9)]
HMAT = {
    f"sys/devices/system/node/node{node}/{kind}/initiators/{name}": content
    for node, kind in ((0, "access1"), (1, "access0"))
    for name, content in {"node0/online": b"1\n", "read_latency": b"80\n", "read_bandwidth": b"99\n"}.items()
}


def small_files(place, bases, texts):
    """{name of READERS: [base]}; captures and texts are those of a campaign, `place` is a new directory."""
    place.mkdir()
    size = PERF_HEADER.size
    records, accesses = dynamorio(), test_foreign_traces.RECORDS.tobytes()
    found = {
        "host": [host(place / f"{at}", *of) for at, (of, _) in enumerate(test_host.LAYOUTS.values())],
        "kept code": [code(place)],
        "snapshot": [*(bases[name] for name in ("four", "tables", "vm")), replicated(bases["tables"])],
        "vm": [bases[name] for name in ("vm", "vm-host")],
        "trace": [bases[name][TRACE] for name in ("four", "trace")],
        "heat": [
            write_bits(place / "h", HEAT).read_bytes(),
            write_rounds(place / "r", [{0x201000: 5.0, 0x209000: 15.0}] * 3, (10, 20)).read_bytes(),
        ],
        "maps": [MAPS],
        "machine": texts["machine"][:3],
        "costs": texts["costs"][:2],
        "calibration": texts["calibration.toml"] + texts["trial.toml"],
        "perf stat": texts["perf-stat"],
        "perf script": texts["perf-script"],
        "perf.data": [PERF_HEADER.pack(b"PERFILE2", size, 136, size, 136, 300, 40).ljust(340, b"\7")],
        "lackey": texts["lackey"],
        "champsim": [accesses],
        "champsim.gz": [gzip.compress(accesses)],
        "champsim.xz": [lzma.compress(accesses)],
        "drmemtrace": [records],
        "drmemtrace.gz": [gzip.compress(records)],
        "drmemtrace.zip": [zipped(records)],
        "vmitosis": texts["vmitosis"],
        "vmitosis, nested": texts["vmitosis"],
    }
    return {name: found[name] for name in READERS}


def host(place, *layout):
    """{name: content} of a copied tree of /sys and /proc, with HMAT."""
    test_host.host_tree(place, *layout)
    files = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    hmat = {name: content for name, content in HMAT.items() if f"{name.split('/access')[0]}/cpulist" in files}
    return hmat | files


def code(place):
    path = place / "code"
    save_code(path, KEPT)
    return path.read_bytes()


def replicated(files):
    """A capture with a second tree, equal to the first, that node 1 walks."""
    said = json.loads(files["snapshot.json"])
    trees = [{"name": "gpt", "nodes": [0]}, {"name": "gpt-node1", "nodes": [1]}]
    said["facts"]["replicas"] = {"trees": trees, "owners": [[0x1000, 0x2000, 0], [0x5000, 0x9000, 1]]}
    more = {f"gpt-node1.{kind}": files[f"gpt.{kind}"] for kind in ("tables", "entries")}
    found = files | more | {"snapshot.json": json.dumps(said).encode()}
    reseal(found)
    return found


def dynamorio():
    read, write, at = test_foreign_traces.load_from, test_foreign_traces.store, test_foreign_traces.at
    first = [*test_foreign_traces.begin(7), *at(5, 1), (test_foreign_traces.INSTR, 3, 0x400000), read(9)]
    rest = [write(10, 4090, 16), *at(9), read(1 << 30), *test_foreign_traces.end(7)]
    return np.array([*first, *rest], DRMEMTRACE).tobytes()
