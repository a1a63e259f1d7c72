"""What `whatif` and the commands beside it print for people: sentences, tables, notes, refusals."""

import csv
import io
import json
import math
import re
import shutil
from dataclasses import replace

import pytest

from command_line import is_one_line
from ptanalyze.analysis.ranking import best_first, rank
from ptanalyze.analysis.verdict import GAIN, NONE, verdict
from ptanalyze.analysis.whatif import replay
from ptanalyze.core.columns import Matrix, Quantity
from ptanalyze.core.errors import Budget, bundled, size_in_words
from ptanalyze.core.interval import Interval, as_read, gains, interval
from ptanalyze.core.messages import message
from ptanalyze.cost.price import NEVER
from ptanalyze.cost.result import TIME
from ptanalyze.formats.record import seal
from ptanalyze.policies import BOUND
from ptanalyze.show.terminal import print_view
from ptanalyze.show.whatif import counted, earned
from ptanalyze.show.whatif import memory_cell as memory

# What `whatif` prints for people: a sentence, one table with policies across, notes.

SIX = ("mitosis", "hydra", "vmitosis-replicate", "vmitosis-migrate", "ptemagnet", "shadow")


@pytest.fixture(scope="module")
def results(sample):
    return replay(sample, ["mitosis"]).results


def sped_up(result, low, middle, high):
    return replace(result, speedup=Interval(low, middle, high))


def earning(result, runs, cycles, seconds=0.5):
    """Result that is faster, with other one-time cycles, recovered after other runs."""
    back = runs and Interval(*runs)
    earned = replace(result, break_even=back, once_cycles=cycles, run_seconds=seconds)
    return sped_up(earned, 1.03, 1.052, 1.074)


@pytest.mark.parametrize("policy", ["mitosis", "hydra"])
def test_the_default_sample_gains_when_warm_and_earns_its_price_back(policy):
    found = best(replay("lookup", policy).results)
    assert found.kind == GAIN and found.result.policy == policy and found.result.speedup.low > 1.05
    assert found.message.numbers["payback"].code == "later"


def best(results):
    """The Answer of the best policy."""
    return verdict(results, None).answers[0]


def told(result, policy, speedup, pages, once=0.0):
    """The result as another policy's, with so many more table pages at its peak, and one-time cycles."""
    more = replace(result, policy=policy, table_pages_peak=result.table_pages_peak + pages)
    return sped_up(replace(more, once_cycles=once), *speedup)


def test_what_is_printed_alike_goes_to_less_memory_then_to_the_lower_one_time_cost_on_every_screen(results):
    base = results[0]
    dear = told(base, "mitosis", (1.06, 1.2249, 1.42), 16_000)
    small = told(base, "hydra", (1.06, 1.2151, 1.42), 4, 9e9)
    quick = told(base, "wasp", (1.06, 1.2211, 1.42), 4, 8e9)
    free = told(base, "interleave", (1.0, 1.0004, 1.0004), -100)
    every = [base, dear, small, free, quick]
    ranked = [one.result.policy for one in rank(every, Budget(), 1e12)]
    assert ranked == ["wasp", "hydra", "mitosis", base.policy, "interleave"]
    assert [one.policy for one in best_first(every)] == ["wasp", "hydra", "mitosis", "interleave"]
    assert best(every).result is quick
    apart = told(base, "hydra", (1.06, 1.226, 1.42), 32_000)
    assert best([*every, apart]).result is apart, "what can be read decides first"


def test_over_a_horizon_a_one_time_cost_decides_where_it_can_be_read(results):
    def once(result, cycles):
        return replace(result, once_cycles=cycles, run_cycles=1e9, run_seconds=1.0)

    base = once(sped_up(results[0], 1, 1, 1), 0.0)
    fast, slow = (told(base, name, (at,) * 3, 0) for name, at in (("mitosis", 1.5), ("hydra", 1.2)))
    every = [base, once(fast, 1e9), once(slow, 0.0)]
    assert [one.result.policy for one in rank(every, Budget(), 1)] == ["hydra", base.policy, "mitosis"]
    assert [one.result.policy for one in rank(every, Budget(), 3600)] == ["mitosis", "hydra", base.policy]


def test_what_no_one_can_read_is_no_gain(results):
    for high in (1.0, 1.0004):
        assert best([results[0], sped_up(results[1], 0.9999, 1.0001, high)]).kind == NONE


def test_a_policy_that_nobody_can_have_is_never_best(results):
    bound = sped_up(replace(results[1], policy="ideal"), 1.2, 1.3, 1.4)
    mitosis = sped_up(results[1], 1.03, 1.052, 1.074)
    assert best([results[0], bound, mitosis]).result is mitosis
    assert best([results[0], bound]).kind == BOUND and not verdict(results[:1], None).answers


def test_six_policies_fit_80_columns(pt, vm_sample, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ran = pt("whatif", vm_sample, *(word for name in SIX for word in ("-p", name)), "--full")
    lines = ran.out.splitlines()
    assert ran.code == 0 and max(map(len, lines)) <= 80
    assert "--full" not in ran.out
    speedups = [word for line in lines if re.match(r" +speed-up +\d", line) for word in line.split()[1:]]
    assert len(speedups) == 1 + len(SIX) and speedups[0] == "1.000"


def test_what_is_zero_under_every_policy_is_left_out(pt, sample):
    out = pt("whatif", sample, "-p", "mitosis", "--full").out
    assert "replica faults" not in out and "VM exits" not in out and "ePT" not in out
    assert "replica faults" in pt("whatif", sample, "-p", "hydra", "--full").out


def test_memory_is_that_of_the_peak_in_the_sentence_the_table_and_the_ranking(results):
    base, peak = (
        results[0],
        replace(sped_up(results[1], 1.1, 1.2, 1.3), table_pages_peak=results[0].table_pages_peak + 512),
    )
    assert best([base, peak]).message.numbers["memory"] == message("memory", "more", size=2 << 20, held=0)
    assert memory(peak, base) == "+2.0 MiB" and memory(base, base) == size_in_words(
        base.table_pages_peak * 4096
    )
    [_, ranked] = sorted(rank([base, peak], Budget()), key=lambda advice: advice.extra_bytes)
    assert ranked.extra_bytes == 2 << 20
    unused = replace(peak, facts={"bloat_bytes": 4 << 20})
    assert best([base, unused]).message.numbers["memory"] == message(
        "memory", "held", size=6 << 20, held=4 << 20
    )


def test_a_cost_without_a_gain_is_never_earned_back_and_no_cost_is_no_matter(results):
    same = earning(results[1], (0, 0, 0), 0)
    for speedup, runs, words in (
        (1.0001, 0, "-"), (1.1, 0, "at once"), (1.0001, 4, "never"), (1.0, NEVER, "never"),
        (0.99, NEVER, "never"),
    ):  # fmt: skip
        one = sped_up(earning(same, (runs,) * 3, 0), speedup, speedup, speedup)
        assert earned(one.row()) == words
        after = [q.values[0] for q in counted([one.row()], TIME, False) if "earned" in q.name]
        assert [value is None for value in after] == [words == "-"] * 2
        assert [value == NEVER for value in after] == [words == "never"] * 2
    assert earned(results[0].row()) == "-"
    assert earned({**results[0].row(), "pays_back": math.nan}) == "-", "as frames have it"


def test_a_ratio_close_to_one_is_written_with_three_decimals_and_so_are_its_bounds():
    assert interval(Interval(1.0034, 1.0055, 1.0135)) == "1.006x (1.003-1.014)"
    assert interval(Interval(1.06, 1.22, 1.42)) == "1.22x (1.06-1.42)"
    assert gains(Interval(1.0034, 1.0055, 1.0135)) and not gains(Interval(1.0002, 1.1, 1.2))


def test_quantities_are_rows_under_headings(capsys, monkeypatch):
    names = ["linux", "vmitosis-replicate", "ptemagnet+hydra"]
    cycles = Quantity("walk cycles", [123_456_789, 98_765_432, None])
    matrix = Matrix(names, {"Time": [cycles, Quantity("speed-up", [1, 1.0523, None], "ratio")]})
    for width, tables in ((120, 1), (44, 2)):
        monkeypatch.setenv("COLUMNS", str(width))
        print_view([matrix])
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert lines.count(["Time"]) == tables
        assert [word for line in lines if line[:2] == ["walk", "cycles"] for word in line[2:]] == [
            "123,456,789", "98,765,432", "-",
        ]  # fmt: skip
        assert max(len(line) for line in lines) <= 5
    assert ["replicate"] in [line[-1:] for line in lines]


def test_next_lines_are_short_and_name_the_capture(pt, sample):
    given = ("--machine", "hydra-haswell", "--threads-to-nodes", "block")
    following = pt("whatif", sample, "-p", "hydra", *given).out.partition("\nNext\n")[2]
    assert f"ptanalyze advise {sample}\n" in following and f"ptanalyze report {sample}\n" in following
    assert "--full" in following and "hydra-haswell" not in following


# The commands that replay policies, asked as a new user would: sweep, compare, advise, policies, a+b.


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


def test_results_of_two_policies_differ(pt, sample):
    found = result_of(pt("diff", f"{sample}@mitosis", f"{sample}@hydra,prefetch=0", "--cold", "--json"))
    changed = {row["quantity"]: row for row in found["differences"]}
    assert changed["pte_copies"]["a"] == 0 < changed["pte_copies"]["b"]
    assert changed["pte_copies"]["change"] == changed["pte_copies"]["b"]
    assert "walks" not in changed and not found["exact"]


def test_a_result_equals_itself_exactly(pt, sample, tmp_path):
    written = tmp_path / "mitosis.json"
    assert pt("whatif", sample, "-p", "mitosis", "--baseline", "mitosis", "-o", written).code == 0
    assert pt("diff", written, written, "--exact").code == 0
    other = tmp_path / "other.json"
    content = json.loads(written.read_text())
    content["result"][0]["walks"] += 1
    other.write_text(json.dumps(content))
    ran = pt("diff", written, other, "--exact")
    assert is_one_line(ran, 1)
    assert "walks" in ran.out and "different in 1" in ran.out


def test_advice_ranks_and_ends_in_a_sentence(pt, sample):
    report = result_of(pt("advise", sample, "--json"))
    assert report["workload"] == "Wide"
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
    assert listed["hydra"]["needs"] == ["trace", "node numbers"]
    assert "sections 3 and 4" in listed["hydra"]["source"]
    assert listed["vmitosis-replicate"]["acts_on"] == ["ePT", "gPT"]
    assert all(row["source"] for row in listed.values())
    one, few, every = (pt("policies", *more).out for more in (["hydra"], [], ["--full"]))
    assert "prefetch" in one and "mitosis" not in one and "prefetch" in every and "prefetch" not in few
    assert all(few.count(f"\n {name} ") == 1 for name in listed) and few.index(" thp ") < few.index(" wasp ")
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


def test_a_capture_that_the_caches_hold_is_answered_for_larger_runs_too(pt, tmp_path):
    made = pt("synth", "-o", tmp_path / "made", "--size", "16M", "--accesses", "40000", "--no-init-trace")
    assert made.code == 0, made.err
    ask = "whatif", tmp_path / "made", "-p", "mitosis"
    first, none = pt(*ask).out, pt(*ask, "--sizes", "1").out
    assert "the leaf entries fit the caches" in first and "larger run" not in none
    rows = result_of(pt(*ask, "--sizes", "16,512", "--json"))
    assert [size["stands_for"] for size in rows[1]["sizes"]] == [1, 16, 512]
    assert rows[1]["sizes"][2]["speedup"] > 1.05
    for command in ("whatif", "advise"):
        larger = pt(command, tmp_path / "made", "-p", "mitosis", "--stands-for", "16x").out
        assert "a run of 16 times the captured memory" in " ".join(larger.split()) and "a run of" not in none
    assert [size["speedup"] for size in rows[0]["sizes"]] == [1, 1, 1]
    advised = result_of(pt("advise", tmp_path / "made", "-p", "mitosis", "--sizes", "512", "--json"))
    assert advised["sizes"]["mitosis"][1]["speedup"] == rows[1]["sizes"][2]["speedup"]
    advised = pt("advise", tmp_path / "made", "--sizes", "512").out
    assert " at 8.0 GiB" in advised
    drawn = tmp_path / "sizes.svg"
    assert pt(*ask, "--sizes", "16,512", "--plot", drawn, "--plot-kind", "sizes").code == 0 and drawn.exists()
    for sizes in ("x", "4,", "4,,16", "-4", "0", "1e9"):
        assert is_one_line(pt(*ask, "--sizes", sizes), 2)
    assert is_one_line(pt(*ask, "--plot", drawn, "--plot-kind", "sizes", "--sizes", "1"), 2)


def test_an_answer_for_a_larger_run_says_so_and_what_it_cannot_answer(pt, tmp_path):
    made = pt("synth", "-o", tmp_path / "made", "--size", "16M", "--accesses", "40000", "--no-init-trace")
    assert made.code == 0, made.err
    ran = pt("whatif", tmp_path / "made", "-p", "mitosis", "--stands-for", "8G", "--full")
    assert "stands for a program of 512 times its memory" in ran.out and "of one size" in ran.out
    assert ran.out.startswith("mitosis: 1.") and "for 66.0 MiB more memory" in ran.out
    for wrong in (("--stands-for", "1M"), ("--stands-for", "x"), ("--stands-for", "16x", "--cold")):
        assert is_one_line(pt("whatif", tmp_path / "made", *wrong), 2)
    assert is_one_line(pt("whatif", tmp_path / "made", "--stands-for", "16x", "--weight", "leaf"), 2)
    assert is_one_line(pt("whatif", tmp_path / "made", "--stands-for", "16x", "--fixed", "nowhere"), 2)
    swept = pt("sweep", tmp_path / "made", "-p", "hydra", "--set", "prefetch=0,9", "--stands-for", "512x")
    assert swept.code == 0 and "speed-up" in swept.out
    assert pt("timeline", tmp_path / "made", "-p", "mitosis", "--stands-for", "512x").code == 0


def test_two_captures_of_one_program_answer_for_a_third_size(pt, tmp_path):
    for size in ("16M", "64M"):
        made = pt("synth", "-o", tmp_path / size, "--size", size, "--accesses", "40000", "--no-init-trace")
        assert made.code == 0, made.err
    both = tmp_path / "16M", tmp_path / "64M"
    ran = pt("whatif", *both, "-p", "mitosis", "--stands-for", "8G")
    assert ran.out.startswith("mitosis: 1.")
    assert "in a line with both" in pt("whatif", *both, "-p", "mitosis", "--stands-for", "8G", "--full").out
    for wrong in (both, (both[0], both[0], "--stands-for", "4x"), (*both, "--stands-for", "20M")):
        assert is_one_line(pt("whatif", *wrong), 2)


# Every comparison names the policies that the capture does not allow, in all its forms, and goes on.

COMPARISONS = {"whatif": (), "timeline": ("--windows", "3"), "sweep": ("--set", "placement=round-robin")}
BOTH = ("-p", "hydra", "-p", "vmitosis-replicate:mode=no-p")


@pytest.fixture(scope="module")
def oblivious(tmp_path_factory):
    copy = tmp_path_factory.mktemp("captures") / "oblivious"
    return shutil.copytree(bundled("samples") / "vm-numa-oblivious", copy)


def policies_of(command):
    return ("-p", "hydra", "-p", "linux") if command == "sweep" else BOTH


@pytest.mark.parametrize("command", COMPARISONS)
def test_a_refused_policy_is_named_in_a_line_and_the_others_compared(pt, oblivious, command):
    asked = (command, oblivious, *policies_of(command), *COMPARISONS[command])
    people, machine, table = pt(*asked), pt(*asked, "--json"), pt(*asked, "--csv")
    assert (people.code, machine.code, table.code) == (0, 0, 0)
    assert people.out.count("policy hydra: ") == 1
    whole = json.loads(machine.out)
    assert list(whole["refused"]) == ["hydra"] and "NUMA-oblivious" in whole["refused"]["hydra"]
    other = policies_of(command)[3]
    named = other if command == "timeline" else other.partition(":")[0]
    assert {row["policy"] for row in whole["result"]} == {named, "linux"}
    assert table.err.count("ptanalyze: policy hydra: ") == 1 and "hydra" not in table.out


@pytest.mark.parametrize("command", COMPARISONS)
def test_nothing_left_to_compare_is_an_error_of_one_line(pt, oblivious, command):
    ran = pt(command, oblivious, "-p", "hydra", "-p", "mitosis", *COMPARISONS[command])
    assert ran.code == 2 and ran.out == "" and "mode=no-p" in ran.err and ran.err.count("\n") == 1


@pytest.mark.parametrize("command", COMPARISONS)
def test_without_a_policy_an_oblivious_guest_gets_those_that_it_allows(pt, oblivious, command):
    ran = pt(command, oblivious, *COMPARISONS[command], "--json")
    whole = json.loads(ran.out)
    assert ran.code == 0 and "refused" not in whole
    named = {row["policy"].partition(":")[0] for row in whole["result"]}
    assert named == {"linux", "vmitosis-migrate", "vmitosis-replicate"}
    assert pt(command, "sysbench-memory", *COMPARISONS[command]).code == 0


def test_advice_for_an_oblivious_guest_replicates_without_its_help_and_says_what_it_cannot(pt, oblivious):
    result = json.loads(pt("advise", oblivious, "--json").out)["result"]
    ranked = {row["policy"]: row for row in result["ranked"]}
    assert "mode=no-p" in ranked["vmitosis-replicate"]["params"]
    for name in ("mitosis", "hydra", "hydra-2d", "hydra+vmitosis-replicate"):
        assert "NUMA-oblivious" in result["refused"][name] and name not in ranked
    view = pt("advise", oblivious).out
    assert view.count("hydra-2d") == 1


FEWER = (
    "vm-numa-visible",
    "-m",
    "ice-lake",
    "--threads-to-nodes",
    "round-robin",
    "--baseline",
    "first-touch",
)


def test_tables_on_nodes_that_the_machine_lacks_are_no_error_of_the_program_s_own(pt):
    """Whether a policy copies from captured tables or keeps them: refused, or it needs neither."""
    names = [row["name"] for row in json.loads(pt("policies", "--json").out)["result"]]
    for name in dict.fromkeys(names):
        ran = pt("whatif", *FEWER, "-p", name)
        assert ran.code in (0, 2), (name, ran.err)
        assert ran.code == 0 or (ran.err.count("\n") == 1 and ran.err.startswith("ptanalyze: policy ")), name


@pytest.mark.parametrize("policy", ["mitosis", "vmitosis-replicate"])
def test_a_copy_from_a_node_that_the_machine_lacks_is_refused_in_a_line(pt, policy):
    ran = pt("whatif", *FEWER, "-p", policy)
    assert (
        ran.code == 2 and f"policy {policy}: gpt.tables: node = 3: machine ice-lake has nodes 0..1" in ran.err
    )


# `ptanalyze timeline`: a row per policy and window, as a table, CSV and JSON; what it refuses.


def test_the_command_shows_the_windows_of_every_policy(pt, vm_sample):
    moved = ("--threads-to-nodes", "main=0,rest=0", "--move-threads", "0:1@30%",
             "--autonuma-set", "delay_ms=0", "--autonuma-set", "scan_period_ms=5")  # fmt: skip
    code, out, _ = pt(
        "timeline", vm_sample, "-p", "linux", "-p", "vmitosis-migrate:layers=ept", "-p", "vmitosis-replicate",
        *moved, "--windows", 5, "--json",
    )  # fmt: skip
    rows = json.loads(out)["result"]
    assert code == 0 and len(rows) == 15
    linux, migrate, ready = rows[:5], rows[5:10], rows[10:]
    assert migrate[0]["policy"] == "vmitosis-migrate:layers=ept"
    assert [r["walks"] for r in linux] == [r["walks"] for r in migrate] == [r["walks"] for r in ready]
    assert {r["leaf_LL_share"] for r in ready if r["walks"]} == {1.0}
    assert linux[-1]["data_moved"] > 0 and linux[-1]["tables_moved"] == 0 < migrate[-1]["tables_moved"]
    code, out, _ = pt("timeline", vm_sample, "-p", "linux", *moved, "--windows", 3)
    assert code == 0 and "then 0:1@30%" in out and "tables moved" in out and "the kernel moves data" in out
    code, out, _ = pt("timeline", vm_sample, "-p", "linux", *moved, "--windows", 3, "--csv")
    assert [row["policy"] for row in csv.DictReader(io.StringIO(out))] == ["linux"] * 3


def test_balancing_and_none_are_one_answer_of_remote_data_and_hinting_faults(pt, vm_sample):
    on = ("--autonuma", "--autonuma-set", "delay_ms=0", "--autonuma-set", "scan_period_ms=0.1")
    base, off = (result_of(pt("whatif", vm_sample, "-p", "linux", *how, "--json"))[0] for how in (on, ()))
    [marked] = [one for one in base["findings"] if one["code"] == "autonuma"]
    shares = [100 * one["local"]["remote_data"] for one in (base, off)]
    faults = marked["numbers"]["hinting_faults"]
    assert f"{shares[0]:.0f}" != f"{shares[1]:.0f}" and faults > 0
    said = " ".join(pt("whatif", vm_sample, "-p", "linux", *on).out.split())
    assert f"{faults:,} hinting faults" in said and f"{shares[0]:.0f} % of the data remote" in said
    assert f"{shares[1]:.0f} % without it" in said
    assert "hinting faults" not in pt("whatif", vm_sample, "-p", "linux").out


def test_two_of_one_policy_are_told_apart_by_what_differs(pt, vm_sample):
    _, out, _ = pt(
        "timeline", vm_sample, "-p", "vmitosis-migrate:layers=ept", "-p", "vmitosis-migrate",
        "--baseline", "linux", "--windows", 1, "--json",
    )  # fmt: skip
    found = [row["policy"] for row in json.loads(out)["result"]]
    assert found == ["linux", "vmitosis-migrate:layers=ept", "vmitosis-migrate:layers=both"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-p", "linux:x=1"), "x = 1: no such parameter"),
        (("-p", "vmitosis-migrate:layers"), "write KEY=VALUE"),
        (("-p", "linux", "--move-threads", "0-1"), "move-threads = 0-1"),
        (("-p", "linux", "--autonuma-set", "by=me"), "by = me"),
    ],
)
def test_the_command_refuses_in_one_line(pt, vm_sample, arguments, said):
    assert is_one_line(ran := pt("timeline", vm_sample, *arguments), 2) and said in ran.err


def test_without_a_trace_there_is_no_time(pt, vm_sample, tmp_path):
    vm = shutil.copytree(vm_sample, tmp_path / "vm")
    manifest = json.loads((vm / "capture.json").read_text())
    (vm / "trace.ptt").unlink()
    seal(vm, manifest["kind"], manifest["provenance"])
    assert is_one_line(ran := pt("timeline", vm, "-p", "linux"), 2)
    assert "holds no trace" in ran.err and "ptanalyze record" in ran.err
