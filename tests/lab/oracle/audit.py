"""Each node's tree, dumped and compared, on a kernel that replicates: python -m lab.oracle.audit --help."""

import argparse
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from lab import images
from lab.machine import Machine
from lab.runs import boot
from ptanalyze.capture.check import check_capture
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.record import seal

from .machine import NODE_MIB, NODES
from .record import GUEST
from .replicas import check_replicas, read_replicas
from .scenarios import scenarios, script

PTDUMP = images.ROOT / "dumps/build/ptdump"
OPTIONS = "hydra numa_balancing=disable nopti oops=panic rcupdate.rcu_cpu_stall_timeout=300"
CPU = "max,la57=off,-pcid,-invpcid"
LIMIT = 1800  # seconds


def dumps(bzimage, wanted, out):
    """Run the scenarios on a kernel; `out`/SCENARIO.CHECK are then dumps. Lines that the guest said."""
    kernel = images.Kernel("", Path(bzimage), None, None)
    text = script(wanted, "lazy")
    rows = ((s["name"], s["order"], s["tlbflush_opt"], text.index(f"%% {s['name']} ")) for s in wanted)
    offsets = "".join(f"{name} {order} {flush} {at}\n" for name, order, flush, at in rows)
    with tempfile.TemporaryDirectory() as inside:
        oracle, place = Path(inside) / "oracle", Path(inside) / "machine"
        compiler = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-static", "-pthread", "-o", oracle]
        subprocess.run([*compiler, *sorted(GUEST.glob("*.c"))], check=True)
        files = {"script": images.LAB / "scripts/audit.sh", "operations": text, "offsets": offsets}
        files |= {"ptdump": PTDUMP, "oracle": oracle}
        image = images.initramfs(kernel, libraries_of=(PTDUMP,))
        machine = Machine(NODES, NODE_MIB, CPU, options=OPTIONS)
        run = boot("audit", machine, kernel, image, files, place, limit=LIMIT)
        with tarfile.open(run.share / "dumps.tar") as archive:
            archive.extractall(out, filter="data")
        return (run.share / "said").read_text().splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel", help="bzImage of a kernel with Hydra, BTF, 9p and eBPF")
    parser.add_argument("scripts", help="text file of scripts, or facts whose scripts are run")
    parser.add_argument("out", help="new directory of captures")
    args = parser.parse_args()
    out = Path(args.out)
    out.mkdir()
    print(*dumps(args.kernel, list(scenarios(args.scripts)), out), sep="\n", file=sys.stderr)
    for directory in sorted(out.iterdir()):
        if not (directory / "snapshot.json").exists():
            print(directory.name, "not dumped: see what ptdump said", sep="\t")
            continue
        seal(directory, "process", {})
        capture = open_capture(directory)
        for one in (*check_capture(capture), *check_replicas(read_replicas(capture), capture.snapshot.facts)):
            if one.wrong or one.name.startswith("node"):
                print(directory.name, one.verdict, one.name, one.wrong, one.reason, sep="\t")


if __name__ == "__main__":
    main()
