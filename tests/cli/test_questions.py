"""The commands that replay policies, asked as a new user would: sweep, compare, advise, policies, a+b."""

import csv
import io
import json

from one_line import is_one_line
from ptanalyze.core.interval import as_read


def result_of(ran):
    assert ran.code == 0, ran.err
    return json.loads(ran.out)["result"]


def test_a_sweep_prints_a_row_a_point_and_its_axes(pt, sample):
    ran = pt("sweep", sample, "-p", "hydra", "--set", "prefetch=0,9", "--set", "nodes=2,4", "--cold", "--csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [(row["nodes"], row["policy"]) for row in rows] == [
        (nodes, policy) for nodes in ("2", "4") for policy in ("first-touch", "hydra", "hydra")
    ]
    lazy, eager = (int(row["replica_faults"]) for row in rows[1:3])
    assert lazy > 10 * eager
    table = pt("sweep", sample, "-p", "hydra", "--set", "prefetch=0,9").out
    assert "prefetch" in table and "speed-up" in table and "tlbflush" not in table


def test_an_axis_given_twice_and_one_without_values_are_refused(pt, sample):
    for settings in (("--set", "prefetch=1", "--set", "prefetch=2"), ("--set", "prefetch="), ("--set", "x")):
        ran = pt("sweep", sample, "-p", "hydra", *settings)
        assert is_one_line(ran, 2)


def test_compare_finds_what_differs_between_policies_of_one_capture(pt, sample):
    found = result_of(pt("compare", f"{sample}@mitosis", f"{sample}@hydra,prefetch=0", "--cold", "--json"))
    changed = {row["quantity"]: row for row in found["differences"]}
    assert changed["pte_copies"]["a"] == 0 < changed["pte_copies"]["b"]
    assert changed["pte_copies"]["change"] == changed["pte_copies"]["b"]
    assert "walks" not in changed and not found["exact"]


def test_compare_of_a_written_result_with_its_replay_is_exact(pt, sample, tmp_path):
    written = tmp_path / "mitosis.json"
    assert pt("whatif", sample, "-p", "mitosis", "--baseline", "mitosis", "-o", written).code == 0
    assert pt("compare", written, written, "--exact").code == 0
    other = tmp_path / "other.json"
    content = json.loads(written.read_text())
    content["result"][0]["walks"] += 1
    other.write_text(json.dumps(content))
    ran = pt("compare", written, other, "--exact")
    assert is_one_line(ran, 1)
    assert "walks" in ran.out and "different in 1" in ran.out


def test_advice_ranks_and_ends_in_a_sentence(pt, sample):
    report = result_of(pt("advise", sample, "--json"))
    assert report["workload"] == "Wide"
    assert report["ranked"][0]["policy"] in report["sentence"]
    gains = [as_read(row["gain"]) for row in report["ranked"]]
    assert gains == sorted(gains, reverse=True)
    assert "no host tables" in report["refused"]["vmitosis-replicate"]
    poor = result_of(pt("advise", sample, "--memory", "64K", "--json"))
    assert [row["over"] for row in poor["ranked"] if row["policy"] == "mitosis"] == ["memory"]
    assert poor["ranked"][0]["policy"] != "mitosis"


def test_a_budget_that_is_none_is_refused_by_its_option(pt, sample):
    for option, value in (("--memory", "lots"), ("--updates", "2")):
        ran = pt("advise", sample, option, value)
        assert is_one_line(ran, 2) and option in ran.err


def test_policies_says_what_each_needs_and_follows(pt):
    listed = {row["name"]: row for row in result_of(pt("policies", "--json"))}
    assert (
        listed["hydra"]["needs"] == ["trace", "node numbers"]
        and "sections 3 and 4" in listed["hydra"]["source"]
    )
    assert listed["vmitosis-replicate"]["acts_on"] == ["ePT", "gPT"]
    assert all(row["source"] for row in listed.values())
    one = pt("policies", "hydra").out
    assert "prefetch" in one and "mitosis" not in one
    assert pt("policies", "wonder").code == 2


def test_policies_that_act_on_different_things_go_together_in_any_order(pt, vm_sample):
    both = [
        result_of(pt("whatif", vm_sample, "-p", name, "--set", "layers=ept", "--json"))[1]
        for name in ("hydra+vmitosis-replicate", "vmitosis-replicate+hydra")
    ]
    assert both[0] == both[1]
    assert both[0]["leaf_LR_share"] == both[0]["leaf_RR_share"] == 0 < both[0]["ept_bytes_extra"]
    ran = pt("whatif", vm_sample, "-p", "hydra+mitosis")
    assert (
        is_one_line(ran, 2) and "both act on the program's page table (in a VM the guest's, gPT)" in ran.err
    )


def test_a_calibrated_run_narrows_the_estimate(pt, sample, tmp_path):
    counters = {"cycles": 8e11, "dtlb_load_misses.walk_pending": 3e11, "dtlb_store_misses.walk_pending": 1e9}
    perf = tmp_path / "local.csv"
    perf.write_text("".join(f"{int(n)},,{name}:u,100,100.00,,\n" for name, n in counters.items()))
    made = pt("calibrate", "--local", perf, "--native", "-o", tmp_path / "app.toml")
    assert made.code == 0, made.err
    ask = "whatif", sample, "-p", "mitosis", "--cold", "--json"
    plain = result_of(pt(*ask))[1]
    measured = result_of(pt(*ask, "--calibration", tmp_path / "app.toml"))[1]
    assert "the calibrated run" in measured["assumptions"]
    assert measured["walk_cycles"] == plain["walk_cycles"] and measured["speedup"] != plain["speedup"]
    ran = pt(*ask, "--calibration", tmp_path / "none.toml")
    assert is_one_line(ran, 2) and "none.toml" in ran.err


def test_counters_of_a_larger_run_than_the_traced_one_are_refused(pt, sample, tmp_path):
    """3e8 walks of 1,000 cycles each."""
    counters = {"cycles": 8e11, "dtlb_load_misses.walk_pending": 2e11, "dtlb_store_misses.walk_pending": 1e11}
    walks = {"dtlb_load_misses.walk_completed": 2e8, "dtlb_store_misses.walk_completed": 1e8}
    perf, kept = tmp_path / "large.csv", tmp_path / "large.toml"
    perf.write_text("".join(f"{int(n)},,{name}:u,100,100.00,,\n" for name, n in (counters | walks).items()))
    made = pt("calibrate", "--local", perf, "--native", "-o", kept)
    assert made.code == 0, made.err
    ran = pt("whatif", sample, "-p", "mitosis", "--calibration", kept)
    assert is_one_line(ran, 2) and "large: 1000 cycles per walk counted" in ran.err
