"""What a survey and a machine file say of this host."""

import json
import os
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ptanalyze
from ptanalyze.analysis.verdict import DATA, Part, Workload, _of_part
from ptanalyze.capture.live import process as live
from ptanalyze.cli import run
from ptanalyze.core.errors import CaptureError, InputError, UsageError
from ptanalyze.core.interval import Interval
from ptanalyze.core.machine import load_machine
from ptanalyze.core.snapshot import Node, Topology
from ptanalyze.core.trace import Event
from ptanalyze.formats.measured import write_machine
from ptanalyze.policies import availability
from ptanalyze.world.scenario import ScenarioOptions, as_numbered, captured_scenario
from ptanalyze_host import machine_file, survey
from ptanalyze_host.machine_file import captured_host, host_machine, nearest
from ptanalyze_host.node_latency import NodeLatency
from ptanalyze_host.survey_command import LEAST, prometheus_text, view
from strategies import build_snapshot, build_trace, small_machine

NODES = st.dictionaries(st.integers(0, 3), st.integers(1, 1000), min_size=1, max_size=4)


def surveyed(**fields):
    known = {
        "pid": 7, "name": "db", "kind": "process", "cgroup": "/a", "table_bytes": 8192, "rss_bytes": 1 << 20,
        "leaf": {0: 3, 1: 1}, "upper": {0: 2}, "huge_bytes": 0, "runs": {0: 0.5, 1: 0.5},
    }  # fmt: skip
    return survey.Surveyed(**(known | fields))


@given(NODES, NODES)
def test_the_share_is_that_of_one_walk_per_leaf_table_and_tick(leaf, ticks):
    total = sum(ticks.values())
    walks = [(node, table) for node, n in ticks.items() for table, m in leaf.items() for _ in (n * m,)]
    far = sum(ticks[node] * leaf[table] for node, table in walks if node != table)
    found = survey.remote(leaf, {node: n / total for node, n in ticks.items()})
    assert found == pytest.approx(far / (total * sum(leaf.values())), abs=1e-9)


def test_a_vm_is_called_what_qemu_was_told():
    named = (b"guest=web,debug-threads=on\0-m\x001G\0", b"db1\0", b"debug-threads=on,guest=a\0", b"")
    commands = [*(b"qemu-system-x86_64\0-name\0" + words for words in named), b"qemu\0-m\x001G\0", b""]
    assert [*map(survey.vm_name, commands)] == ["web", "db1", "a", "", "", ""]


def test_names_cannot_break_out_of_prometheus_labels():
    text = prometheus_text([surveyed(name='a"} 1\nx\\\udc80\x1b]0;t\x07\u202e')], 2, 0.0, least=0)
    assert r'name="a\"} 1\\nx\\\\x80\\x1b]0;t\\x07\\u202e"' in text and text.replace("\n", "").isprintable()
    assert "ptanalyze_leaf_tables{name=" in text and 'node="1"} 1' in text


def test_the_file_says_when_it_was_made_of_how_many_processes_on_how_many_nodes():
    lines = prometheus_text([surveyed(runs={1: 1.0})] * 3, 2, 1_700_000_000.7, least=0).splitlines()
    assert {
        "ptanalyze_numa_nodes 2", "ptanalyze_survey_processes 3",
        "ptanalyze_survey_timestamp_seconds 1700000000",
    } <= set(lines)  # fmt: skip
    upper = [line for line in lines if line.startswith("ptanalyze_upper_remote_share{")]
    assert len(upper) == 1 and upper[0].endswith("} 1")
    rss = [line for line in lines if line.startswith("ptanalyze_rss_bytes{")]
    assert rss == [f'ptanalyze_rss_bytes{{name="db",kind="process",cgroup="/a"}} {3 << 20}']
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))


def series_of(*words):
    found = re.findall(r"^ptanalyze_(\w+)\{(.*)\} ", prometheus_text(*words), re.M)
    return {metric: [of for name, of in found if name == metric] for metric, _ in found}


def test_a_file_has_series_of_what_is_large_and_of_no_more_than_its_top():
    large = [surveyed(name=f"s{n}", rss_bytes=LEAST) for n in range(105)]
    short = [surveyed(name=f"sh{n}", cgroup=f"/run-{n}", rss_bytes=LEAST - 1) for n in range(9)]
    many = [surveyed(name="worker", rss_bytes=LEAST // 4)] * 4
    asked = (large,), (short + large + many, 1000), (large, 3)
    rss = [len(series_of(found, 1, 0.0, *top)["rss_bytes"]) for found, *top in asked]
    assert rss == [100, 106, 3] and not series_of(short, 1, 0.0)


def test_cgroups_have_the_same_metrics_with_that_label_alone_and_one_node_has_no_remote_shares():
    found = [surveyed(name=name, rss_bytes=LEAST) for name in "ab"] + [surveyed(cgroup="/b")]
    by_name, by_cgroup, one = (series_of(found, *how) for how in ((2, 0), (2, 0, 9, True), (1, 0)))
    host = {metric: by_cgroup.pop(metric) for metric in list(by_cgroup.keys() - by_name.keys())}
    assert len(host) == 3 and {*map(tuple, host.values())} == {('by="cgroup"',)}, "a file beside another"
    assert by_cgroup.keys() == by_name.keys() == one.keys() | {"leaf_remote_share", "upper_remote_share"}
    assert by_cgroup["rss_bytes"] == ['cgroup="/a"'] and len(by_name["rss_bytes"]) == 2


@pytest.mark.parametrize("forms", [(), ("--by", "cgroup"), ("--json",)], ids=" ".join)
def test_a_survey_for_prometheus_says_nothing_to_cron_unless_asked_to(monkeypatch, tmp_path, capsys, forms):
    monkeypatch.setattr(survey, "survey", lambda **_: [surveyed(rss_bytes=LEAST)])
    path = tmp_path / "pt.prom"
    assert run(["survey", "--prometheus", str(path), *forms]) == 0
    assert bool(capsys.readouterr().out) is ("--json" in forms)
    assert ('name="db"' in path.read_text()) is ("cgroup" not in forms)


@given(st.lists(st.tuples(NODES, st.integers(0, 3), st.sampled_from("ab")), min_size=1, max_size=6))
def test_sums_of_groups_are_those_of_their_processes(processes):
    found = [surveyed(leaf=leaf, runs={at: 1.0}, cgroup=name, cpus=0.5) for leaf, at, name in processes]
    groups = survey.grouped(found, lambda one: one.cgroup)
    assert sorted(one.cgroup for one in groups) == sorted({name for *_, name in processes})
    far = [round(sum(one.leaf.values()) * one.remote_share, 6) for one in groups]
    assert far == sorted(far, reverse=True)
    for group in groups:
        own = [one for one in found if one.cgroup == group.cgroup]
        assert (len(group.pids), group.cpus) == (len(own), len(own) / 2)
        assert group.table_bytes == sum(one.table_bytes for one in own)
        tables = sum(group.leaf.values())
        assert tables == sum(sum(one.leaf.values()) for one in own)
        assert 4096 * tables * group.remote_share == pytest.approx(sum(one.remote_bytes for one in own))


def test_a_share_that_no_process_of_a_group_has_is_not_known():
    (group,) = survey.grouped([surveyed(runs={}), surveyed(leaf={})], lambda one: one.name)
    assert group.remote_share is None and group.upper_remote_share == 0.5


def test_a_survey_is_of_those_that_were_asked_for_by_name_or_number(monkeypatch, capsys):
    found = [surveyed(name="vm-of-qemu"), surveyed(pid=8, cgroup="/b"), surveyed(pid=9, cgroup="/b")]
    monkeypatch.setattr(survey, "survey", lambda **_: found)

    def asked(*words):
        assert run(["survey", "--json", *words]) == 0
        return json.loads(capsys.readouterr().out)["result"]

    assert [[one["pid"] for one in asked(*words)] for words in (("8",), ("vm-of-qemu", "9"), ("db",))] == [
        [8], [7, 9], [8, 9],
    ]  # fmt: skip
    assert [(one["cgroup"], one["processes"]) for one in asked("--by", "cgroup")] == [("/b", 2), ("/a", 1)]
    assert run(["survey", "nobody", "8", "77"]) == 0
    nobody, gone = capsys.readouterr().err.splitlines()
    assert "nobody" in nobody and "77" in gone
    assert run(["survey", "nobody"]) == 2


def test_what_the_tool_of_a_survey_says_is_said_in_our_name_but_to_cron(monkeypatch, tmp_path, capsys):
    (tool := tmp_path / "tool").write_text("#!/bin/sh\necho 'ptdump: no CAP_BPF; run as root' >&2\nexit 2\n")
    tool.chmod(0o700)
    monkeypatch.setattr(ptanalyze.live, "native", lambda name: tool)
    assert run(["survey"]) == 2
    assert capsys.readouterr().err == "ptanalyze: survey: no CAP_BPF; run as root\n"
    tool.write_text("#!/bin/sh\necho ptsurvey: left out PID 1 >&2\n")
    for words, said in (((), "ptanalyze: left out PID 1\n"), (("--prometheus", f"{tool}.prom"), "")):
        assert run(["survey", *words]) == 0 and capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("name", "told"),
    [("pt.txt", "FILE.prom"), ("nowhere/pt.prom", "directory"), ("p.prom", "pipe"), ("null.prom", "device")],
)
def test_a_file_that_node_exporter_would_not_read_is_refused_at_once(tmp_path, capsys, name, told):
    os.mkfifo(tmp_path / "p.prom")
    (tmp_path / "null.prom").symlink_to("/dev/null")
    assert run(["survey", "--prometheus", str(tmp_path / name)]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("0::/system.slice/nginx.service\n", "/system.slice/nginx.service"),
        ("4:memory:/docker/ab\n3:cpu,cpuacct:/\n0::/\n", "/docker/ab"),
        ("4:memory:/docker/ab\n0::/x\n", "/x"),
        ("5:name=systemd:/\n0::/\n", "/"),
        ("3:hugetlb,memory:/a:b\n", "/a:b"),
        ("2:cpu:/a\n", ""),
        ("", ""),
    ],
)
def test_a_cgroup_is_that_of_version_2_or_where_it_is_the_root_of_memory(text, path):
    assert survey.cgroup_of(text) == path


def said_of(found, nodes=2):
    """Lines of the first screen, as text."""
    return [str(line) for section in view(found, 20, nodes) for line in section.lines]


@pytest.mark.parametrize(("syscalls", "figure"), [(0, True), (499, True), (501, False)])
def test_a_trial_is_named_with_a_figure_of_the_users_where_nothing_else_counts_the_work(
    tmp_path, monkeypatch, syscalls, figure
):
    """Lines of `trial --pages` of a process that runs, and of ones that have ended."""
    monkeypatch.setattr(live, "EVENTS", tmp_path)
    work = iter([(10, 1.0), (10 + syscalls, 2.0)])
    monkeypatch.setattr(live, "_work", lambda pid: next(work))
    assert (" --figure-of " in live.page_trial(9)) is figure
    assert live.page_trial(None).endswith("-p PID --figure-of CMD")
    assert live.page_trial(None, "hashd", "./hashd 4").endswith("-- ./hashd 4")
    assert live.page_trial(None, "hashd", "").endswith("-- ./app")
    (tmp_path / "cpu").mkdir()
    assert live.page_trial(9).endswith(" -p 9")
    assert live.page_trial(None, "hashd", "./hashd").endswith(" -p hashd")


def test_a_survey_names_the_trial_of_the_first_whose_page_size_can_matter(tmp_path, monkeypatch):
    many, big = {0: survey.FEW}, 1 << 30
    huge, vm, idle, shared, mine = (
        surveyed(**{"pid": pid, "leaf": many, "rss_bytes": big, "cpus": 1.0} | more)
        for pid, more in enumerate(({"huge_bytes": big}, {"kind": "vm"}, {"cpus": 0.01}, {}, {}), 5)
    )
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release="6.18.1"))
    monkeypatch.setattr(live, "shown", lambda pid: tmp_path / str(pid))
    for pid, own in ((8, 3204), (9, 120064)):  # KiB: of 8 most is PostgreSQL's shared buffers
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "status").write_text(f"VmRSS:\t240064 kB\nRssAnon:\t{own} kB\n")
    assert not live.keeps_page_size(8)
    found = [huge, vm, idle, surveyed(cpus=1.0), shared, mine]
    found = [replace(one, runs={0: 1.0}, leaf={0: one.leaf[0]}) for one in found]
    for nodes in (1, 2):
        steps = said_of(found, nodes)
        assert ["-p 9" in line for line in steps if "--pages" in line] == [True]
        assert {*re.findall(r" -p (\d+)", " ".join(steps))} == {"9"}
    assert not any(" -p " in line for line in said_of(found[:5], 1))


def test_the_first_few_of_a_survey_are_all_that_is_given_away(monkeypatch, capsys):
    monkeypatch.setattr(survey, "survey", lambda **_: [surveyed(), surveyed(pid=8)])
    assert run(["survey", "--json", "--top", "1"]) == run(["survey", "--csv", "--top", "1"]) == 0
    only, rows = capsys.readouterr().out.split("\npid,")
    assert [one["pid"] for one in json.loads(only)["result"]] == [7] and rows.count("db") == 1


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"may_use": frozenset({0})}, "its cpuset moved it from node 1 to 0, its tables stayed"),
        ({"may_use": frozenset({0, 1})}, "its threads run on node 0, its tables are on node 1"),
        ({}, "its threads run on node 0, its tables are on node 1"),
        ({"leaf": {1: 20}}, ""),  # few
        ({"leaf": {0: 500, 1: 500}}, ""),  # half of them are near
        ({"runs": {0: 0.5, 1: 0.5}}, ""),  # on both nodes
        ({"leaf": {}}, ""), ({"runs": {}}, ""),
    ],
)  # fmt: skip
def test_who_left_its_tables_behind_is_named_with_the_reason_and_the_line_to_type(fields, why):
    one = surveyed(**({"leaf": {1: 1000}, "runs": {0: 1.0}} | fields))
    assert one.left_behind == why
    said = "\n".join(said_of([one]))
    assert (" relocate 7 --dry-run" in said) is bool(why) and why in said


# A machine file of a host: what its kernel shows, measured latencies, sources that say which is which.

MILAN = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7543\n\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def host_tree(root, cpus, apart, memory=None, l3="", cpuinfo=MILAN, khz=2_800_000):
    """A copy of /sys/devices/system, which is returned, and of /proc/cpuinfo below `root`.

    cpus  {node: list of its CPUs}; apart: row by row; memory: nodes with some; l3: CPUs that share 32 MiB
    """
    system, first = root / "sys/devices/system", re.search(r"\d+", " ".join(cpus.values()))[0]
    for (node, own), row in zip(cpus.items(), apart.split(" / "), strict=True):
        write(system / f"node/node{node}/cpulist", own)
        write(system / f"node/node{node}/distance", row)
    if memory is not None:
        write(system / "node/has_memory", memory)
    of = (1, "Data", "32K"), (1, "Instruction", "32K"), (2, "Unified", "512K"), (3, "Unified", "32M")
    names = "level", "type", "size", "ways_of_associativity", "shared_cpu_list"
    for index, values in enumerate(of):
        for name, value in zip(names, (*values, 8 << index // 3, l3 or first), strict=True):
            write(system / f"cpu/cpu{first}/cache/index{index}/{name}", value)
    if khz:
        write(system / f"cpu/cpu{first}/cpufreq/base_frequency", khz)
    write(root / "proc/cpuinfo", cpuinfo)
    return system


def machine_at(root):
    return host_machine("mine", system=root / "sys/devices/system", cpuinfo=root / "proc/cpuinfo")


@pytest.fixture
def system(tmp_path):
    """Two nodes with CPUs and, as CXL memory is, one without."""
    return host_tree(tmp_path, {0: "0-31", 1: "32-63", 2: ""}, "10 32 50 / 32 10 50 / 50 50 10", l3="0-7")


def dumped(cpu="AMD EPYC 7543", cpus=(0, 1), distance=(10,), mib=256, number=0):
    frames = np.array([[0, 1 << 15], [1 << 20, (1 << 20) + (mib << 8) - (1 << 15)]])
    topology = Topology((Node(number, cpus, frames, distance),))
    return SimpleNamespace(topology=topology, facts={"cpu": cpu} if cpu else {})


@pytest.fixture
def taken_here(tmp_path):
    """Machine of a host with two CPUs and two memory blocks of 128 MiB, for a capture's dumps, or None."""
    system = host_tree(tmp_path, {0: "0-1"}, "10")
    write(system / "memory/block_size_bytes", "8000000")
    for block in (0, 8):
        (system / f"node/node0/memory{block}").mkdir()

    def ask(snapshot=None, vm=None):
        capture = SimpleNamespace(has_snapshot=snapshot is not None, has_vm=vm is not None)
        capture.snapshot, capture.vm = snapshot, vm
        return captured_host(capture, system, tmp_path / "proc/cpuinfo")

    return ask


def test_a_capture_of_this_host_has_its_machine_with_the_timings_of_the_nearest(taken_here):
    machine, like = taken_here(dumped()), load_machine("epyc-milan")
    assert (machine.name, machine.nodes, machine.cpus_per_node) == ("this host", 1, 2)
    assert machine.latency.idle == ((like.latency.idle[0][0],),) and machine.tlb == like.tlb
    assert "epyc-milan" in machine.description and "VM" not in machine.description
    assert taken_here(dumped(cpu="a guest's"), vm=dumped()) == machine
    assert taken_here(dumped(), vm=dumped(cpu="its host's")) is None is taken_here()


@pytest.mark.parametrize(
    "other",
    [{"cpu": "AMD EPYC"}, {"cpu": ""}, {"cpus": (0,)}, {"distance": (10, 20)}, {"mib": 512}, {"number": 1}],
    ids=" ".join,
)
def test_a_capture_of_another_host_is_told_by_cpu_nodes_and_memory(taken_here, other):
    assert taken_here(dumped(**other)) is None


PAIRS = np.array([[240.0, 150.0], [200.0, 125.0]] * 20)  # small pages add 60 % to reads of 125 ns
BUSY = np.array([[110.0, 100.0], [160.0, 100.0], [220.0, 100.0]] * 10)


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """This host is a VM that can be measured; lists what was measured, by `measured.pairs`."""
    write(tmp_path / "proc/cpuinfo", f"{MILAN.rstrip()}\nflags : fpu hypervisor sse\n\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PTANALYZE_MEASURE")
    kept = tmp_path / "cache/ptanalyze/page-walks.json"
    seen = SimpleNamespace(times=0, pairs=PAIRS, spare=1 << 40, kept=kept)

    def measure(turns):
        seen.times += 1
        if isinstance(seen.pairs, BaseException):
            raise seen.pairs
        return seen.pairs

    monkeypatch.setattr(machine_file, "measure_pages", measure)
    monkeypatch.setattr(machine_file, "measure_cached", lambda machine: 40.0)
    monkeypatch.setattr(machine_file, "spare", lambda pid: seen.spare)
    monkeypatch.setattr(ptanalyze.live, "native", lambda name: name)
    return seen


def test_page_walks_of_a_vm_are_measured_by_boot_and_in_time(taken_here, measured, monkeypatch, tmp_path):
    unmeasured = load_machine("epyc-milan")
    machine = taken_here(dumped())
    assert machine.latency.idle == ((125.0,),) and "60 %" in machine.description
    assert machine.walk_caches.cycles > unmeasured.walk_caches.cycles + 0.5 * 75 * machine.ghz
    assert machine.llc_data == pytest.approx(40 * machine.ghz, abs=0.1)
    assert measured.kept.stat().st_mode & 0o777 == 0o600
    assert taken_here(dumped()) == machine and measured.times == 1
    assert taken_here(dumped(cpu="another")) is None and measured.times == 1
    write(tmp_path / "boot", "another")
    monkeypatch.setattr(machine_file, "BOOT", tmp_path / "boot")
    assert taken_here(dumped()) == machine and measured.times == 2
    os.utime(measured.kept, (0, 0))
    measured.pairs = PAIRS * [1.5, 1]  # other guests came: small pages add 140 %
    machine = taken_here(dumped())
    assert "100 % (60-140)" in machine.description and measured.times == 3
    assert taken_here(dumped()) == machine and measured.times == 3


@pytest.mark.parametrize("odd", ["", "{", "[]", '"vm"', "null", "NaN", "a link", "a directory", "long"])
def test_what_is_kept_of_a_vm_is_measured_again_if_it_is_odd(taken_here, measured, odd):
    machine, text = taken_here(dumped()), measured.kept.read_text()
    measured.kept.unlink()
    if odd == "a directory":
        measured.kept.mkdir()
    elif odd == "a link":
        write(measured.kept.parent / "other", text)
        measured.kept.symlink_to("other")
    else:
        own = {'"vm"': text.replace("125.0", "-1"), "null": text.replace("125.0", "null"), "NaN": "1e999"}
        long = text.rstrip("}") + " " * (2 << 20) + "}"
        measured.kept.write_text(long if odd == "long" else own.get(odd, odd))
    assert taken_here(dumped()) == machine and measured.times == 2


@pytest.mark.parametrize(
    "why",
    [UsageError("ptchase: not found"), np.empty((0, 2)), "memory", "asked not to"],
    ids=lambda why: why if isinstance(why, str) else type(why).__name__,
)
def test_a_vm_that_cannot_be_measured_is_said_to_walk_for_longer(taken_here, measured, monkeypatch, why):
    if not isinstance(why, str):
        measured.pairs = why
    elif why == "memory":
        measured.spare = 1 << 30
    else:
        monkeypatch.setenv("PTANALYZE_MEASURE", "no")
    machine = taken_here(dumped())
    assert "not measured" in machine.description and "this is a VM" in machine.description
    idle = load_machine("epyc-milan").resized(1).latency.idle
    assert machine.latency.idle == idle and not measured.kept.exists()


def test_ctrl_c_ends_the_command_that_measures_a_vm(taken_here, measured):
    measured.pairs = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        taken_here(dumped())
    assert not measured.kept.exists()


def test_an_unsteady_measurement_of_a_vm_gives_way_to_the_next(taken_here, measured):
    machine, found = taken_here(dumped()), []
    for measured.pairs in (BUSY, BUSY, PAIRS):
        os.utime(measured.kept, (0, 0))
        found += ["unsteadily" in taken_here(dumped()).description for _ in range(2)]
    assert found == [True] * 4 + [False] * 2 and measured.times == 4 and taken_here(dumped()) == machine


@pytest.mark.parametrize(("pairs", "code"), [(PAIRS, 0), (BUSY, 3), (np.empty((0, 2)), 0)])
def test_a_file_has_no_page_walks_that_we_doubt(measured, monkeypatch, tmp_path, capsys, pairs, code):
    one = NodeLatency((0,), np.array([[125.0]]), None, "a chase")
    monkeypatch.setattr(machine_file, "measure_nodes", lambda progress: one)
    monkeypatch.setattr(machine_file, "measure_walks", lambda progress: {})
    monkeypatch.setattr(machine_file, "measure_pages", lambda progress: pairs)
    path = tmp_path / "mine.toml"
    assert run(["machines", "--from-host", str(path), "--measure"]) == code
    assert path.exists() is (code == 0) and ("not written" in capsys.readouterr().err) is (code == 3)


def test_hosts_that_are_no_vms_are_not_measured(taken_here, measured, tmp_path):
    write(tmp_path / "proc/cpuinfo", MILAN)
    assert "not measured" in taken_here(dumped()).description and not measured.times


@pytest.mark.parametrize("odd", ["memory/block_size_bytes", "node/node0/distance", "node/node0/cpulist"])
def test_a_host_whose_kernel_says_odd_things_has_no_machine_by_itself(taken_here, tmp_path, odd):
    write(tmp_path / "sys/devices/system" / odd, "zz")
    assert taken_here(dumped()) is None


ALIKE = "10 20 20 20 / 20 10 20 20 / 20 20 10 20 / 20 20 20 10"
NEAR = "10 12 12 12 / 12 10 12 12 / 12 12 10 12 / 12 12 12 10"


def apart(a, b):
    """Distance of two of 8 sockets, four by four."""
    return 10 if a == b else 21 if a // 4 == b // 4 else 31


SOCKETS = " / ".join(" ".join(str(apart(a, b)) for b in range(8)) for a in range(8))
LAYOUTS = {
    "CPUs without memory": (
        ({0: "0-1", 1: "2-3", 2: "4-5", 3: "6-7"}, NEAR, "1-2"),
        {"nodes": 2, "cpus_per_node": 4, "host_nodes": ((1, 0), (2, 3)), "idle": [[1.1, 1.2], [1.2, 1.1]]},
    ),
    "an L3 for two nodes": (
        ({0: "0-1", 1: "2-3"}, "10 11 / 11 10", "0-1", "0-3"), {"mib": 16, "host_nodes": ()}
    ),
    "no node 0": (
        ({4: "0-1", 5: "2-3", 6: "4-5", 7: "6-7"}, ALIKE, "4-7"), {"host_nodes": ((4,), (5,), (6,), (7,))}
    ),
    "gaps": (({0: "0", 8: "1"}, "10 40 / 40 10"), {"host_nodes": ((0,), (8,)), "idle": [[1, 4], [4, 1]]}),
    "an empty node": (
        ({0: "0", 1: "", 2: "1"}, "10 15 21 / 15 10 21 / 21 21 10", "0,2"),
        {"nodes": 2, "host_nodes": ((0,), (2,)), "memory_nodes": (), "idle": [[1, 2.1], [2.1, 1]]},
    ),
    "memory alone": (
        ({0: "0-3", 1: "", 3: ""}, "10 17 28 / 17 10 28 / 28 28 10", "0,3"),
        {"nodes": 2, "host_nodes": ((0,), (3,)), "memory_nodes": (1,), "idle": [[1, 2.8], [2.8, 2.8]]},
    ),
    "CPU 0 offline": (({0: "1-3", 1: "4-7"}, "10 21 / 21 10"), {"ghz": 2.8, "mib": 32, "cpus_per_node": 4}),
    "an L3 for a part of a node": (({0: "0-15"}, "10", None, "0-3"), {"mib": 32, "cpus_per_node": 16}),
    "half of an L3's CPUs offline": (({0: "0", 1: "2-3"}, "10 11 / 11 10", None, "0,2-3"), {"mib": 10}),
    "eight sockets": (
        ({node: f"{2 * node}-{2 * node + 1}" for node in range(8)}, SOCKETS, "0-7"),
        {"nodes": 8, "host_nodes": (), "idle": [[apart(a, b) / 10 for b in range(8)] for a in range(8)]},
    ),
    "CPUs alone, near and far": (  # node 3's CPUs read node 0 at 30, three quarters of all there
        ({0: "0", 1: "1", 3: "2-4"}, "10 21 30 / 21 10 35 / 30 35 10", "0-1"),
        {"host_nodes": ((0, 3), (1,)), "idle": [[2.5, 2.62], [2.62, 1]]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_nodes_as_hosts_have_them(tmp_path, layout):
    described, expected = LAYOUTS[layout]
    host_tree(tmp_path, *described)
    machine = machine_at(tmp_path)
    idle = np.round(np.array(machine.latency.idle) / 118, 2).tolist()
    known = {"idle": idle, "mib": machine.llc.bytes >> 20}
    assert {key: known.get(key, getattr(machine, key, None)) for key in expected} == expected
    write_machine(tmp_path / "mine.toml", machine)
    assert load_machine(tmp_path / "mine.toml") == machine
    alone = [node for _, *more in machine.host_nodes for node in more]
    assert all(f"node {node} with node" in machine.sources["oddities"] for node in alone)


ODD = st.one_of(
    st.sampled_from(["", "-1", "0", "1e3", "0x10", "4-x", "3-1", "0-", ",", "9" * 20, "10 10", "٣"]),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.sampled_from([Path.unlink, "a directory"]),
)  # fmt: skip


@settings(max_examples=30)
@given(st.sampled_from(sorted(LAYOUTS)), st.data())
def test_an_odd_tree_is_a_machine_or_one_line(layout, data):
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        host_tree(root, *LAYOUTS[layout][0])
        files = sorted(path for path in root.rglob("*") if path.is_file())
        for path in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=3, unique=True)):
            odd = data.draw(ODD)
            path.unlink()
            if odd == "a directory":
                path.mkdir()
            elif odd is not Path.unlink:
                path.write_bytes(odd if isinstance(odd, bytes) else odd.encode("utf-8", "surrogatepass"))
        try:
            write_machine(root / "mine.toml", machine_at(root))
            load_machine(root / "mine.toml")
        except (InputError, UsageError) as refused:
            assert "\n" not in str(refused)


def test_lines_to_type_have_the_hosts_numbers():
    numbers = (4, 3), (5,), (7,)
    machine = msgspec.structs.replace(small_machine(3), host_nodes=numbers, memory_nodes=(1,))
    about = Workload(np.array([1, 2, 90]), np.zeros(4), threads=2, on_host=machine.on_host)
    assert _of_part(Part(DATA, Interval.exactly(1.2)), None, (), about).numbers["node"] == 7
    assert "--membind=7 " in availability("bind", {"node": 2}, numbers).line
    assert "--membind=4 " in availability("ept-reset", {"vcpus": "bind"}, numbers).line


NUMBERS = (4, 7, 2, 9)


def test_a_dump_of_the_host_is_read_in_the_machines_numbers():
    snapshot = build_snapshot([(0x200000 * k, k) for k in range(8)], nodes=4)
    ids = np.array([*NUMBERS, -1], np.int16)
    nodes = tuple(replace(node, id=NUMBERS[node.id]) for node in snapshot.topology.nodes)
    guest = replace(snapshot.guest, node=ids[snapshot.guest.node])
    captured = replace(snapshot, guest=guest, topology=Topology(nodes))
    events = [(0, 0, Event.MOVE_PAGES, (0, 4096, 2), 0)]
    machine = msgspec.structs.replace(small_machine(4), host_nodes=tuple((n,) for n in NUMBERS))
    found, trace = as_numbered(captured, build_trace([(0, [0x200000])], events), machine)
    assert (found.guest.node == snapshot.guest.node).all() and trace.events["c"].tolist() == [2]
    for ours, theirs in zip(found.topology.nodes, snapshot.topology.nodes, strict=True):
        assert (ours.id, ours.cpus, ours.frames.tolist()) == (theirs.id, theirs.cpus, theirs.frames.tolist())
    joined = msgspec.structs.replace(small_machine(2), host_nodes=((4, 7), (2, 9)))
    assert [node.id for node in as_numbered(captured, None, joined)[0].topology.nodes] == [0, 1]
    lacks = msgspec.structs.replace(small_machine(3), host_nodes=((4,), (2,), (9,)))
    with pytest.raises(UsageError, match=r"captured node 7: machine .* host with nodes 2, 4, 9: name"):
        captured_scenario(captured, None, ScenarioOptions(machine=lacks))


@pytest.mark.parametrize("given", [((4,), (5, 4)), ((4,),), ((4,), ()), ((4,), (1024,)), ((-1,), (0,))])
def test_numbers_that_no_host_has_are_refused(tmp_path, given):
    write_machine(tmp_path / "m.toml", msgspec.structs.replace(load_machine("epyc-milan"), host_nodes=given))
    with pytest.raises(UsageError, match="host_nodes = "):
        load_machine(tmp_path / "m.toml")


def test_nodes_clock_caches_and_distances_are_the_kernels_and_tlbs_those_of_the_nearest(system, tmp_path):
    machine, local = machine_at(tmp_path), load_machine("epyc-milan").latency.idle[0][0]
    assert (machine.nodes, machine.cpus_per_node, machine.ghz, machine.memory_nodes) == (3, 32, 2.8, (2,))
    assert [(one.bytes >> 10, one.ways) for one in (machine.l2, machine.llc)] == [(512, 8), (32 << 10, 16)]
    assert machine.tlb == load_machine("epyc-milan").tlb
    assert machine.costs == "epyc-7543" and "no kernel shows this" in machine.sources["tlb"]
    assert np.allclose(machine.latency.idle, local * np.array([[1, 3.2, 5], [3.2, 1, 5], [5, 5, 5]]))
    assert machine.latency.contended is None and machine.sources["latency_idle"].startswith("estimate")


def test_measured_latencies_are_taken_and_the_file_loads_again(system, tmp_path):
    measured = NodeLatency((0, 1), np.array([[90.0, 170.0], [172.0, 92.0]]), None, "a chase")
    machine = host_machine("mine", measured, system, tmp_path / "proc/cpuinfo")
    assert machine.latency.idle == ((90.0, 171.0), (171.0, 92.0))
    assert machine.sources["latency_idle"] == "a chase"
    assert "from epyc" in machine.sources["walk_caches"] and "EPYC 7543" in machine.description
    write_machine(tmp_path / "mine.toml", machine)
    assert load_machine(str(tmp_path / "mine.toml")) == machine


def accesses(system, of):
    """Files of HMAT as the kernel shows them: {node: (class, initiators, ns)}."""
    for node, (kind, initiators, ns) in of.items():
        place = system / f"node/node{node}/{kind}/initiators"
        for one in initiators:
            write(place / f"node{one}/online", 1)
        write(place / "read_latency", ns)


def test_hmat_gives_latencies_of_the_nearest_readers_and_distances_those_of_others(system, tmp_path):
    """Files that Linux 6.1 showed, booted by QEMU 7.2 with -numa hmat-lb; the distances are of this test."""
    for kind in ("access0", "access1"):
        accesses(system, {node: (kind, (node,), 110) for node in (0, 1)})
        accesses(system, {2: (kind, (0,), 250)})
    write(system / "node/has_memory", "0-2")
    write(system / "node/node1/distance", "32 10 60")
    write(system / "node/node2/distance", "50 60 10")
    machine = host_machine("mine", system=system, cpuinfo=tmp_path / "proc/cpuinfo")
    assert np.allclose(machine.latency.idle, [[110, 352, 250], [352, 110, 300], [250, 300, 250]])
    assert machine.sources["latency_idle"].startswith("HMAT for nodes [0, 1, 2]")
    write_machine(tmp_path / "mine.toml", machine)
    assert load_machine(tmp_path / "mine.toml") == machine


def test_nodes_that_hmat_leaves_out_have_their_distances_and_nodes_without_memory_are_none(system, tmp_path):
    accesses(system, {0: ("access0", (0,), 100), 1: ("access0", (5,), 100), 2: ("access0", (0,), 0)})
    write(system / "node/has_memory", "0-1")
    machine = host_machine("mine", system=system, cpuinfo=tmp_path / "proc/cpuinfo")
    local = load_machine("epyc-milan").latency.idle[0][0]
    assert (machine.nodes, machine.memory_nodes) == (2, ())
    assert [row[k] for k, row in enumerate(machine.latency.idle)] == [100, local]
    assert machine.sources["latency_idle"].startswith("HMAT for nodes [0] and")


@pytest.mark.parametrize("text", ["fast", "-1", "", "1e3", "9" * 30, "\x00"])
def test_what_no_kernel_writes_is_refused_by_file(system, tmp_path, text):
    accesses(system, {1: ("access0", (0,), text)})
    with pytest.raises(CaptureError, match=r"node1/access0/initiators/read_latency.*expected a whole number"):
        host_machine("mine", system=system, cpuinfo=tmp_path / "proc/cpuinfo")


MODELS = {  # {(vendor, family): {model: the machine of its core}}
    ("GenuineIntel", 6): {
        63: "hydra-haswell", 79: "hydra-haswell", 85: "vmitosis-cascade-lake", 158: "vmitosis-cascade-lake",
        165: "vmitosis-cascade-lake", 106: "ice-lake", 143: "sapphire-rapids", 207: "emerald-rapids",
        173: "granite-rapids", 151: "sapphire-rapids",
    },
    ("GenuineIntel", 19): {1: "granite-rapids"},
    ("AuthenticAMD", 25): {1: "epyc-milan", 17: "epyc-genoa"},
    ("AuthenticAMD", 26): {2: "epyc-genoa"},
    ("HygonGenuine", 24): {1: "epyc-milan"},
}  # fmt: skip


def test_a_cpu_is_likened_to_its_core_by_vendor_family_and_model():
    for (vendor, family), models in MODELS.items():
        facts = {"vendor_id": vendor, "cpu family": str(family)}
        assert {model: nearest(facts | {"model": str(model)}) for model in models} == models
    masked = {"vendor_id": "GenuineIntel", "cpu family": "6", "flags": "fpu amx_bf16 amx_tile"}
    shown = {167: "sapphire-rapids", 85: "sapphire-rapids", 207: "emerald-rapids", 173: "granite-rapids"}
    assert {model: nearest(masked | {"model": str(model)}) for model in shown} == shown


@pytest.mark.parametrize(
    ("more", "ghz"),
    [
        ("model name\t: Xeon @ 2.40GHz\ncpu MHz\t\t: 1200.000", 2.4),
        ("model name\t: C86 8-core\ncpu MHz\t\t: 1600.000\nbogomips\t: 5600.00", 2.8),
        ("cpu MHz\t\t: 1200.000", 2.45),  # the known machine's
        ("model name\t: x @ 1.2.3GHz\nbogomips\t: 0.00", 2.45),
    ],
)
def test_the_clock_is_the_base_clock(tmp_path, more, ghz):
    host_tree(tmp_path, {0: "0"}, "10", cpuinfo=f"{MILAN.partition('model name')[0]}{more}\n\n", khz=0)
    assert machine_at(tmp_path).ghz == ghz
