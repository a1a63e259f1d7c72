"""What a survey makes of counts and of /proc."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.capture.live import survey
from ptanalyze.show.prometheus import prometheus_text, write_prometheus

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
    assert surveyed(leaf={survey.UNKNOWN: 9, 0: 1}, runs={0: 1.0}).remote_share == 0


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
    text = prometheus_text([surveyed(name='a"} 1\nx\\\udc80')])
    assert 'name="a\\"} 1\\nx\\\\?"' in text and all(line.isprintable() for line in text.splitlines())
    assert 'ptanalyze_leaf_tables{pid="7",' in text and 'node="1"} 1' in text


def test_the_file_for_node_exporter_can_be_read_by_others(tmp_path):
    write_prometheus(tmp_path / "a.prom", [surveyed(runs={})])
    assert (tmp_path / "a.prom").stat().st_mode & 0o777 == 0o644
    assert "leaf_remote_share{" not in (tmp_path / "a.prom").read_text()
