"""A small file of each format, or two: what the readers are given after a change."""

import gzip
import json
import lzma

import numpy as np

import kernel_memory
from heat_bits import write_bits
from ptanalyze.formats.foreign import table_dump
from ptanalyze.formats.foreign.drmemtrace import RECORD as DRMEMTRACE
from ptanalyze.formats.foreign.perf_samples import HEADER as PERF_HEADER
from ptanalyze.formats.foreign.perf_samples import MAGIC as PERF_MAGIC
from ptanalyze.formats.manifest import TRACE
from ptanalyze.formats.trace import read_index
from ptanalyze.formats.trace_index import INDEX, write_index
from ptanalyze.kernels.code_cache import KeptCode
from ptanalyze.world import stream_store
from strategies import build_tree, frames_on
from unit import (
    test_btf,
    test_class_shares,
    test_drmemtrace,
    test_mapped_pages,
    test_other_traces,
    test_table_dump,
)

from .bases import MAPS, contents
from .hostile_captures import reseal
from .readers import KEPT, KEY, READERS, SMALL, STREAM_CHUNKS
from .records import zipped

SMALL_TABLES = 1 << 17  # bytes
HEAT = [(ms, {(k << 21, 2) for k in range(9)} | {(4096, 1)}) for ms in (1, 9, 9)]
HMAT = {
    f"node{node}/{kind}/initiators/{name}": content
    for node, kind in ((0, "access1"), (1, "access0"))
    for name, content in {"node0/online": b"1\n", "read_latency": b"80\n", "read_bandwidth": b"99\n"}.items()
}
PAIRS = [(k << 12, 1 << 63 | k + 7) for k in range(9)]


def small_files(place, bases, texts):
    """{name of READERS: [base]}; captures and texts are those of a campaign, `place` is a new directory."""
    place.mkdir()
    records, accesses = dynamorio(), test_other_traces.RECORDS.tobytes()
    tables, nested = dumps(place)
    found = {
        "btf": [kernel_memory.btf(test_btf.TYPES)],
        "hmat": [HMAT],
        "kept code": [code(place)],
        "snapshot": [*(bases[name] for name in ("four", "tables", "vm")), replicated(bases["tables"])],
        "vm": [bases[name] for name in ("vm", "vm-host")],
        "trace": [bases[name][TRACE] for name in ("four", "trace")],
        "trace.index": [with_index(place / "i", bases["trace"][TRACE])],
        "walk stream": [stream(place)],
        "heat": [write_bits(place / "h", HEAT).read_bytes()],
        "maps": [MAPS],
        "machine": texts["machine"][:3],
        "costs": texts["costs"][:2],
        "calibration": texts["calibration.toml"],
        "latency": texts["latency"],
        "matrix": texts["matrix"],
        "perf stat": texts["perf-stat"],
        "perf script": texts["perf-script"],
        "perf.data": [perf_data()],
        "lackey": texts["lackey"],
        "pinatrace": [test_other_traces.PINATRACE],
        "champsim": [accesses],
        "champsim.gz": [gzip.compress(accesses)],
        "champsim.xz": [lzma.compress(accesses)],
        "drmemtrace": [records],
        "drmemtrace.gz": [gzip.compress(records)],
        "drmemtrace.zip": [zipped(records)],
        "vmitosis": texts["vmitosis"],
        "vmitosis, nested": texts["vmitosis"],
        "gptdump": [tables],
        "nptdump": [nested],
        "nodes": [test_table_dump.NODES.encode()],
        **{name: texts[name] for name in ("result.json", "result.csv", "result.parquet")},
        "classify": [json.dumps({"what": "classify", "result": [walks()]}).encode()],
        "v2p": [test_mapped_pages.GOOD.encode()],
        "pagemap": [test_mapped_pages.pagemap(*PAIRS)],
    }
    return {name: found[name] for name in READERS}


def code(place):
    kept = KeptCode(place, "x", KEY)
    kept.save(KEPT)
    return kept.path.read_bytes()


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
    read, write, at = test_drmemtrace.load, test_drmemtrace.store, test_drmemtrace.at
    first = [*test_drmemtrace.begin(7), *at(5, 1), (test_drmemtrace.INSTR, 3, 0x400000), read(9)]
    rest = [write(10, 4090, 16), *at(9), read(1 << 30), *test_drmemtrace.end(7)]
    return np.array([*first, *rest], DRMEMTRACE).tobytes()


def dumps(place):
    """(GPTDUMP1, NPTDUMP1)."""
    guest = build_tree(test_table_dump.PAGES, frames_on([0, 1, 0], first=5000))
    host = build_tree(test_table_dump.PAGES, frames_on([0], first=9000), encoding="kvm")
    pair = (guest, table_dump.GUEST), (host, table_dump.NESTED)
    return [test_table_dump.dump(place / "dump", tree, magic).read_bytes() for tree, magic in pair]


def with_index(directory, trace):
    directory.mkdir()
    (directory / TRACE).write_bytes(trace)
    write_index(directory / INDEX, directory / TRACE, read_index(directory / TRACE))
    return contents(directory)


def stream(place):
    with stream_store.Writer(place / SMALL, "x") as writer:
        for _ in range(STREAM_CHUNKS):
            writer.append(np.arange(700, 740, dtype=np.uint32), np.zeros(40, bool), np.array([40]))
        writer.seal(np.ones((1, 3), np.int64))
    return contents(place / SMALL / "walks-x")


def perf_data():
    head = PERF_HEADER.pack(PERF_MAGIC, PERF_HEADER.size, 136, PERF_HEADER.size, 136, 300, 40)
    return head.ljust(340, b"\7")


def walks():
    return {"weight": "walks", "rows": test_class_shares.rows(1, 2, 3, 4)}
