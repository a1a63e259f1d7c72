"""Functions that read a file, each called on small files of its format: hundreds of inputs a second."""

import re
import shutil
from functools import partial
from typing import NamedTuple

from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import SLOT_BITS
from ptanalyze.formats import heat
from ptanalyze.formats.measured import read_measured, write_machine
from ptanalyze.formats.record import read_manifest
from ptanalyze.formats.snapshot import parse_maps, read_snapshot, read_vm
from ptanalyze.formats.trace import read_trace
from ptanalyze.kernels.jit import load_code
from ptanalyze_formats.champsim import RECORD as CHAMPSIM
from ptanalyze_formats.champsim import import_champsim
from ptanalyze_formats.drmemtrace import RECORD as DRMEMTRACE
from ptanalyze_formats.drmemtrace import import_drmemtrace
from ptanalyze_formats.importing import recognise
from ptanalyze_formats.perf_samples import import_samples, must_be_whole
from ptanalyze_formats.ptdump_text import import_ptdump
from ptanalyze_formats.text_traces import import_lackey
from ptanalyze_host.machine_file import host_machine
from ptanalyze_law.perf_stat import read_perf_stat, walk_run

from . import changes
from .attempt import function
from .changes import changed, changed_text, in_gzip, in_zip, maps_changed, record_changes, trace_changed

SMALL = "small"  # the directory that a changed file is in
KEPT = ("machine code", b"\x90" * 50)  # of compiled code
OUT = "out"  # the directory that readers write to


class Reader(NamedTuple):
    """reads: functions of a path; change(base, random): what is written there; file: its name, ending and all

    A base is the content of a file or, for a directory, {name: content}.
    """

    reads: tuple
    change: object = changed_text
    file: str = "in"


def to_trace(read):
    """What imports a trace and decodes the result."""

    def imported(path):
        read(path, path.parent / OUT / "t.ptt")
        decode(read_trace(path.parent / OUT / "t.ptt"))

    return recognise, imported


def to_tables(read, *others):
    return recognise, lambda path: read(path, path.parent / OUT), *others


def decode(trace):
    """Decode a trace; what kernels use as an index of its arrays must be one."""
    for batch in trace.batches(64):
        assert not len(batch.page) or int(batch.page.max()) >> SLOT_BITS < len(trace.regions)
    for rows in (trace.chunks, trace.events):
        assert not len(rows) or int(rows["thread"].max()) < len(trace.threads)
    at = trace.events["chunk"]
    assert not len(at) or 0 <= at.min() <= at.max() <= len(trace.chunks)


def compiled(path):
    """Nothing of a changed file may be loaded: it is code."""
    assert load_code(path) in (None, KEPT), "damaged code was loaded"


def named_otherwise(files, r):
    """Change a file's content or name, or both, in a directory of the kernel's."""
    name = r.choice(sorted(files))
    rest = {other: content for other, content in files.items() if other != name}
    if r.random() < 0.4:
        number = r.choice(["", "0", "1", "01", "9999", "99999", "x", "\u0661"])
        return rest | {re.sub("[0-9]", lambda _: number, name): files[name]}
    return rest | {name: changed_text(files[name], r)}


def trees_changed(files, r):
    for _ in range(r.choice([1, 1, 2, 5])):
        files = named_otherwise(files, r)
    return files


def host_of(root):
    """A machine file is written only of what load_machine reads again."""
    machine = host_machine("m", system=root / "sys/devices/system", cpuinfo=root / "proc/cpuinfo")
    (root / "m.toml").unlink(missing_ok=True)
    write_machine(root / "m.toml", machine)
    assert load_machine(root / "m.toml") == machine


def capture_changed(files, r):
    return changes.hostile(files, [files], r)


CHAMPSIM_FIELDS = [(8, 1), (9, 1), *((at, 8) for at in (0, 16, 24, 32, 40, 48, 56))]
champsim_changed = record_changes(0, CHAMPSIM.itemsize, CHAMPSIM_FIELDS)
dynamorio_changed = record_changes(0, DRMEMTRACE.itemsize, [(0, 2), (2, 2), (4, 8)])

READERS = {
    "host": Reader((host_of,), trees_changed),
    "kept code": Reader((compiled,), changed, "x.ptcode"),
    "snapshot": Reader((read_manifest, read_snapshot), capture_changed),
    "vm": Reader((read_manifest, read_vm), capture_changed),
    "trace": Reader((lambda path: decode(read_trace(path)),), trace_changed),
    "heat": Reader((heat.read_heat, heat.costs), record_changes(512, 88, [(k, 8) for k in range(0, 88, 8)])),
    "maps": Reader((lambda path: parse_maps(path.read_bytes(), path),), maps_changed),
    "machine": Reader((load_machine,), file="in.toml"),
    "costs": Reader((partial(load_costs, load_machine("vmitosis-cascade-lake")),), file="in.toml"),
    "calibration": Reader((read_measured,), file="in.toml"),
    "perf stat": Reader((lambda path: walk_run(read_perf_stat(path)),)),
    "perf script": Reader(to_trace(import_samples)),
    "perf.data": Reader((recognise, must_be_whole), changed),
    "lackey": Reader(to_trace(import_lackey)),
    "champsim": Reader(to_trace(import_champsim), champsim_changed),
    "champsim.gz": Reader(to_trace(import_champsim), in_gzip(champsim_changed), "in.gz"),
    "champsim.xz": Reader(to_trace(import_champsim), changes.in_xz(champsim_changed), "in.xz"),
    "drmemtrace": Reader(to_trace(import_drmemtrace), dynamorio_changed),
    "drmemtrace.gz": Reader(to_trace(import_drmemtrace), in_gzip(dynamorio_changed), "in.trace.gz"),
    "drmemtrace.zip": Reader(to_trace(import_drmemtrace), in_zip(dynamorio_changed), "in.trace.zip"),
    "vmitosis": Reader(to_tables(import_ptdump)),
    "vmitosis, nested": Reader(to_tables(lambda path, out: import_ptdump(path, out, path))),
}


def read(r, small, place):
    """Calls of the functions that read a changed one of the `small` files, in the directory `place`/small."""
    name = r.choice(sorted(READERS))
    reader, place = READERS[name], place / SMALL
    path = place / reader.file
    put(path, reader.change(r.choice(small[name]), r))
    return [function(f"{name}: {at}", one, path) for at, one in enumerate(reader.reads)]


def read_unchanged(small, place):
    """Call every function on each small file as it is: all are readable, and kernels are compiled then."""
    (place / SMALL / OUT).mkdir(parents=True)
    for name, reader in READERS.items():
        for base in small[name]:
            path = place / SMALL / reader.file
            put(path, base)
            for one in reader.reads:
                try:
                    one(path)
                except Exception as error:
                    raise AssertionError(f"{name}: {error}") from error


def put(path, content):
    """Write a file, or a directory of files, in place of what was there."""
    if isinstance(content, dict):
        path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        for name, inside in content.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(inside)
    else:
        if path.is_dir():
            shutil.rmtree(path)
        path.write_bytes(content)
