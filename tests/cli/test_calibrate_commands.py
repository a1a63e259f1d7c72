"""`ptanalyze calibrate` and `ptanalyze predict` as a user calls them, on counters of the published runs."""

import json
import os
import stat

import pytest

from one_line import is_one_line
from ptanalyze.cost.reference import runs

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
    assert ran.code == 0 and "identified: e f (k - 1)" in ran.out and "assumed: " in ran.out
    assert f"next: ptanalyze predict {kept}" in ran.err and stat.S_IMODE(kept.stat().st_mode) == 0o600
    result = json.loads(pt("predict", kept, "--json").out)["result"]
    found = {row["placement"]: row for row in result["predictions"]}
    assert list(found) == ["LL", "LR", "LRI", "RL", "RLI", "RR", "RRI", "RRIE", "RRIG", "RRIM"]
    measured = GUPS["RRI"].cycles / GUPS["LL"].cycles
    assert found["RRI"]["middle"] == pytest.approx(measured) and found["RRI"]["measured"]
    assert found["RR"]["low"] < GUPS["RR"].cycles / GUPS["LL"].cycles < found["RR"]["high"]
    table = pt("predict", kept, "--placement", "RR", "--placement", "RRIE").out
    assert "RRIE" in table and "RLI" not in table and "assumed: " in table


def test_predictions_straight_from_perf_files_are_those_of_the_calibration(pt, perf, tmp_path):
    local, remote, kept = perf(GUPS["LL"], "ll"), perf(GUPS["RR"], "rr"), tmp_path / "c.toml"
    assert pt("calibrate", "--local", local, "--remote", remote, "--placement", "RR", "-o", kept).code == 0
    direct = pt("predict", "--local", local, "--remote", remote, "--remote-placement", "RR", "--json")
    assert direct.out == pt("predict", kept, "--json").out


def test_native_runs_are_calibrated_with_one_table(pt, perf):
    local, remote = perf(PAGERANK["LP-LD"], "lp", native=True), perf(PAGERANK["RP-LD"], "rp", native=True)
    ran = pt("calibrate", "--local", local, "--remote", remote, "--placement", "RP", "--walkers", 1)
    assert ran.code == 0 and "suspicious: cycles grow 1.74 times as much as walk cycles" in ran.out
    alone = pt("calibrate", "--local", local, "--native", "--json")
    assert json.loads(alone.out)["result"]["native"] is True


def test_latencies_from_slit_and_machine_are_taken(pt, perf, tmp_path):
    local = perf(GUPS["LL"], "ll")
    for node, row in enumerate(("10 21", "21 10")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "distance").write_text(row)
    ran = pt("calibrate", "--local", local, "--latency", tmp_path, "--local-ns", 80, "--json")
    assert json.loads(ran.out)["result"]["remote_stretch"]["middle"] == pytest.approx(2.1)
    ran = pt("calibrate", "--local", local, "-m", "sapphire-rapids", "--json")
    result = json.loads(ran.out)["result"]
    assert result["machine"] == "sapphire-rapids" and "the machine file" in " ".join(result["assumed"])


def test_statistics_are_never_rounded_to_fit(pt):
    rows = json.loads(pt("predict", "--statistics", "--json").out)["result"]
    only = next(r for r in rows if r["family"] == "thin-2D-4K" and r["method"] == "all-local run only")
    table = pt("predict", "--statistics").out
    assert f"{only['mean']:.2%}" in table and f"{only['max']:.2%}" in table
    assert "baseline: configuration mean" in table and "baseline: constant speed-up" in table


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        (["--local", "nowhere"], 2, "nowhere"),
        (["--local", "LL", "--remote", "RRI"], 2, "--remote and --placement go together"),
        (["--local", "LL", "--placement", "RRI"], 2, "go together"),
        (["--local", "LL", "--remote", "RRI", "--placement", "XY"], 2, "placement 'XY'"),
        (["--local", "LL", "--remote", "RRI", "--placement", "LL"], 2, "all tables are local"),
        (["--local", "RRI", "--remote", "LL", "--placement", "RRI"], 2, "LL: remote run: cycles"),
        (["--local", "MUX"], 1, "MUX: cycles:u = counted 45 % of the time"),
        (["--local", "NATIVE"], 1, "ept.walk_pending:u: missing"),
        (["--local", "LONG"], 2, "LONG: local run: walk cycles = "),
        (["--local", "LL", "-o", "x.json"], 2, "-o x.json: name it FILE.toml"),
        (["--local", "LL", "-o", "no/where/x.toml"], 2, "there is no directory no/where"),
        (["--local", "LL", "-m", "abacus"], 2, "machine abacus: unknown"),
        (["--local", "LL", "--latency", "LL"], 1, "LL: contents"),
        (["--local", "LL", "--latency", "."], 1, "no directory of NUMA nodes"),
    ],
)
def test_calibrate_refuses_in_one_line(pt, perf, tmp_path, monkeypatch, options, code, why):
    monkeypatch.chdir(tmp_path)
    perf(GUPS["LL"], "LL")
    perf(GUPS["RRI"], "RRI")
    perf(GUPS["LL"], "MUX", running=45.0)
    perf(GUPS["LL"], "NATIVE", native=True)
    perf(type(GUPS["LL"])(1e12, 2e12, 3e12), "LONG")
    ran = pt("calibrate", *options)
    assert is_one_line(ran, code) and why in ran.err
    assert not [name for name in os.listdir(tmp_path) if name.startswith(("x", "."))]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "give either a CALIBRATION.toml or --local"),
        (["c.toml", "--local", "x"], "give either"),
        (["nowhere.toml"], "nowhere.toml"),
    ],
)
def test_predict_refuses_in_one_line(pt, tmp_path, monkeypatch, options, why):
    monkeypatch.chdir(tmp_path)
    ran = pt("predict", *options)
    assert is_one_line(ran, 2) and why in ran.err


def test_multiplexed_counters_are_taken_when_allowed(pt, perf):
    assert pt("calibrate", "--local", perf(GUPS["LL"], "mux", running=45.0), "--allow-multiplexed").code == 0
