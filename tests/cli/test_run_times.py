"""`calibrate` and `validate` as a user calls them."""

import csv
import io
import json
import os
import stat

import pytest

from command_line import is_one_line
from ptanalyze.cli import run
from ptanalyze_law.prior import mean_run, ports, runs
from ptanalyze_papers.row import KINDS, published

# `ptanalyze calibrate` as a user calls it, on counters of the published runs.

GUPS = runs("thin-2D-4K")["gups"]
PAGERANK = runs("native-thin")["PageRank"]


@pytest.fixture
def perf(tmp_path):
    """Write the -x, output of a run and return its path."""

    def write(run, name, running=100.0, native=False):
        events = {
            "cycles:u": run.cycles,
            "dtlb_load_misses.walk_pending:u": run.gpt,
            "dtlb_store_misses.walk_pending:u": 0,
            "ept.walk_pending:u": run.ept,
        }
        if native:
            del events["ept.walk_pending:u"]
        path = tmp_path / name
        path.write_text("".join(f"{n:.0f},,{event},1,{running},,\n" for event, n in events.items()))
        return path

    return write


def test_two_runs_are_calibrated_kept_and_predicted_from(pt, perf, tmp_path):
    local, remote, kept = perf(GUPS["LL"], "ll"), perf(GUPS["RRI"], "rri"), tmp_path / "gups.toml"
    ran = pt("calibrate", "--local", local, "--remote", remote, "--placement", "RRI", "-o", kept)
    assert ran.code == 0 and "identified: what waiting for the contended gPT and ePT costs" in ran.out
    assert "assumed: " in ran.out
    assert f"next: ptanalyze whatif CAPTURE --calibration {kept}" in ran.err
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    result = json.loads(pt("calibrate", kept, "--json").out)["result"]
    found = {row["placement"]: row for row in result["predictions"]}
    assert list(found) == ["LL", "LR", "LRI", "RL", "RLI", "RR", "RRI", "RRIE", "RRIG", "RRIM"]
    measured = GUPS["RRI"].cycles / GUPS["LL"].cycles
    assert found["RRI"]["middle"] == pytest.approx(measured) and found["RRI"]["measured"]
    assert found["RR"]["low"] < GUPS["RR"].cycles / GUPS["LL"].cycles < found["RR"]["high"]
    table = pt("calibrate", kept, "--predict", "RR", "--predict", "RRIE").out
    assert "RRIE" in table and "RLI" not in table and "assumed: " in table


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--local", "nowhere"], "nowhere"),
        (["--local", "LL", "--remote", "RRI"], "--remote and --placement go together (or"),
        ([], "give either a CALIBRATION.toml, or --local"),
        (["--walk-cycles", 1e9], "give either"),
        (["-o", "x.toml"], "give --local FILE or --seconds"),
        (["c.toml", "--local", "LL"], "give either"),
        (["c.toml", "--seconds", 3], "give either"),
        (["c.toml", "-o", "x.toml"], "give either"),
        (["nowhere.toml"], "nowhere.toml"),
        (["--local", "PARTLY", "--remote", "ALL", "--placement", "RP"], "count the same events in both"),
        (["--local", "LL", "--at", "R:0.5,L:0.5"], "ePT walk cycles"),
        (["--local", "LL", "--at", "LL:0.5"], "shares of walks add up to 0.5"),
        (["--local", "LL", "--placement", "RRI"], "go together"),
        (["--local", "NATIVE", "--remote", "FAR", "--placement", "LR", "--native"], "the run is native"),
        (["--seconds", 3, "--remote-seconds", 5], "go together"),
        (["--local", "LL", "--predict", "RP", "-o", "x.toml"], "placement RP"),
        (["--seconds", 3, "--remote-seconds", 5, "--placement", "RR", "--walk-cycles", 1e9], "not counted"),
        (["--local", "LL", "-o", "x.json"], "-o x.json: name it FILE.toml"),
        (["--local", "LL", "-o", "no/where/x.toml"], "there is no directory no/where"),
        (["--local", "LL", "-m", "abacus"], "machine abacus: unknown"),
    ],
)
def test_calibrate_refuses_in_one_line(pt, perf, tmp_path, monkeypatch, options, why):
    monkeypatch.chdir(tmp_path)
    perf(GUPS["LL"], "LL")
    perf(GUPS["RRI"], "RRI")
    perf(GUPS["LL"], "NATIVE", native=True)
    perf(GUPS["RRI"], "FAR", native=True)
    part = "1000,,cycles:u,1,100.0,,\n300,,dtlb_load_misses.walk_pending:u,1,100.0,,\n"
    (tmp_path / "PARTLY").write_text(part)
    (tmp_path / "ALL").write_text(f"1{part}9,,dtlb_store_misses.walk_pending:u,1,100.0,,\n")
    ran = pt("calibrate", *options)
    assert is_one_line(ran, 2) and why in ran.err
    assert not [name for name in os.listdir(tmp_path) if name.startswith(("x", "."))]


def test_entries_from_memory_raise_the_share_that_waits_for_it_and_narrow_nothing(pt, perf, tmp_path):
    local = perf(PAGERANK["LP-LD"], "lp", native=True)

    def share(*served):
        rows = zip(("l1", "l2", "l3", "memory"), served, strict=False)
        lines = [f"{n},,page_walker_loads.dtlb_{by}:u,1,100,,\n" for by, n in rows]
        (tmp_path / "with").write_text(local.read_text() + "".join(lines))
        ran = pt("calibrate", "--local", tmp_path / "with", "--native", "--seconds", 400, "--json")
        return json.loads(ran.out)["result"]["dram_share"]

    plain, few, most = share(), share(90, 5, 4, 1), share(1, 1, 1, 97)
    assert few == plain and plain["middle"] < 0.97
    assert most == {"low": plain["low"], "middle": pytest.approx(0.97), "high": 1.0}


def test_elapsed_time_comes_from_the_file_or_from_an_option(pt, perf):
    local, remote = perf(GUPS["LL"], "ll"), perf(GUPS["RR"], "rr")
    clocked = local.with_name("clocked")
    clocked.write_text(local.read_text() + "260000000000,ns,duration_time,1,100.00,,\n")
    asked = ("calibrate", "--remote", remote, "--placement", "RR", "--predict", "LR", "--json")
    from_file = pt(*asked, "--local", clocked, "--remote-seconds", 437)
    assert json.loads(from_file.out)["result"]["predictions"][0]["seconds"] is not None
    for ran in (from_file, pt(*asked, "--local", local, "--seconds", 260, "--remote-seconds", 437)):
        (only,) = json.loads(ran.out)["result"]["predictions"]
        assert only["seconds"][1] == pytest.approx(260 + (437 - 260) / 2)


def test_tables_on_several_nodes_and_walk_cycles_of_another_policy(pt, perf):
    run = {policy: mean_run(repeats) for policy, repeats in ports()["canneal"].items()}
    files = {policy: perf(of, policy, native=True) for policy, of in run.items()}
    for file in files.values():
        file.write_text(file.read_text().replace("walk_pending", "walk_duration"))
    seconds = run["linux"].seconds
    known = ("calibrate", "--local", files["linux"], "--at", "L:0.25,R:0.75", "--seconds", seconds)
    walks = ("--walk-cycles", files["hydra"], "--walk-cycles", run["wasp"].walk, "--json")
    unsaid = json.loads(pt(*known, *walks).out)["result"]["predictions"]
    for policy, row in zip(("hydra", "wasp"), unsaid, strict=True):
        assert row["cycles"][0] < run[policy].cycles < row["cycles"][2] and not row["doubt"]
    asked = (*known, *walks, "--threads-per-core", 2)
    alone, pair = (
        json.loads(pt(*asked, *more).out)["result"]
        for more in ((), ("--remote", files["mitosis"], "--placement", "LP"))
    )
    for result in (alone, pair):
        for policy, row in zip(("hydra", "wasp"), result["predictions"], strict=True):
            assert row["cycles"][1] == pytest.approx(run[policy].cycles, rel=0.01)
    counted = f"{run['wasp'].walk:.4g} walk cycles"
    assert [row["placement"] for row in pair["predictions"]] == ["hydra", counted]
    local = pt(*known, "--threads-per-core", 2, "--predict", "LP", "--json")
    (replicas,) = json.loads(local.out)["result"]["predictions"]
    assert replicas["low"] < run["mitosis"].cycles / run["linux"].cycles < replicas["high"] < 1.1


# `ptanalyze validate` as a user calls it; the quick table of two papers is made once.


@pytest.fixture(scope="module")
def table():
    """{paper: its part of the JSON}, the summary of all under None."""
    import contextlib

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run(["validate", "--quick", "--json", "--paper", "vmitosis", "--paper", "mitosis"]) == 0
    found = json.loads(out.getvalue())["result"]
    return {one["paper"]: one for one in found["papers"]} | {None: found}


@pytest.mark.parametrize("name", ["vmitosis", "mitosis"])
def test_no_published_figure_is_left_out(table, name):
    paper = published(name)
    assert {one.name for one in paper.figure} <= {row["name"] for row in table[paper.paper]["rows"]}


def test_the_summary_counts_what_the_rows_say_and_judges_evidence_alone(table):
    every = [row for name in ("vMitosis", "Mitosis") for row in table[name]["rows"]]
    for name in ("vMitosis", "Mitosis", None):
        rows = every if name is None else table[name]["rows"]
        summary = table[name]["summary"]
        assert summary["rows"] == len(rows)
        assert sum(summary[kind] for kind in KINDS) == len(rows)
        worst = {}
        for row in rows:
            if row["judged"]:
                one = row["paper"], row["prediction"], row["low"], row["ours"], row["high"]
                small = row["unit"] == "x" and abs(row["published"] - 1) < 0.05
                worst[one] = max(worst.get(one, (0,)), (abs(row["effect_error"]), small))
        large = [error for error, small in worst.values() if not small]
        assert (summary["judged"], summary["small"]) == (len(worst), len(worst) - len(large))
        assert summary["mean_error"] == pytest.approx(sum(large) / len(large))


def test_one_row_as_csv_and_as_a_table(pt):
    ran = pt("validate", "--paper", "vmitosis", "--row", "table 4", "--csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [(row["name"], float(row["error"])) for row in rows] == [("groups", 0), ("grouped", 0)]
    ran = pt("validate", "--paper", "vmitosis", "--row", "Table 5, section")
    assert ran.code == 0
    assert all(said in ran.out for said in ("fitted", "Errors by kind of evidence", "(1) "))
