"""What a survey makes of counts and of /proc."""

import json
import os
import subprocess
import sys
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.capture.live import survey
from ptanalyze.capture.live.cacheline import walk_share
from ptanalyze.cli import run
from ptanalyze.cli.survey import view
from ptanalyze.show.cpu_groups import prometheus_text, write_prometheus

NODES = st.dictionaries(st.integers(0, 3), st.integers(1, 1000), min_size=1, max_size=4)


def surveyed(**fields):
    known = {
        "pid": 7, "name": "db", "kind": "process", "cgroup": "/a", "table_bytes": 8192, "rss_bytes": 1 << 20,
        "leaf": {0: 3, 1: 1}, "upper": {0: 2}, "huge_bytes": 0, "runs": {0: 0.5, 1: 0.5},
    }  # fmt: skip
    return survey.Surveyed(**(known | fields))


def test_half_the_walks_are_remote_where_threads_run_evenly_on_two_nodes():
    assert surveyed().remote_share == pytest.approx(0.5)
    assert surveyed(runs={1: 1.0}).remote_share == pytest.approx(0.75)
    assert surveyed(runs={1: 1.0}).upper_remote_share == 1
    assert surveyed(runs={1: 1.0}).remote_bytes == 3 * 4096


def test_without_tables_or_threads_the_share_is_unknown_and_unknown_nodes_count_for_nothing():
    assert surveyed(leaf={}).remote_share is None and surveyed(runs={}).remote_share is None
    assert surveyed(leaf={survey.UNKNOWN_NODE: 9, 0: 1}, runs={0: 1.0}).remote_share == 0


@given(NODES, NODES)
def test_the_share_is_that_of_one_walk_per_leaf_table_and_tick(leaf, ticks):
    total = sum(ticks.values())
    walks = [(node, table) for node, n in ticks.items() for table, m in leaf.items() for _ in (n * m,)]
    far = sum(ticks[node] * leaf[table] for node, table in walks if node != table)
    found = survey.remote(leaf, {node: n / total for node, n in ticks.items()})
    assert found == pytest.approx(far / (total * sum(leaf.values())), abs=1e-9)


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-3,8\n", [0, 1, 2, 3, 8]), ("5", [5]), ("\n", []), ("0-1,4-5,7", [0, 1, 4, 5, 7])]
)
def test_lists_of_cpus_are_read(text, cpus):
    assert survey.cpus_of(text) == cpus


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (b"qemu-system-x86_64\0-name\0guest=web,debug-threads=on\0-m\01G\0", "web"),
        (b"qemu\0-name\0db1\0", "db1"),
        (b"qemu\0-name\0debug-threads=on,guest=a\0", "a"),
        (b"qemu\0-m\01G\0", ""),
        (b"qemu\0-name\0", ""),
        (b"", ""),
    ],
)
def test_a_vm_is_called_what_qemu_was_told(command, name):
    assert survey.vm_name(command) == name


def test_names_cannot_break_out_of_prometheus_labels():
    text = prometheus_text([surveyed(name='a"} 1\nx\\\udc80\x1b]0;t\x07\u202e')], 2, 0.0)
    assert r'name="a\"} 1\\nx\\\\x80\\x1b]0;t\\x07\\u202e"' in text and all(
        line.isprintable() for line in text.splitlines()
    )
    assert 'ptanalyze_leaf_tables{pid="7",' in text and 'node="1"} 1' in text


def test_the_file_for_node_exporter_can_be_read_by_others(tmp_path):
    write_prometheus(tmp_path / "a.prom", [surveyed(runs={})], 1, 0.0)
    assert (tmp_path / "a.prom").stat().st_mode & 0o777 == 0o644
    assert "remote_share{" not in (tmp_path / "a.prom").read_text()


def test_the_file_says_when_it_was_made_of_how_many_processes_on_how_many_nodes():
    lines = prometheus_text([surveyed(runs={1: 1.0})] * 3, 2, 1_700_000_000.7).splitlines()
    assert {
        "ptanalyze_numa_nodes 2", "ptanalyze_survey_processes 3",
        "ptanalyze_survey_timestamp_seconds 1700000000",
    } <= set(lines)  # fmt: skip
    upper = [line for line in lines if line.startswith("ptanalyze_upper_remote_share{")]
    assert len(upper) == 3 and all(line.endswith("} 1") for line in upper)
    assert sum(line.startswith("ptanalyze_rss_bytes{") for line in lines) == 3
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("name", "told"), [("pt.txt", "FILE.prom"), ("nowhere/pt.prom", "no directory")])
def test_a_file_that_node_exporter_would_not_read_or_that_cannot_be_is_refused_at_once(
    tmp_path, capsys, name, told
):
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


def test_containers_and_services_are_named_in_the_table_where_there_are_any():
    (plain,) = view([surveyed(cgroup="/")], 20)
    assert "cgroup" not in plain.rows[0]
    (section,) = view(
        [
            surveyed(cgroup=f"/kubepods.slice/cri-containerd-{'0123456789abcdef' * 4}.scope"),
            surveyed(cgroup=f"/docker/{'fedc' * 16}"),
            surveyed(cgroup="/system.slice/nginx.service"),
            surveyed(cgroup="/"),
        ],
        20,
    )
    names = [row["cgroup"] for row in section.rows]
    assert names == ["cri-containerd-0123456789ab.scope", "fedcfedcfedc", "nginx.service", "/"]


def test_bytes_are_whole_numbers_for_prometheus_however_many():
    text = prometheus_text([surveyed(table_bytes=3_221_225_472 + 4096, leaf={0: 12_345_678})], 1, 1.0)
    assert 'cgroup="/a"} 3221229568\n' in text and 'node="0"} 12345678\n' in text


def test_a_host_is_surveyed_once_a_second_at_most(capsys):
    assert run(["survey", "--watch", "999ms"]) == 2
    assert "give 1s or more" in capsys.readouterr().err


def test_a_watched_survey_is_a_line_of_json_each_time_with_the_time(monkeypatch, capsys):
    found = [surveyed(), surveyed(pid=8)]
    monkeypatch.setattr(survey, "survey", lambda: found)
    monkeypatch.setattr("time.sleep", lambda seconds: found.clear() if found else stop(seconds))

    def stop(seconds):
        assert seconds == 10
        raise KeyboardInterrupt

    assert run(["survey", "--json", "--watch", "10s"]) == 130
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert [one["pid"] for one in first["result"]] == [7, 8] and second["result"] == []
    assert datetime.fromisoformat(first["time"]).tzinfo and first["what"] == "survey"


def test_a_survey_of_the_host_does_without_numpy(monkeypatch):
    code = (
        "import sys; from ptanalyze.capture.live import survey; survey.survey = list\n"
        "from ptanalyze.cli import run; run(['survey'])\n"
        "print([m for m in ('numpy', 'pandas') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_on_one_node_it_says_that_placement_cannot_matter_and_what_may():
    (one,) = view([surveyed(leaf={0: 4}, runs={0: 1.0})], 20, 1)
    said = " ".join(one.lines)
    assert "one NUMA node" in said and "ptanalyze whatif 7.capture -p thp" in said
    (several,) = view([surveyed(leaf={0: 4}, runs={0: 1.0})], 20, 2)
    assert "one NUMA node" not in " ".join(several.lines) and "expected to be remote" in several.lines[-1]


def test_of_a_vm_its_guest_is_named_too_by_its_pid_where_its_name_is_not_enough():
    vm = surveyed(leaf={0: 4}, runs={1: 1.0}, kind="vm", name="web 1")
    (one,) = view([vm], 20, 2)
    said = "\n".join(one.lines)
    assert "ptanalyze survey --guest 'web 1'\n" in said and "ptanalyze dump vm 7 -o 7.capture" in said
    (two,) = view([vm, vm], 20, 2)
    assert "ptanalyze survey --guest 7\n" in "\n".join(two.lines)


PERF_STAT = """# started on Sun Nov 22 2026

1000000,,cycles:u,1000000,100.00,,
{},,dtlb_load_misses.walk_pending:u,1000000,100.00,,
50000,,dtlb_store_misses.walk_pending:u,1000000,100.00,,
"""


@pytest.mark.parametrize(
    ("count", "share"), [("150000", 0.2), ("2000000", 1.0), ("<not counted>", None), (None, None)]
)
def test_what_walks_cost_bounds_what_local_tables_can_save(tmp_path, count, share):
    file = tmp_path / "7"
    if count:
        file.write_text(PERF_STAT.format(count))
    found = surveyed(walk_share=walk_share(file), runs={1: 1.0})
    assert found.walk_share == (share and pytest.approx(share))
    assert found.ideal_saves == (share and pytest.approx(share * 0.75))


def test_tables_on_nodes_without_cpus_are_counted_and_said(tmp_path, monkeypatch):
    for node, cpus in ((0, "0-3"), (1, ""), (2, "4-7")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(f"{cpus}\n")
    monkeypatch.setattr(survey, "NODES", tmp_path)
    slow = survey.slow_nodes()
    assert slow == {1}
    counts = {
        "pid": os.getpid(),
        "pgtables_bytes": 1,
        # of a process bound to node 2 of an emulated machine with HMAT, but for the numbers of nodes
        "tables": [{"2": 3, "1": 32}, {"2": 2, "1": 1}, {"2": 2, "1": 1}, {"2": 1}],
        "huge": [0, 0, 0, 0],
    }
    mine = survey.surveyed(counts, {0: 0}, slow)
    assert mine.slow_tables == 34
    lines = [line for section in view([mine], 9) for line in section.lines]
    for node, ns in ((0, 100), (1, 90)):
        place = tmp_path / f"node{node}/access0/initiators"
        (place / "node0").mkdir(parents=True)
        (place / "read_latency").write_text(f"{ns}\n")
    assert survey.slow_nodes() == frozenset()
    assert (
        f"0.1 MiB of page tables of 1 processes are on nodes without CPUs, most of PID {os.getpid()}" in lines
    )


def test_a_host_with_slow_nodes_says_also_that_no_tables_are_there():
    def said(found):
        return [line for section in view(found, 9) for line in section.lines]

    assert "no page tables are on the nodes without CPUs" in said([surveyed(slow_tables=0)])
    assert not any("without CPUs" in line for line in said([surveyed()]))
