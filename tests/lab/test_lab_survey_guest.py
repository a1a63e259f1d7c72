"""Processes of a running Linux found from outside, beside those that it lists itself."""

import numpy as np
import pytest

from ptanalyze.capture.live.guests import GuestMemory, address_spaces, dump_guest_tables
from ptanalyze.capture.live.process import open_process
from ptanalyze.capture.live.qmp import Qmp, registers, slots_of
from ptanalyze.capture.live.survey_guest import Host, by_cr3, by_kernel
from ptanalyze.formats.capture import open_capture

from . import images, outside
from .checks import ACCESSED, DIRTY, snapshot_of
from .machine import Machine
from .runs import running
from .touched import Region, arguments, bind

BASE, LIMIT = 1 << 40, 900
REGIONS = [Region("4k", bind(0), bind(0), mib=48), Region("thp", bind(0), bind(0), mib=16)]
HERE = Host(lambda frames: np.zeros(len(frames), np.int16), {0: 1.0})


@pytest.mark.lab(full=True)
@pytest.mark.parametrize(("cpu", "options"), [("max,la57=off", "pti=on"), ("max,la57=on", "")])
def test_processes_are_those_that_the_guest_lists(kernel, ptdump, programs, place, cpu, options):
    machine = Machine(nodes=1, node_mib=768, cpu=cpu, options=f"numa_balancing=disable {options}")
    files = {
        "script": images.LAB / "scripts/native.sh",
        "stay": "it is surveyed while it runs",
        "ptdump": ptdump,
        "ptsurvey": ptdump.with_name("ptsurvey"),
        "toucher": programs / "toucher",
        "toucher.arguments": arguments(BASE, REGIONS, 0),
        "ptdump.arguments": "--verify",
    }
    image, socket = images.initramfs(kernel, libraries_of=[ptdump]), place.parent / "qmp"
    more = ["-qmp", f"unix:{socket},server=on,wait=off"]
    with running(machine, kernel, image, files, place, limit=LIMIT, more=more) as (process, share):
        with Qmp(socket) as qmp:
            sample, slots = registers(qmp), slots_of(qmp)
        with open_process(process.pid) as vmm, GuestMemory(vmm, slots) as memory:
            found, whole = by_kernel(memory.read, address_spaces(memory.read, sample)[0], HERE)
            seen = by_cr3(memory.read, [sample], HERE)
        assert whole
        one = outside.toucher(found, (share / "touched").read_text())
        (made,), _ = dump_guest_tables(process.pid, socket, place, roots=[one.cr3])
    inside = snapshot_of(share / "dump").guest
    assert outside.found(found) == outside.listed((share / "processes").read_text())
    assert {one.cr3 for one in seen} <= {one.cr3 for one in found}
    outside.is_the_dumped_one(one, inside)
    assert one.huge_bytes >= 16 << 20 and one.mapped_bytes >= 64 << 20
    tree = open_capture(made).snapshot.guest
    assert (tree.frame == inside.frame).all() and (tree.base == inside.base).all()
    assert not ((tree.entries ^ inside.entries) & ~(ACCESSED | DIRTY)).any()
