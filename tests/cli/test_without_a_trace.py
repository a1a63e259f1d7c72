"""Answers about live processes: what pages count by, which machine they are about, no run time anywhere."""

import pytest

from heated import one_node_capture
from ptanalyze.analysis.setup import Setup
from ptanalyze.show.report import actions
from ptanalyze.show.report.cautions import cautions
from ptanalyze.show.report.write import studies

ELSEWHERE = "captured on 1 node, replayed on 4 (vmitosis-cascade-lake)"


@pytest.fixture(scope="module")
def hot(tmp_path_factory):
    return one_node_capture(tmp_path_factory.mktemp("hot") / "hot")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return one_node_capture(tmp_path_factory.mktemp("plain") / "plain", heat=False)


@pytest.fixture(scope="module")
def study(hot):
    (found,) = studies([hot], Setup.of())
    return found


@pytest.mark.parametrize("command", [("whatif", "-p", "mitosis"), ("advise",)])
def test_first_of_all_is_said_that_the_answer_is_about_another_machine_and_last_how_to_ask_about_this_one(
    pt, hot, command
):
    name, *options = command
    said = pt(name, hot.directory, *options).out
    assert said.startswith(f"Note: {ELSEWHERE}")
    assert "ptanalyze machines --from-host host.toml" in said.partition("\nNext")[2]
    assert any(line.endswith("-m host.toml") for line in said.splitlines())
    assert ELSEWHERE in pt(name, hot.directory, *options, "--full").out


def test_on_a_machine_with_as_many_nodes_nothing_is_said_of_another(pt, hot, tmp_path):
    model = tmp_path / "host.toml"
    assert pt("machines", "--from-host", model).code == 0
    if "nodes = 1\n" not in model.read_text():
        pytest.skip("this host has several nodes")
    said = pt("whatif", hot.directory, "-p", "mitosis", "-m", model).out
    assert said.startswith("No policy takes fewer walk cycles than linux.") and "host.toml  (run" not in said


def test_walks_are_those_that_were_estimated_times_the_nodes_that_do_them(pt, hot):
    walks = int(hot.snapshot.heat.walks.sum())
    assert f"{walks:,} from each of 4 nodes, {4 * walks:,} walks" in pt("whatif", hot.directory).out


def test_where_there_is_no_run_time_the_table_has_walk_cycles_and_nothing_to_narrow(pt, hot):
    said = pt("whatif", hot.directory, "-p", "mitosis,interleave").out
    assert "speed-up" not in said and "pays back" not in said and "calibrate" not in said
    less = said.partition("Best: mitosis, ")[2].partition(" % fewer walk cycles")[0]
    row = next(line for line in said.splitlines() if line.startswith(" mitosis"))
    assert f"-{less} %" in row and float(less) > 10


def test_advice_says_how_much_and_has_no_empty_lines_in_a_row_nor_a_bare_unknown(pt, hot, plain):
    for capture in (hot, plain):
        said = pt("advise", capture.directory).out
        assert "% fewer walk cycles than linux" in said and "\n\n\n" not in said and "unknown:" not in said


def test_larger_pages_are_refused_under_heat_with_the_way_out_and_doubted_without(pt, hot, plain):
    assert "--weight leaf" in pt("whatif", hot.directory, "-p", "thp").err
    assert "--weight leaf ranks thp too" in pt("advise", hot.directory).out
    doubt = "Each mapped page counts once, used or not"
    assert doubt in pt("whatif", plain.directory, "-p", "thp:min_pages=1").out
    assert doubt not in pt("whatif", plain.directory, "-p", "mitosis").out


def test_the_report_says_walk_cycles_where_no_run_time_is_known(study):
    assert "% fewer walk cycles" in actions.research(study) and "as fast" not in actions.research(study)


def test_the_report_says_what_pages_count_by_and_which_machine_it_is_about(study, plain):
    words = " ".join(caution.text for caution in cautions(study))
    assert "estimated from 40 samples of accessed bits" in words and "counts once" not in words
    assert "a machine with 1 node, the answers are about one with 4" in words and "--from-host" in words
    (other,) = studies([plain], Setup.of())
    assert any("every mapped page counts once" in caution.text for caution in cautions(other))
