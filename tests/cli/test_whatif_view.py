"""What `whatif` and the commands beside it print for people: sentences, tables, notes, refusals."""

import json
import re
import shutil
from dataclasses import replace

import msgspec
import pytest

from command_line import is_one_line, result_of
from ptanalyze import synth
from ptanalyze.analysis.ranking import best_first, rank
from ptanalyze.analysis.setup import REPLICATE
from ptanalyze.analysis.verdict import GAIN, NONE, verdict
from ptanalyze.analysis.whatif import replay
from ptanalyze.cli import ptanalyze, run
from ptanalyze.cli.replay_options import configured, given
from ptanalyze.core.columns import Section, message, messages
from ptanalyze.core.errors import CHECKOUT, DEFAULT_MACHINE, bundled, show_duration, size_in_words
from ptanalyze.core.interval import Interval, gains, interval
from ptanalyze.core.machine import load_machine
from ptanalyze.formats.capture import load
from ptanalyze.formats.measured import write_machine
from ptanalyze.policies import BOUND, policies
from ptanalyze.show.terminal import print_view
from ptanalyze.show.whatif import earned
from ptanalyze.show.whatif import memory_cell as memory
from ptanalyze_law.perf_stat import ACCESSES, ELAPSED, PENDING


@pytest.fixture(scope="module")
def results(sample):
    return replay(sample, ["mitosis"]).results


def sped_up(result, low, middle, high):
    return replace(result, speedup=Interval(low, middle, high))


def earning(result, once, speedup=(1.03, 1.052, 1.074)):
    """Result that is faster, with a one-time cost of so many runs of half a second."""
    return sped_up(replace(result, once_runs=once, first_runs=0, run_seconds=0.5), *speedup)


@pytest.mark.parametrize("policy", ["mitosis", "hydra"])
def test_the_default_sample_pays_back(policy):
    found = best(replay("lookup", policy).results)
    assert found.kind == GAIN and found.result.policy == policy and found.result.speedup.low > 1.05
    assert found.message.numbers["payback"].code == "later"


def best(results):
    """The Answer of the best policy."""
    return verdict(results, None).answers[0]


@pytest.mark.parametrize(("once", "code"), [(None, "none"), (0.0, "none"), (2.0, "later")])
def test_an_answer_says_when_its_cost_is_earned_back(results, once, code):
    """Once a line of another section stood in its place, whose numbers nobody gives."""
    found = best([results[0], earning(results[1], once)]).message
    back = found.numbers["payback"]
    assert back.code == code and str(found).endswith(f"{back}.")
    assert code == "none" or str(back).endswith(" 15-34 s")  # 1 s / (1 - 1 / 1.074), 1 s / (1 - 1 / 1.03)


def test_no_sentence_stands_twice_and_counts_are_written_with_their_nouns():
    every = [line for lines in messages().values() for line in lines.values() if len(line) > 40]
    assert len(every) > 150 and len({*every}) == len(every)
    nouns = "|".join(re.findall(r":#([a-z ]+)}", text := "\n".join(every)))
    assert not re.findall(rf"{{\w+:,}} (?:{nouns})s\b", text), '"1 pages"'


def told(result, policy, speedup, pages, once=0.0):
    """The result as another policy's, with so many more table pages at its peak, and one-time cycles."""
    pages = {**result.pages, "guest_peak": result.pages["guest_peak"] + pages}
    return sped_up(replace(result, policy=policy, pages=pages, once_cycles=once), *speedup)


def test_equal_gains_rank_by_memory_then_one_time_cost(results):
    base = results[0]
    dear = told(base, "mitosis", (1.06, 1.2249, 1.42), 16_000)
    small = told(base, "hydra", (1.06, 1.2151, 1.42), 4, 9e9)
    quick = told(base, "wasp", (1.06, 1.2211, 1.42), 4, 8e9)
    every = [base, dear, small, told(base, "interleave", (1.0, 1.0004, 1.0004), -100), quick]
    ranked = [one.result.policy for one in rank(every, horizon=1e12)]
    assert ranked == ["wasp", "hydra", "mitosis", base.policy, "interleave"]
    assert [one.policy for one in best_first(every)] == ["wasp", "hydra", "mitosis", "interleave"]
    assert best(every).result is quick
    apart = told(base, "hydra", (1.06, 1.226, 1.42), 32_000)
    assert best([*every, apart]).result is apart, "what can be read decides first"


def test_a_horizon_weighs_one_time_costs(results):
    def once(result, cycles):
        return replace(result, once_cycles=cycles, run_cycles=1e9, run_seconds=1.0)

    base = once(sped_up(results[0], 1, 1, 1), 0.0)
    fast, slow = (told(base, name, (at,) * 3, 0) for name, at in (("mitosis", 1.5), ("hydra", 1.2)))
    every = [base, once(fast, 1e9), once(slow, 0.0)]
    assert [one.result.policy for one in rank(every, horizon=1)] == ["hydra", base.policy, "mitosis"]
    assert [one.result.policy for one in rank(every, horizon=3600)] == ["mitosis", "hydra", base.policy]


def test_what_no_one_can_read_is_no_gain(results):
    for high in (1.0, 1.0004):
        assert best([results[0], sped_up(results[1], 0.9999, 1.0001, high)]).kind == NONE


def test_bounds_are_never_best(results):
    bound = sped_up(replace(results[1], policy="ideal"), 1.2, 1.3, 1.4)
    mitosis = sped_up(results[1], 1.03, 1.052, 1.074)
    assert best([results[0], bound, mitosis]).result is mitosis
    assert best([results[0], bound]).kind == BOUND and not verdict(results[:1], None).answers


def test_memory_is_counted_at_its_peak(results):
    base, pages = results[0], results[0].pages["guest_peak"]
    faster = sped_up(results[1], 1.1, 1.2, 1.3)
    peak = replace(faster, pages={**faster.pages, "guest_peak": pages + 512})
    assert best([base, peak]).message.numbers["memory"] == message("memory", "more", size=2 << 20, held=0)
    assert (memory(peak, base), memory(base, base)) == ("+2.0 MiB", size_in_words(pages * 4096))
    [_, ranked] = sorted(rank([base, peak]), key=lambda advice: advice.extra_bytes)
    assert ranked.extra_bytes == 2 << 20
    unused = replace(peak, facts={"bloat_bytes": 4 << 20})
    held = message("memory", "held", size=6 << 20, held=4 << 20)
    assert best([base, unused]).message.numbers["memory"] == held


def test_costs_without_gain_never_pay_back(results):
    for speedup, once, words in (
        (1.0001, 0, "-"), (1.1, 0, "at once"), (1.0001, 4, "never"), (1.0, 4, "never"), (0.99, 0, "never"),
    ):  # fmt: skip
        assert earned(earning(results[1], once, (speedup,) * 3)) == words
    assert earned(results[0]) == "-" and earned(earning(results[1], 0.1, (0.9, 1.1, 1.25))) == "250 ms-never"
    assert earned(earning(results[1], 0, (0.9, 1.1, 1.25))) == "at once-never"


def test_a_range_of_time_has_the_unit_of_its_end():
    ranges = (0.37, 2.4), (0.057, 12600), (0.0449, 0.0451), (50, 70)
    assert [show_duration(*one) for one in ranges] == ["0.37-2.4 s", "57 ms-3.5 h", "45 ms", "0.83-1.2 min"]


def test_ratios_near_one_have_three_decimals():
    assert interval(Interval(1.0034, 1.0055, 1.0135)) == "1.006x (1.003-1.014)"
    assert interval(Interval(1.06, 1.22, 1.42)) == "1.22x (1.06-1.42)"
    assert gains(Interval(1.0034, 1.0055, 1.0135)) and not gains(Interval(1.0002, 1.1, 1.2))


# The commands that replay policies, asked as a new user would: sweep, advise, policies, a+b.


def test_the_readme_quotes_what_its_commands_answer(pt, tmp_path):
    readme = (CHECKOUT / "README.md").read_text("utf-8")
    (words,) = re.findall(r"^ptanalyze (whatif vm-numa-visible .*-p vmitosis-replicate)$", readme, re.M)
    (quoted,) = re.findall(r'"(vmitosis-replicate: [^"]*)"', " ".join(readme.split()))
    assert quoted in " ".join(pt(*words.split()).out.split())
    (words,), (quoted,) = (re.findall(how, readme) for how in (r"`(synth [^`]*)`", r'\*"(At [^"]*)"\*'))
    pt(*words.split(), "-o", tmp_path / "made")
    assert " ".join(quoted.split()) in " ".join(pt("whatif", tmp_path / "made", "-p", "hydra").out.split())


WORK = ["instructions", *(ACCESSES[0].format(what) for what in ("load", "store"))]


@pytest.mark.parametrize(
    ("cpu", "native"),
    [("skylake", []), ("sapphire_rapids", WORK), ("haswell", None), ("", None)],
)
def test_the_next_line_counts_what_is_read(pt, sample, vm_sample, tmp_path, monkeypatch, cpu, native):
    (tmp_path / "pmu_name").write_text(cpu)
    monkeypatch.setattr("ptanalyze.cli.replay_options.PMU_NAME", tmp_path / "pmu_name")
    for capture, more in ((sample, native), (vm_sample, None)):  # a VM's program is not started here
        out = pt("whatif", capture, "-p", "mitosis").out
        typed = out.partition("perf stat ")[2].partition("./app")[0]
        events = ",".join(part.split()[0] for part in typed.split("-e ")[1:]).split(",") if typed else []
        expected = [] if more is None else ["cycles", *PENDING, *more, ELAPSED]
        assert sorted(event.removesuffix(":u") for event in events) == sorted(expected)
        assert ("--native" in out) == bool(typed and capture is sample)


RUN = "-m ice-lake --cold --from 10% --stands-for 64x --calibration my.toml --autonuma-set delay_ms=1"


@pytest.mark.parametrize(
    ("typed", "more", "kept"),
    [
        (f"whatif {RUN} --fixed none -p hydra --full", (), f"{RUN} --fixed none"),
        ("whatif --sizes 4 --fixed none --baseline linux", (), ""),
        ("whatif --sizes 4 --fixed none", ("sizes",), "--sizes 4 --fixed none"),
        ("advise -p all --horizon 1m --csv", ("names", "horizon", "memory"), "-p all --horizon 1m --cold"),
        ("classify --weight leaf -m ice-lake", ("weights",), "--weight leaf -m ice-lake"),
        ("calibrate -m ice-lake --native", (), "-m ice-lake"),
    ],
)
def test_lines_to_type_carry_what_was_given_as_it_was_typed(monkeypatch, typed, more, kept):
    monkeypatch.setenv("PTANALYZE_ADVISE_COLD", "1")
    name, *words = typed.split()
    with ptanalyze.make_context("ptanalyze", [name, *words]) as top:
        command = top.command.get_command(top, name)
        with command.make_context(name, words, parent=top):
            assert sorted(given(*more)) == sorted(kept.split())


def test_every_screen_carries_it_and_names_a_machine_with_all_nodes(pt, sample, tmp_path, monkeypatch):
    monkeypatch.setattr("ptanalyze.cli.replay_options.find_spec", bool)
    assert re.search(r"ptanalyze report .* --from 6%", pt("whatif", sample, "--from", "6%").out)
    assert (
        "report" not in pt("advise", sample, "-p", "hydra", "-p", "hydra:prefetch=3").out.partition("Next")[2]
    )
    made = tmp_path / "made"
    eight = pt("synth", "-o", made, "--size", "16M", "--accesses", "9000", "--nodes", "8")
    screens = [pt(name, sample, "-m", "hydra-haswell") for name in ("whatif", "advise", "classify")]
    for ran in (*screens, eight, pt("info", made), pt("check", made)):
        lines = re.findall(r"ptanalyze (?:whatif|advise|classify|report) .*", ran.out)
        assert lines and all(" -m hydra-haswell" in line for line in lines)


def test_policies_says_what_each_needs_and_follows(pt):
    listed = {row["name"]: row for row in result_of(pt("policies", "--json"))}
    assert listed["hydra"]["needs"] == ["trace", "node numbers"]
    assert listed["vmitosis-replicate"]["acts_on"] == ["ePT", "gPT"]
    assert all(row["source"] for row in listed.values())
    assert pt("policies", "wonder").code == 2


def test_combined_policies_commute(pt, vm_sample):
    both = [
        result_of(pt("whatif", vm_sample, "-p", name, "--set", "layers=ept", "--json"))[1]
        for name in ("hydra+vmitosis-replicate", "vmitosis-replicate+hydra")
    ]
    assert both[0] == both[1]
    assert both[0]["leaf_LR_share"] == both[0]["leaf_RR_share"] == 0 < both[0]["ept_bytes_extra"]
    ran = pt("whatif", vm_sample, "-p", "hydra+mitosis")
    assert is_one_line(ran, 2) and "both act on" in ran.err


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A capture whose leaf entries fit the caches."""
    place = tmp_path_factory.mktemp("small") / "made"
    assert run(["synth", "-o", str(place), "--size", "16M", "--accesses", "40000", "--no-init-trace"]) == 0
    return place


def test_larger_runs_are_answered_unasked(pt, small, tmp_path):
    ask, drawn = ("whatif", small, "-p", "mitosis"), tmp_path / "sizes.svg"
    drawing = ("--plot", drawn, "--plot-kind", "sizes")
    rows = result_of(pt(*ask, "--sizes", "16,512", *drawing, "--json"))
    assert [size["stands_for"] for size in rows[1]["sizes"]] == [1, 16, 512] and drawn.exists()
    assert rows[1]["sizes"][2]["speedup"] > 1.05 and {size["speedup"] for size in rows[0]["sizes"]} == {1}
    advised = result_of(pt("advise", small, "-p", "mitosis", "--sizes", "512", "--json"))
    assert [*advised["sizes"]] == ["mitosis"]
    assert advised["sizes"]["mitosis"][1]["speedup"] == rows[1]["sizes"][2]["speedup"]
    for sizes in ("x", "4,", "4,,16", "-4", "0", "1e9"):
        assert is_one_line(pt(*ask, "--sizes", sizes), 2)
    assert is_one_line(pt(*ask, *drawing, "--sizes", "1"), 2)


def test_a_larger_run_is_answered_or_refused(pt, small):
    row = result_of(pt("whatif", small, "-p", "mitosis", "--stands-for", "8G", "--json"))[1]
    assert {"scale", "of-one-size"} <= {finding["code"] for finding in row["findings"]}
    for wrong in ("1M", "x", "16x --cold", "16x --weight leaf", "16x --fixed nowhere"):
        assert is_one_line(pt("whatif", small, "--stands-for", *wrong.split()), 2)
    assert is_one_line(pt("whatif", small, "--fixed", "none"), 2)
    for command, more in (("sweep", ("--set", "prefetch=0,9")), ("timeline", ())):
        assert pt(command, small, "-p", "hydra", *more, "--stands-for", "512x").code == 0


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
def test_refused_policies_are_named_once(pt, oblivious, command):
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
def test_an_oblivious_guest_gets_allowed_policies(pt, oblivious, command):
    ran = pt(command, oblivious, *COMPARISONS[command], "--json")
    whole = json.loads(ran.out)
    assert ran.code == 0 and "refused" not in whole
    named = {row["policy"].partition(":")[0] for row in whole["result"]}
    assert named == {"linux", "vmitosis-migrate", "vmitosis-replicate"}
    assert pt(command, "sysbench-memory", *COMPARISONS[command]).code == 0


FEWER = ("-m", "ice-lake", "--threads-to-nodes", "round-robin", "--baseline", "first-touch")


def test_tables_on_missing_nodes_are_refused(pt):
    """Whether a policy copies from captured tables or keeps them: refused, or it needs neither."""
    for name in dict.fromkeys([row["name"] for row in json.loads(pt("policies", "--json").out)["result"]]):
        ran = pt("whatif", "vm-numa-visible", *FEWER, "-p", name)
        assert ran.code in (0, 2), (name, ran.err)
        assert ran.code == 0 or (ran.err.count("\n") == 1 and ran.err.startswith("ptanalyze: policy ")), name


def test_what_plays_no_part_is_not_said(pt, sample, monkeypatch):
    late = pt("whatif", sample, "-p", "linux", "--autonuma")
    assert late.code == 0 and "hinting fault" not in late.out, "no fault was taken"
    monkeypatch.setattr("ptanalyze.analysis.setup.own_machine", lambda capture: ("ice-lake", "ice-lake"))
    refused = pt("fragmentation", sample, "--after")
    assert refused.code == 2 and "Machine model" not in refused.out + refused.err


# `ptanalyze timeline`: a row per policy and window, as a table, CSV and JSON; what it refuses.


def test_timeline_has_a_row_per_window(pt, vm_sample):
    moved = ("--threads-to-nodes", "0,0,0,0,0", "--move-threads", "0:1@30%",
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-p", "linux:x=1"), "x = 1: no such parameter"),
        (("-p", "vmitosis-migrate:layers"), "-p vmitosis-migrate:layers: write KEY=VALUE"),
        (("-p", "linux", "--move-threads", "0-1"), "move-threads = 0-1"),
        (("-p", "linux", "--autonuma-set", "by=me"), "by = me"),
        (("-p", "linux", "--autonuma-set", "guest"), "--autonuma-set guest: write KEY=VALUE"),
    ],
)
def test_the_command_refuses_in_one_line(pt, vm_sample, arguments, said):
    assert is_one_line(ran := pt("timeline", vm_sample, *arguments), 2) and said in ran.err


def test_lines_in_a_pipe_are_whole_unless_columns_says_otherwise(capsys, monkeypatch):
    sentence = "word " * 200 + "end"
    for columns, lines in ("", 1), ("80", 13):
        monkeypatch.setenv("COLUMNS", columns)
        print_view([Section(lines=[sentence])])
        assert len(capsys.readouterr().out.splitlines()) == lines


def test_on_one_node_no_table_of_placements_is_shown_but_how_to_measure_pages(pt, tmp_path):
    sample = synth(tmp_path / "own", "16M", accesses=20_000, nodes=1, threads=1, init_trace=False).directory
    model = msgspec.structs.replace(load_machine(DEFAULT_MACHINE).resized(1), name="single")
    write_machine(tmp_path / "single.toml", model)
    on = ("-m", tmp_path / "single.toml")
    for words in (("whatif", sample), ("whatif", sample, "-p", "linux"), ("advise", sample, "-p", "hydra")):
        said = pt(*words, *on).out
        assert said.startswith("One node: ") and "1.00x" not in said and "trial --pages" in said
        assert f"-m {DEFAULT_MACHINE}" in said
        assert re.search(r"trial --pages (-- \./app|-p PID)", said), "synthetic: no program"
    assert re.search(r"trial --pages (--|-p) lookup\b", pt("advise", "lookup", *on, "-p", "thp").out)
    with_pages = pt("whatif", sample, *on, "-p", "mitosis", "-p", "thp", "--weight", "walks")
    assert "thp" in with_pages.out and "1.00x" not in with_pages.out
    assert "changes nothing: mitosis" in with_pages.out and "mainline" not in with_pages.out
    assert pt("whatif", sample, *on, "--full").out.count("mitosis")
    assert is_one_line(pt("advise", "lookup", *on, "--stands-for", "512x"), 2), "stripped: nothing is known"


@pytest.mark.parametrize(
    ("names", "settings", "mode"),
    [(policies(), [], "no-p"), ([], [f"{REPLICATE}.mode=no-f"], "no-f"), ([REPLICATE], [], None)],
)
def test_a_guest_that_sees_no_nodes_asks_for_them_unless_a_mode_is_set(names, settings, mode):
    assert dict(configured(list(names), settings, load("vm-numa-oblivious")))[REPLICATE].get("mode") == mode
