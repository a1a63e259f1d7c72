"""Files of latencies between CPUs: tables as people have them, records as `topology measure` writes them."""

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latency_tables import SOCKETS, TABLE_4
from ptanalyze.analysis.cpu_groups import groups
from ptanalyze.capture.live.cacheline import noisy_pairs
from ptanalyze.core.errors import CaptureError, PtanalyzeError
from ptanalyze.formats.measured.latency import LatencyMatrix, Method, read_matrix, write_matrix

NAN = np.nan


def groups_of(path, **options):
    matrix = read_matrix(path)
    return groups(matrix.ns, matrix.cpus, **options)


@pytest.mark.parametrize("mark", [",", " ", "  "])
@pytest.mark.parametrize("corner", ["", "cpu"])
def test_table_4_may_have_other_separators_and_corners(file, mark, corner):
    text = TABLE_4.replace("\t", mark)
    assert groups_of(file(corner + text if corner else text.lstrip(" "))) == SOCKETS


def test_table_4_may_have_comments_empty_cells_and_crlf(file):
    text = "# ns\n\n" + TABLE_4.replace("-", "").replace("\n", "\r\n")
    assert groups_of(file(text)) == SOCKETS
    assert groups_of(file("\ufeff" + TABLE_4.replace("-", "NaN"))) == SOCKETS


def test_rows_may_stand_in_any_order(file):
    head, *rows = TABLE_4.splitlines()
    assert groups_of(file("\n".join([head, *reversed(rows)]))) == SOCKETS


def test_a_matrix_without_names_is_of_cpus_from_0(file):
    assert groups_of(file("- 50 125\n50 - 125\n125 125 -")) == [(0, 1), (2,)]
    assert groups_of(file("0,50,125\n50,0,125\n125,125,0")) == [(0, 1), (2,)]


def test_a_lower_triangle_with_an_empty_first_row_is_read(file):
    assert groups_of(file(",,\n50,,\n125,126,\n")) == [(0, 1), (2,)]


def test_the_other_direction_of_a_pair_may_differ_by_noise_only(file):
    assert groups_of(file("- 50 125\n60 - 125\n125 125 -")) == [(0, 1), (2,)]
    with pytest.raises(CaptureError, match=r"given.txt: \[1\]\[0\] = 125.0: but \[0\]\[1\] = 50.0"):
        read_matrix(file("- 50 125\n125 - 125\n125 125 -"))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "no latencies in it"),
        ("\n  \n# only words\n", "no latencies in it"),
        ("5", "a pair needs two"),
        ("cpu,0\n0,-\n", "a pair needs two"),
        ("- 1\n1 -\n1 1\n", "CPU = 2: not square: only 2 CPUs have a column"),
        ("- 50 50\n50 -\n", "line 2: latencies = 2: expected 3"),
        ("- 50\n50 - 3\n- - -", "line 2: latencies = 3: expected 2"),
        ("- -50\n50 -\n", r"\[0\]\[1\] = -50.0: expected ns"),
        ("- 0\n50 -\n", r"\[0\]\[1\] = 0.0: expected ns"),
        ("- 1e300\n1e300 -\n", r"\[0\]\[1\] = 1e\+300"),
        ("- 1e400\n- -\n", r"\[0\]\[1\] = inf"),
        ("- inf\n- -\n", r"\[0\]\[1\] = inf"),
        ("- 1_0\n- -\n", "line 1 = '1_0': expected a latency"),
        ("- ٥٠\n- -\n", "line 1 = '٥٠': expected a latency"),
        ("nan nan\nnan nan\n", "no pair is known"),
        ("- -\n- -\n", "no pair is known"),
        (",0,0\n0,-,50\n", "CPU = 0: named twice in the first line"),
        (",0,1\n0,-,50\n0,-,50\n", "line 3: CPU = 0: a second row"),
        (",0,1\n2,-,50\n", "line 2: CPU = 2: not square"),
        (",0,9999\n0,-,50\n", "line 1 = '9999': expected a CPU"),
        (",0,x\n0,-,50\n", "line 1 = 'x': expected a CPU"),
        ("hello world\nthis is prose\n", "line 1 = 'world': expected a CPU"),
        (b"\x00\x01\x02", "neither a ptanalyze-topology file nor a table"),
        (b"\xff\xfe\x80 50", "neither a ptanalyze-topology file nor a table"),
        (random.Random(1).randbytes(4000), "neither a ptanalyze-topology file nor a table"),
        ("{", "not a ptanalyze-topology file"),
        (
            '{"format": "ptanalyze-snapshot", "version": 1, "cpus": [], "ns": []}',
            "expected ptanalyze-topology",
        ),
        ('{"format": "ptanalyze-topology", "version": 2, "cpus": [], "ns": []}', "version = 2: this release"),
        ('{"format": "ptanalyze-topology", "version": 1, "cpus": [], "ns": []}', "a pair needs two"),
        ('{"format": "ptanalyze-topology", "version": 1, "cpus": [0, 1], "ns": [[null, 1]]}', "1 rows of 2"),
        ('{"format": "ptanalyze-topology", "version": 1, "cpus": [0, 1], "ns": [[], []]}', "2 rows of 0"),
        (
            '{"format": "ptanalyze-topology", "version": 1, "cpus": [0, 1], "ns": [[NaN, 1]]}',
            "not a ptanalyze",
        ),
        (
            '{"format": "ptanalyze-topology", "version": 1, "cpus": [0, 0], "ns": [[null, 1], [1, null]]}',
            "CPU = 0: named twice",
        ),
        (
            '{"format": "ptanalyze-topology", "version": 1, "cpus": [-1, 0], "ns": [[null, 1], [1, null]]}',
            "cpus = -1: expected CPU numbers",
        ),
        (
            '{"format": "ptanalyze-topology", "version": 1, "cpus": [0, 1], "ns": [[null, -1], [1, null]]}',
            r"\[0\]\[1\] = -1.0",
        ),
    ],
)
def test_a_file_that_is_no_matrix_is_refused_in_one_line(file, content, why):
    path = file(content)
    with pytest.raises(PtanalyzeError, match=why) as caught:
        groups_of(path, name=path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


@settings(deadline=None)
@given(st.text(alphabet="0125-,.\t\n #eanx{", max_size=60))
def test_whatever_a_table_holds_it_is_read_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_text(text)
    try:
        matrix = read_matrix(path)
    except CaptureError as error:
        assert "\n" not in str(error)
        return
    assert matrix.ns.shape == (len(matrix.cpus),) * 2 and np.isnan(matrix.ns.diagonal()).all()


def test_a_measured_matrix_is_read_as_it_was_written(tmp_path):
    ns = np.array([[NAN, 50.25, 125], [50.25, NAN, 126], [125, 126, NAN]])
    method = Method(rounds=1000, repeat=7, cpu="some CPU", kernel="6.1")
    path = tmp_path / "topology.json"
    write_matrix(path, LatencyMatrix((2, 4, 9), ns, ns / ns, method))
    assert path.stat().st_mode & 0o777 == 0o600
    found = read_matrix(path)
    assert found.cpus == (2, 4, 9) and found.method == method
    np.testing.assert_array_equal(found.ns, ns)
    np.testing.assert_array_equal(found.spread, ns / ns)
    assert set(json.loads(path.read_text())) == {"format", "version", "cpus", "ns", "spread", "method"}
    assert groups_of(path) == [(2, 4), (9,)]


@pytest.mark.parametrize("cut", [2, 10, 100])
def test_a_measured_matrix_cut_short_is_refused(tmp_path, cut):
    path = tmp_path / "topology.json"
    write_matrix(path, LatencyMatrix((0, 1), np.array([[NAN, 50], [50, NAN]])))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(CaptureError, match="not a ptanalyze-topology file"):
        read_matrix(path)


def test_pairs_that_were_disturbed_most_of_the_time_are_named():
    spread = np.array([[NAN, 1.1, 3.0], [1.1, NAN, 1.0], [3.0, 1.0, NAN]])
    assert noisy_pairs(LatencyMatrix((2, 4, 9), spread * 50, spread)) == [(2, 9, 3.0)]
    assert noisy_pairs(LatencyMatrix((2, 4, 9), spread * 50)) == []
