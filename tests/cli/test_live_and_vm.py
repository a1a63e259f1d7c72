"""Answers about live processes without a trace, and about the bundled VMs."""

import os
import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import click
import pytest

from captures import one_node_capture
from command_line import result_of
from native.dumping import wait_for
from ptanalyze.cli.options import pid
from ptanalyze.core.errors import bundled

# Answers about live processes: what pages count by, which machine they are about, no run time anywhere.

TINY = "0.00001"  # share of the LLC: one set, fewer lines than either capture has
FROM_DRAM = "if every leaf entry is read from DRAM"


@pytest.fixture(scope="module")
def hot(tmp_path_factory):
    return one_node_capture(tmp_path_factory.mktemp("hot") / "hot")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return one_node_capture(tmp_path_factory.mktemp("plain") / "plain", heat=False)


def one_line(text):
    return " ".join(text.split())


def test_walks_are_those_that_were_estimated_times_the_nodes_that_do_them(once, hot):
    walks = int(hot.snapshot.heat.walks.sum())
    assert f"{walks:,} walks from each of 4 nodes" in once("whatif", hot.directory).out


def test_where_there_is_no_run_time_the_table_has_walk_cycles_and_nothing_to_narrow(once, hot):
    said = once("whatif", hot.directory, "-p", "mitosis,interleave", "--cache-share", TINY).out
    assert "speed-up" not in said and "break-even" not in said and "calibrate" not in said
    less = said.partition("mitosis: at most ")[2].partition(" % fewer walk cycles")[0]
    row = next(line for line in said.splitlines() if line.startswith(" mitosis"))
    assert f"at most -{less} %" in row and float(less) > 10


@pytest.mark.parametrize("command", [("whatif", "-p", "mitosis"), ("advise",)])
def test_where_the_caches_hold_all_leaf_entries_nothing_is_advised(once, hot, plain, command):
    name, *options = command
    for capture, kib in ((hot, 2), (plain, 4)):
        said = one_line(once(name, capture.directory, *options).out)
        assert f"their leaf entries ({kib} KiB) fit the caches" in said and "Try:" not in said
        assert re.search(r" mitosis +about 0 % ", said)


def test_samples_are_never_to_be_recorded_as_a_trace_is(once, hot):
    assert "--strip" not in once("advise", hot.directory, "--stands-for", "64x").out


def test_larger_pages_may_gain_where_the_caches_hold_all_leaf_entries(once, plain):
    said = one_line(once("whatif", plain.directory, "-p", "mitosis,thp:min_pages=1").out)
    assert " mitosis about 0 % " in said and "at most -99.8 %" in said
    assert f"at most 99.8 % fewer walk cycles than linux {FROM_DRAM}" in said


# The bundled VM captures: lookups in a guest that sees the host's four nodes, and in one that does not.

VISIBLE, OBLIVIOUS = "vm-numa-visible", "vm-numa-oblivious"
CLASSES = ("Local-Local", "Local-Remote", "Remote-Local", "Remote-Remote")
SOCKETS = range(4)


@pytest.fixture(scope="module")
def vms(tmp_path_factory):
    """{name: copy of the capture}, so that their caches are the tests' own."""
    place = tmp_path_factory.mktemp("vms")
    return {name: shutil.copytree(bundled("samples") / name, place / name) for name in (VISIBLE, OBLIVIOUS)}


@pytest.fixture(params=[VISIBLE, OBLIVIOUS])
def vm(vms, request):
    return vms[request.param]


def shares(table):
    """{class: [share seen from each socket]} of one of classify's tables."""
    found = {(row["class"], row["socket"]): row["share"] for row in table["rows"]}
    return {name: [found[name, socket] for socket in SOCKETS] for name in CLASSES}


def test_no_path_of_the_recording_machine_is_in_them(vm):
    for file in vm.iterdir():
        if file.is_file() and file.suffix != ".entries":
            content = file.read_bytes()
            ours = (b"/work", b"/root", b"/dev/shm/", b"/home")
            assert not [word for word in ours if word in content], file


def test_an_oblivious_guest_has_almost_no_local_local(once, vms):
    """vMitosis, section 2.2: with N sockets and no knowledge of them, about 1 page in N^2 for each socket.

    Some 200 guest tables and 270 nested ones are few: the shares are a percent or two off 1/16.
    """
    seen = {name: shares(result_of(once("classify", vm, "--json"))[0]) for name, vm in vms.items()}
    assert seen[OBLIVIOUS]["Local-Local"] == pytest.approx([1 / 16] * 4, abs=0.03)
    assert min(seen[OBLIVIOUS]["Remote-Remote"]) > 0.45
    assert sum(seen[VISIBLE]["Local-Local"]) > 1.8 * sum(seen[OBLIVIOUS]["Local-Local"])


def test_an_oblivious_guest_gains_as_much_by_groups_of_vcpus(once, vms):
    asked = ("-p", "vmitosis-replicate", "--set", "mode=no-f")
    groups = result_of(once("whatif", vms[OBLIVIOUS], "--json", *asked))[-1]
    nodes = result_of(once("whatif", vms[VISIBLE], "--json", "-p", "vmitosis-replicate"))[-1]
    assert groups["remote_reads"] == 0
    assert groups["speedup"] == pytest.approx(nodes["speedup"], abs=0.02)


# Processes by number or name.


@pytest.mark.parametrize("name", ["pt one", "a-name-longer-than-the-15-bytes-of-the-kernel"])
def test_a_name_that_one_process_has_is_its_pid_and_of_several_all_are_listed(tmp_path, name):
    program = shutil.copy("/bin/sleep", tmp_path / name)
    with ExitStack() as stack, pytest.raises(click.BadParameter) as refused:
        several = []
        for _ in range(2):
            several.append(stack.enter_context(subprocess.Popen([program, "60"])))
            stack.callback(several[-1].kill)
            proc = Path(f"/proc/{several[-1].pid}/cmdline")
            assert wait_for(lambda proc=proc: str(program).encode() in proc.read_bytes())
            if len(several) == 1:
                assert pid(name) == several[0].pid
        pid(name)
    assert all(f"{one.pid} ({name[:15]}, " in str(refused.value) for one in several)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is the program running?"),
        (" ", "is the program running?"),
        ("0", "called 0:"),
        ("-1", "called -1:"),
        ("no such program", "called no such program:"),
        ("1 {own}", r"2 processes; give one PID of 1 \(.*\), {own} \("),
        (f"{10**18 - 1} 1", "ended"),
    ],
)
def test_what_is_no_process_is_said(text, why):
    own = str(os.getpid())  # not in the test's name, which each process of the suite must agree on
    with pytest.raises(click.BadParameter, match=why.replace("{own}", own)):
        pid(text.replace("{own}", own))
    assert pid(f" {os.getpid()}\n") == os.getpid()
