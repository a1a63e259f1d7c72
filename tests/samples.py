"""Live captures of a KVM guest in the format they were first recorded in, made into host and guest dumps.

A dump file is a magic of 8 bytes (GPTDUMP1, NPTDUMP1), the number of records (u64), and records of 4,128
bytes: u64 physical address of the table, u64 first address mapped, u32 level (4 = root), u32 children,
u32 root, u32 zero, 512 raw u64 entries; little endian. NPTDUMP1 holds KVM's SPTEs.

    python tests/samples.py DIRECTORY OUT.tar.xz
"""

import ast
import re
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

from ptanalyze.core import snapshot as bits
from ptanalyze.core.snapshot import NO_PARENT, VMA_DTYPE, Node, Snapshot, Topology, Tree
from ptanalyze.formats.snapshot import HostDump, Root, Slot, Vcpu, write_snapshot, write_tree, write_vm

RECORD = np.dtype(
    [
        ("address", "<u8"),
        ("base", "<u8"),
        ("level", "<u4"),
        ("children", "<u4"),
        ("root", "<u4"),
        ("zero", "<u4"),
        ("entries", "<u8", 512),
    ]
)
KERNEL_HALF = slice(256, 512)


def read_dump(path, topology):
    """Tree of a dump file; nodes of its tables from `topology`."""
    raw = path.read_bytes()
    guest = raw[:8] == b"GPTDUMP1"
    records = np.frombuffer(raw, RECORD, int.from_bytes(raw[8:16], "little"), 16)
    encoding = "x86" if guest else "kvm"
    by_place = {(int(r["level"]), int(r["address"])): k for k, r in enumerate(records)}
    order, parents = [], []

    def visit(record, level, parent):
        me = len(order)
        order.append(record)
        parents.append(parent)
        raw = records["entries"][record]
        if level == 4 and guest:
            raw = raw[: KERNEL_HALF.start]
        for entry in raw[bits.table(raw, level, encoding)].tolist() if level > 1 else []:
            visit(by_place[level - 1, entry & int(bits.ADDRESS)], level - 1, me)

    visit(int(np.flatnonzero(records["level"] == 4)[0]), 4, NO_PARENT)
    records = records[order]
    frame = (records["address"] >> np.uint64(12)).astype(np.int64)
    table = records["entries"].copy()
    if guest:
        table[0, KERNEL_HALF] = 0
    return Tree(
        table,
        records["base"].copy(),
        frame,
        np.array(parents, np.int32),
        topology.node_of_frame(frame),
        records["level"].astype(np.uint8),
        np.zeros(len(order), np.uint8),
        4,
        encoding,
    )


def topology_from(text, cpus, memory):
    """Topology of one SRAT line of verify.txt and bytes of memory; CPU i is on node i mod nodes."""
    ranges = {(int(a, 16) >> 12, int(b, 16) + 1 >> 12, node) for a, b, node in ast.literal_eval(text)}
    ranges = {(a, min(b, memory >> 12), node) for a, b, node in ranges}
    ids = sorted({node for _, _, node in ranges})
    frames = {node: sorted((a, b) for a, b, owner in ranges if owner == node) for node in ids}
    return Topology(
        tuple(Node(n, tuple(range(n, cpus, len(ids))), np.array(frames[n], np.int64)) for n in ids)
    )


def convert(source, out):
    """Make host/, guest/ and touch.log in `out` from gpt.bin, npt.bin, verify.txt, params.sh, touch.log."""
    srat = dict(re.findall(r"^(L[12]) SRAT (\[.*\])$", (source / "verify.txt").read_text(), re.M))
    parameters = dict(re.findall(r"(\w+)=('[^']*'|\w+)", (source / "params.sh").read_text()))
    cpus, memory = int(parameters["VCPUS"]), int(parameters["L2MB"]) << 20
    host, guest = topology_from(srat["L1"], cpus, 1 << 46), topology_from(srat["L2"], cpus, memory)
    facts = {"method": "bpf", "kernel": "6.1.0-56-amd64", "parameters": parameters}
    nested = read_dump(source / "npt.bin", host)
    root = int(nested.frame[0])
    dump = HostDump(
        nested,
        host,
        (Slot(gpa=0, bytes=0xA0000, hva=0), Slot(gpa=0xC0000, bytes=memory - 0xC0000, hva=0xC0000)),
        tuple(Vcpu(tid=100 + i, cpu=i, node=i % len(host), root=root) for i in range(cpus)),
        (Root(frame=root, kind="tdp_mmu", table=0, levels=4),),
        {**facts, "slots": "made from the guest's memory size; no host addresses were recorded"},
    )
    (out / "host").mkdir(parents=True)
    write_tree(out / "host", "ept", nested)
    write_vm(out / "host", dump)
    (out / "host" / "maps").write_bytes(b"")
    (out / "guest").mkdir()
    tables = read_dump(source / "gpt.bin", guest)
    snapshot = Snapshot(tables, np.zeros(0, VMA_DTYPE), (), guest, None, facts)
    write_snapshot(out / "guest", snapshot)
    (out / "touch.log").write_text((source / "touch.log").read_text())


def touched(log):
    """uint64[n]: every address that the guest touched, by the lines "kind vcpu start bytes stride"."""
    lines = [line.split() for line in log.splitlines() if not line.startswith("pid")]
    return np.concatenate(
        [
            np.arange(int(start, 16), int(start, 16) + int(length), int(step), np.uint64)
            for _, _, start, length, step in lines
        ]
    )


def main():
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as place:
        convert(source, Path(place) / "sample")
        with tarfile.open(target, "w:xz", preset=9) as archive:
            for path in sorted((Path(place) / "sample").rglob("*")):
                info = archive.gettarinfo(path, str(path.relative_to(Path(place) / "sample")))
                info.uid = info.gid = info.mtime = 0
                info.uname = info.gname = ""
                with open(path, "rb") if path.is_file() else tempfile.TemporaryFile() as data:
                    archive.addfile(info, data if path.is_file() else None)


if __name__ == "__main__":
    main()
