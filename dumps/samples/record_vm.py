"""Record the bundled VM captures again: dumps/samples/record_vm.py [vm-numa-visible] [vm-numa-oblivious]

An emulated host of 4 NUMA nodes (tests/lab) runs a KVM guest of 4 vCPUs, vCPU i on node i. In the guest runs
lookup.c under the tracer for QEMU's user mode, worker i on vCPU i: each fills a quarter of the store, then
all look up every key twice, which is what the trace holds. While it idles, the guest's page tables are
dumped inside, the nested table outside, and both are then joined.

vm-numa-visible    the guest has the host's 4 nodes, the memory of each is bound to the host's
vm-numa-oblivious  the guest has one node; its memory and the nested table are interleaved over the host's,
                   as `numactl --interleave` would start the VM

The captures stand for a program of SCALE times its memory; README.md says why. Before it, a process on every
vCPU wrote a file to memory of all nodes and deleted it: memory that has been used before. Guest and host use
4 KiB pages alone. About 80 s each, up to four tries of 170 s, in 1.2 GB; needs what tests/lab needs, a C
compiler, qemu-user and the native tools (make native).
"""

import gzip
import json
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "analyzer"), str(ROOT / "tests")]

from lab import images  # noqa: E402
from lab.machine import Guest  # noqa: E402
from lab.nested import HOST, TRIES  # noqa: E402
from lab.runs import a_place, boot  # noqa: E402
from lab.touched import interleave  # noqa: E402
from ptanalyze.capture.live.record import TRACE, facts_of_trace  # noqa: E402
from ptanalyze.capture.vm.join import join  # noqa: E402
from ptanalyze.formats.record import seal  # noqa: E402
from ptanalyze.formats.snapshot import FILE as SNAPSHOT  # noqa: E402
from ptanalyze.formats.trace import read_trace  # noqa: E402

LIMIT = 170  # seconds that one boot may take
GUESTS = {
    "vm-numa-visible": Guest(mib=768, bound=True),
    "vm-numa-oblivious": Guest(mib=768, nodes=1, policy=interleave(0, 1, 2, 3)),
}
SCALE = 16  # Snapshot.scale of the captures
AGED = 512  # size of the file on each vCPU, in 64 KiB
PROGRAM = "/usr/bin/lookup"
TRACER, PLUGIN = "/usr/bin/qemu-x86_64", "/opt/ptanalyze/libpt_qemu.so"


def traced():
    """A line of shell that becomes the program under the tracer."""
    options = {"out": "/tmp/trace.ptt", "command": "lookup", "instructions": "on", "roi_marker": "on"}
    plugin = ",".join([PLUGIN, *(f"{key}={value}" for key, value in options.items())])
    return shlex.join(["exec", TRACER, "-plugin", plugin, PROGRAM])


def run(name, guest, place):
    """The shared directory of a host that ran `guest`: host.dump, guest/dump, guest/trace.ptt."""
    kernel = images.kernel()
    qemu, ptdump = shutil.which("qemu-system-x86_64"), ROOT / "dumps/build/ptdump"
    image = images.initramfs(kernel, ["kvm_amd"], [qemu], [ptdump], images.bios_files())
    files = host_files(guest, kernel, ptdump, place.parent) | guest_files(ptdump)
    done = boot(name, HOST, kernel, image, files, place, limit=LIMIT, tries=TRIES)
    for side in ("guest/ptdump", "ptdump_vm"):
        if (done.share / f"{side}.status").read_text() != "0\n":
            raise SystemExit(f"{name}: {(done.share / f'{side}.output').read_text()}")
    print(f"{name}: finished in {done.seconds:.0f} s, try {done.tries}\n{done.log}")
    return done.share


def host_files(guest, kernel, ptdump, build):
    """What the host's script uses: the VMM's command line and image, tools; made in the directory `build`."""
    placed, lookup, packed = build / "placed", build / "lookup", build / "guest.cpio.gz"
    subprocess.run(["gcc", "-O2", "-static", images.LAB / "programs/placed.c", "-o", placed], check=True)
    source = ["-DIN_GUEST", f"-I{ROOT / 'pintool'}", HERE / "lookup.c"]
    subprocess.run(["gcc", "-O2", "-Wall", "-pthread", *source, "-o", lookup], check=True)
    inside = {PROGRAM: lookup, TRACER: shutil.which("qemu-x86_64")}
    plugin = (PLUGIN, ROOT / "pintool/build/libpt_qemu.so")
    image = images.initramfs(kernel, libraries_of=[ptdump, *inside.values()], data=[*inside.items(), plugin])
    packed.write_bytes(gzip.compress(image.read_bytes(), 6))
    return {
        "script": HERE / "vm_host.sh",
        "ptdump": ptdump,
        "placed": placed,
        "vmlinux": kernel.elf,
        "guest.cpio": packed,
        "vmm": guest.command(),
    }


def guest_files(ptdump):
    """What the guest's script uses: the program's command line, how much memory to use before it."""
    files = {"script": HERE / "vm_guest.sh", "ptdump": ptdump, "traced": traced(), "aged": str(AGED)}
    return {f"guest/{file}": content for file, content in files.items()}


def guest_capture(share):
    """The guest's own capture, sealed as `ptanalyze record` seals its own, with its scale."""
    directory = share / "guest/dump"
    record = json.loads((directory / SNAPSHOT).read_text())
    record["facts"]["scale"] = SCALE
    (directory / SNAPSHOT).write_text(json.dumps(record, indent=1))
    shutil.copyfile(share / "guest" / TRACE, directory / TRACE)
    trace = read_trace(directory / TRACE)
    facts_of_trace(directory, trace)
    facts = {"command": ["lookup"], "tracer": "qemu", "page_tables": "idle", "trace": trace.facts}
    seal(directory, "process", facts)
    return directory


def record(name):
    with a_place(name) as place:
        place.parent.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        share = run(name, GUESTS[name], place)
        host, guest = share / "host.dump", guest_capture(share)
        seal(host, "vm-host", {})
        shutil.rmtree(HERE / name, ignore_errors=True)
        print(join(host, guest, HERE / name))
        print(f"{HERE / name}: {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    for each in sys.argv[1:] or GUESTS:
        record(each)
