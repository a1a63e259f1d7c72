"""What a user means by a name or a number: a node, a capture, a file."""

import shutil

from one_line import is_one_line


def test_a_single_setting_is_in_the_label_and_a_plain_number_of_nodes_is_explained(pt, sample):
    ran = pt("whatif", sample, "-p", "mitosis", "--set", "nodes=2")
    said = " ".join(ran.out.split())
    rows = [line.split()[0] for line in ran.out.splitlines() if line.startswith(" ") and line.split()]
    assert ran.code == 0 and "mitosis:nodes=2" in rows and "mitosis" not in rows
    assert "mitosis has replicas on node 2 alone" in said and "sweep --set nodes=2,4`" in said
    several = pt("whatif", sample, "-p", "mitosis,mitosis:nodes=0,2").out
    assert " alone" not in several and " mitosis:nodes=0,2" in several and "nodes= " not in several


def test_a_capture_of_nearly_that_name_is_offered(pt, sample, tmp_path, monkeypatch):
    shutil.copytree(sample, tmp_path / "app")
    monkeypatch.chdir(tmp_path)
    for asked in ("ap", str(tmp_path / "ap")):
        ran = pt("whatif", asked)
        assert is_one_line(ran, 2) and "did you mean app? " in ran.err
    assert "did you mean lookup? " in pt("info", "lokup").err
    assert "did you mean" not in pt("info", "nothing-like-it").err


def test_a_directory_is_no_output_of_perf_stat(pt, tmp_path):
    ran = pt("calibrate", "--local", tmp_path)
    assert is_one_line(ran, 2) and "perf stat -o" in ran.err
