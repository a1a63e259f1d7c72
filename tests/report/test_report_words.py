"""The report's words: how sure it is, its glossary, its cells."""

import math
from dataclasses import replace

import msgspec
import pytest
from pandas import DataFrame, concat

import ptanalyze
from captures import make_family
from ptanalyze.analysis.findings import SAMPLES
from ptanalyze.analysis.ranking import narrow, share_sentence
from ptanalyze.analysis.setup import counted_by
from ptanalyze.capture.check import Check
from ptanalyze.core.errors import printable
from ptanalyze.core.interval import Interval
from ptanalyze.policies import availability
from ptanalyze.show.report import change, where
from ptanalyze.show.report.cautions import alone, cautions, glance, listed, rival, second_sentence
from ptanalyze.show.report.change import calls_lead, footprint, locality, panels, speedup
from ptanalyze.show.report.page import glossary, linked, policy_terms
from ptanalyze.show.report.picture import LEAST, STYLE, Column, grid, memory, percent, ratio, smaller, word
from ptanalyze.show.report.study import studies
from ptanalyze.show.report.where import walkers

SMALL = {"accesses": 1500, "init_trace": False}


@pytest.fixture(scope="module")
def study(place):
    """Of a run as traced that is too short to earn back copies: they cost nothing here."""
    setup = ptanalyze.Setup.of(cold=True)
    copying = ("pte_copy_ns", "replica_fault_ns", "table_ns", "table_move_ns", "collapse_ns", "zero_ns")
    free = dict.fromkeys(copying, 0.0)
    setup = replace(setup, costs=msgspec.structs.replace(setup.costs, **free))
    (found,) = studies([ptanalyze.synth(place / "words", "16M", **SMALL)], setup)
    return found


def saying(study, *findings):
    return replace(study, results=[replace(study.results[0], findings=findings), *study.results[1:]])


def weights(study, part):
    return [one.weight for one in cautions(study) if part in one.text]


def test_a_failed_check_is_said_first_and_loudly(study):
    failed = Check("gpt: closed", 10, 2, "failed", "two tables have no parent")
    partial = Check("dump: complete", 5, 1, "partial", "one page was gone")
    broken = replace(study, findings=[*study.findings, partial, failed])
    first, second, *_ = cautions(broken)
    assert first.weight == "failed" and "gpt: closed (2 of 10): two tables have no parent" in first.text
    assert second.weight == "partial" and "one page was gone" in second.text
    assert second_sentence(broken).startswith("How sure: 1 check of the capture failed; 1 check of")
    assert weights(study, "found nothing wrong") == ["note"]
    assert not weights(broken, "found nothing wrong")


def test_few_walks_are_said_with_what_that_means(study):
    walks = study.results[0].walks
    assert 0 < walks < 10_000
    (said,) = [one for one in cautions(study) if "page walks were counted" in one.short]
    assert (
        f"Only {walks:,}" in said.text and f"{100 * 1.96 * math.sqrt(0.25 / walks):.1f} points" in said.text
    )
    many = replace(study, results=[replace(study.results[0], walks=10_000)])
    assert not weights(many, "page walks were counted")


def test_samples_losses_and_emulators_are_said(study):
    def with_trace(**facts):
        return replace(study, facts={**study.facts, "trace": {**study.facts["trace"], **facts}})

    assert weights(saying(study, SAMPLES), "holds samples") == ["careful"]
    assert not weights(study, "holds samples")
    assert weights(
        with_trace(**{"lost bytes": 3, "dropped touches": 4}), "3 bytes of it were lost, 4 touches dropped"
    ) == ["careful"]
    assert weights(with_trace(tracer="qemu-user plugin"), "under an emulator") == ["note"]
    assert weights(saying(study, counted_by([])), "no trace: every mapped page") == ["careful"]
    assert weights(saying(study, counted_by([], True)), "the trace is left out") == ["careful"]


def test_a_capture_of_another_number_of_nodes_is_said(study):
    machine = {**study.facts["machine"], "NUMA nodes": 1}
    moved = replace(study, facts={**study.facts, "machine": machine})
    assert weights(moved, "machine with 1 node, the replay is of one with 4") == ["careful"]
    assert not weights(study, "the replay is of one with")


def test_a_wide_interval_is_said_with_what_would_narrow_it(study):
    assert study.best["speedup_high"] - study.best["speedup_low"] > 0.2 * study.best["speedup"]
    assert weights(study, "Counters of one run narrow it") == ["careful"]
    measured = replace(study, calibrated=True)
    assert weights(measured, "A second run with remote page tables narrows it") == ["careful"]
    sure = study.ranked.assign(speedup_low=study.ranked["speedup"], speedup_high=study.ranked["speedup"])
    assert not weights(replace(study, ranked=sure), "is only known to be between")
    lost = study.ranked.assign(speedup_low=0.9)
    assert weights(replace(study, ranked=lost), "may bring no gain") == ["careful"]


def test_a_small_sure_gain_is_called_a_gain_everywhere_and_written_with_enough_digits(study):
    """An interval of 1.0034 to 1.0135 is wholly a gain: neither "may bring no gain" nor 1.00 to 1.01."""
    small = study.ranked.assign(speedup=1.0055, speedup_low=1.0034, speedup_high=1.0135)
    small.loc[small["policy"] == study.baseline, ["speedup", "speedup_low", "speedup_high"]] = 1.0
    close = replace(study, ranked=small)
    others = len(close.rows) - 1
    assert not weights(close, "may bring no gain")
    here = speedup(close).here
    assert f"{others} would be faster by the estimate, 0 slower;" in here
    warm = [replace(one, one_time=replace(one.one_time, within=False)) for one in close.results]
    assert "0 slower in steady state;" in speedup(replace(close, results=warm)).here
    assert f"for {others} the whole interval is a gain" in here
    assert close.written(close.best) == "1.006x (1.003-1.014)"


def test_of_equally_fast_policies_the_figure_of_locality_shows_those_that_differ_from_the_baseline(study):
    local = study.ranked["policy"].isin(["mitosis", "hydra"])
    shares = study.ranked.assign(speedup=1.0001, leaf_LL_share=local.where(local, 0.25).astype(float))
    alike = replace(study, ranked=shares)
    others = {row["policy"] for row in alike.rows} - {"mitosis", "hydra"}
    assert set(panels(alike)[:2]) == {"mitosis", "hydra"} and set(panels(alike)[2:]) == others
    faster = shares.assign(speedup=[1.1 if name == "interleave" else 1.0 for name in shares["policy"]])
    assert panels(replace(study, ranked=faster))[0] == "interleave"
    slow = faster.assign(over=["memory" if name == "interleave" else "" for name in faster["policy"]])
    assert panels(replace(study, ranked=slow))[-1] == "interleave"
    assert f"Shown are {study.baseline} and the 3 fastest; of equally fast" in locality(alike).here


def test_what_can_be_done_is_told_apart_by_what_it_needs(study):
    policies = {row["policy"] for row in study.rows}
    now = {one.label.split()[0] for one in change.today(study)}
    assert now <= {name for name in policies if availability(name).line}
    assert not {"mitosis", "hydra", "ideal"} & now
    [thp] = [one for one in change.today(study) if one.label == "thp"]
    assert (thp.when, thp.line.split("=")[0]) == (", for memory from malloc", "GLIBC_TUNABLES")
    assert "none of Mitosis" in change.research(study)
    slow = replace(study, ranked=study.ranked.assign(speedup=0.9, speedup_low=0.8, speedup_high=0.95))
    assert change.today(slow) == [] and change.research(slow).startswith("No policy of a research kernel")


def test_the_first_number_of_the_page_is_the_share_of_the_run_that_walks_take(study):
    wide = study.results[0].price.walk_share
    if not narrow(wide):
        first = glance(study)[0]
        assert (
            first.value == f"at least {100 * wide.low:.0f} %"
            and first.more == "Perf counters tell how much more"
        )
    share = Interval(0.2, 0.3, 0.5)
    price = replace(study.results[0].price, walk_share=share, table_share=share)
    study = replace(study, results=[replace(study.results[0], price=price)])
    first = glance(study)[0]
    assert first.what == "of this run is page walks" and f"{100 * share.high:.0f} %" in first.value
    assert first.more.endswith("at most 2x without walks alone")
    assert share_sentence(study.results[0]).startswith("Page walks take 20-50 %")
    assert glance(study)[1].what == "page walks", "this program makes no calls"
    price = replace(study.results[0].price, kernel_share=Interval(0.01, 0.02, 0.12))
    second = glance(replace(study, results=[replace(study.results[0], price=price)]))[1]
    assert second.what.startswith("of this run is page faults") and second.value == "1-12 %"


def test_the_memory_and_the_threads_that_walk_most_come_first_with_their_share(place):
    capture = ptanalyze.synth(place / "threads", "16M", threads=4, accesses=40000, init_trace=False)
    (study,) = studies([capture], ptanalyze.Setup.of(cold=True))
    tables = {table.key: table for table in walkers(study)}
    threads = tables["walkers-thread"]
    counts = [row[1].order for row in threads.rows]
    assert len(counts) > 1 and counts == sorted(counts, reverse=True)
    known = study.walkers["thread"]["count"].sum()
    assert (
        sum(counts) <= known and abs(sum(row[2].order for row in threads.rows) - sum(counts) / known) < 1e-9
    )
    assert all(0 <= row[3].order <= 1 for row in threads.rows)
    assert not list(walkers(replace(study, walkers={})))


def test_walks_that_have_no_class_are_no_part_of_the_shares_and_that_is_said(study):
    rows = [("1000-2000", 0, "Local", 30, 1.0), ("2000-3000 [heap]", 0, "Local", 10, 1.0)]
    whole_table = DataFrame(rows, columns=["group", "socket", "class", "count", "share"])
    part = whole_table.copy()
    part.attrs["unresolved"] = {"walks": {"node unknown": 1234}}
    (whole,) = walkers(replace(study, walkers={"vma": whole_table}))
    (some,) = walkers(replace(study, walkers={"vma": part}))
    assert "not counted" not in whole.caption and "1,234 walks" in some.caption
    assert [table.columns[3].hint for table in (whole, some)] == ["of all walks", "of those counted"]


def test_policies_whose_numbers_read_alike_are_as_fast_and_no_rivals(study):
    columns = {"speedup_low": 1.1, "speedup": 1.2, "speedup_high": 1.3}
    table = study.ranked[study.ranked["policy"] != study.baseline].assign(**columns)
    table["speedup"] += [0.0001 * k for k in range(len(table))]
    every = concat([table, study.ranked[study.ranked["policy"] == study.baseline]], ignore_index=True)
    said = [one.text for one in cautions(replace(study, ranked=every))]
    assert any(text.startswith("Equally fast: ") for text in said)
    assert not any("depends on the assumptions" in text for text in said)


def test_a_rival_is_what_some_assumption_could_make_faster():
    best = {"over": "", "walk_cycles": 10.0, "management_cycles": 5.0}
    best |= {"guest_walk_cycles": 4.0, "host_walk_cycles": 6.0, "speedup_low": 1.1, "speedup_high": 1.5}
    worse = {**best, "walk_cycles": 11.0, "management_cycles": 6.0, "speedup_high": 1.4}
    traded = {**worse, "management_cycles": 4.0}
    assert not rival(worse, best, False) and rival(traded, best, False)
    assert not rival({**traded, "over": "memory"}, best, False)
    assert not rival({**traded, "speedup_high": 1.05}, best, False)
    shifted = {**worse, "guest_walk_cycles": 3.0, "host_walk_cycles": 8.0}
    assert not rival(shifted, best, False) and rival(shifted, best, True)
    assert not rival(best, best, True)


def test_where_the_advice_changes_pages_the_best_placement_is_said_too(study):
    def within(*policies):
        over = ["" if policy in policies else "memory" for policy in study.ranked["policy"]]
        ranked = study.ranked.assign(over=over)
        return replace(study, ranked=ranked)

    assert study.best["policy"] == "thp"
    placed = next(row for row in study.rows if row["policy"] not in ("thp", "linux"))
    assert placed["speedup"] > 1.1
    said = f"{placed['policy']}, {placed['speedup']:.2f}x ("
    assert said in alone(study)
    assert alone(within("thp", "linux")).endswith("gains nothing over linux.")
    assert alone(within("linux", "mitosis")) == ""
    assert study.limits and "Worth" not in change.worth_it(study)
    assert "Worth trying" in change.worth_it(replace(study, limits=None))
    assert "gain" not in change.worth_it(replace(within("linux"), limits=None))


def test_of_a_program_with_one_thread_nothing_is_said_about_several(study):
    machine = {**study.facts["machine"], "NUMA nodes": 1}
    of = [
        {**study.facts, "machine": machine, "trace": {**study.facts["trace"], "threads": n}} for n in (1, 4)
    ]
    one, four = (replace(study, facts=facts) for facts in of)
    assert weights(one, "Its one thread is assumed to stay on one node") == ["careful"]
    assert weights(four, "Where threads run is an assumption: ") == ["careful"]
    assert "spread evenly" in where.locality(four, four.classes).here
    assert "spread evenly" not in where.locality(one, one.classes).here


def test_the_number_of_walks_says_of_which_part_of_the_trace_it_is(study):
    accesses = int(study.results[0].hits.sum())
    part = {**study.facts, "trace": {**study.facts["trace"], "accesses": accesses + 1}}
    said, whole = (
        next(one.more for one in glance(replace(study, facts=facts)) if one.what.startswith("page walks"))
        for facts in (part, study.facts)
    )
    assert said == f"{whole}, of the steady state of the trace"


def test_walks_of_the_further_run_and_of_the_whole_trace_are_told_apart_where_they_stand(place):
    made = ptanalyze.synth(place / "both", "16M", threads=2, accesses=1500)
    (warm,) = studies([made], ptanalyze.Setup.of())
    tile = next(one for one in glance(warm) if one.what.startswith("page walks"))
    assert tile.what == "page walks in steady state" and tile.value == f"{warm.base['walks']:,}"
    (largest, *_) = walkers(warm)
    assert next(column.hint for column in largest.columns if column.name == "Walks") == "of the whole trace"
    whole = int(warm.heat["walks"].sum())
    assert whole != warm.base["walks"]
    assert f"all {whole:,} walks of the whole trace" in where.walk_map(warm.heat).here
    assert set(warm.classes["weight"]) <= {"leaf", "warm"}
    assert "walks in steady state" in where.locality(warm, warm.classes).here


def test_the_text_of_the_footprint_is_about_what_its_bars_draw(study):
    tables = study.ranked["policy"].map({"mitosis": 4 << 20}).fillna(1 << 20)
    held = study.ranked["policy"].map({"thp": 8 << 20}).fillna(0)
    drawn = study.ranked.assign(pt_bytes=tables, ept_bytes=0, aside_bytes=0, held_bytes=held)
    here = footprint(replace(study, ranked=drawn)).here
    assert "Those of mitosis take most: 4.0 MiB. " in here
    assert here.endswith("Memory held unused is not drawn: thp holds most, 8.0 MiB beside its tables.")


def test_the_calls_that_change_most_are_named_with_all_policies_of_which_that_is_so(study):
    rows = [
        ("munmap", "thp", 0.05, 10.0),
        ("munmap", "hydra", 1.368, 90.0),
        ("munmap", "mitosis", 1.3679, 90.0),
    ]
    calls = DataFrame(rows, columns=["call", "policy", "slowdown", "ns"])
    said = calls_lead(replace(study, calls=calls))
    assert "Slowest: munmap takes 1.37 times as long with hydra and mitosis, 90 ns per call." in said
    assert "Fastest: munmap takes 0.05 times as long with thp, 10 ns per call." in said
    faster = calls_lead(replace(study, calls=calls[:1]))
    assert faster.startswith("No policy makes the trace's system calls slower. Fastest: munmap")
    assert (
        calls_lead(replace(study, calls=calls.assign(slowdown=None)[:1]))
        == "No policy makes the trace's system calls slower."
    )


def test_lists_are_as_one_writes_them():
    assert (
        listed(["a"]) == "a" and listed(["a", "b"]) == "a and b" and listed(["a", "b", "c"]) == "a, b and c"
    )
    assert listed(["a", "b", "c", "d"], 2) == "a, b and 2 more"


def test_each_term_is_linked_once_and_text_is_escaped():
    text = linked("A walk & another walk <b> with hydra-2d and hydra, Local-Local, in sidewalks")
    assert text.count('href="#term-page-walk"') == 1 and "sidewalks" in text
    assert "&amp;" in text and "&lt;b&gt;" in text and "<b>" not in text
    assert '<a class="term" href="#term-policy-hydra-2d">hydra-2d</a>' in text
    assert '<a class="term" href="#term-policy-hydra">hydra</a>' in text
    assert '<a class="term" href="#term-classes">Local-Local</a>' in text


def test_every_policy_and_term_has_a_meaning():
    known = [*policy_terms(), *glossary().terms]
    assert len({term.key for term in known}) == len(known)
    assert all(term.meaning.strip().endswith(".") for term in known)
    assert {term.name for term in policy_terms()} == set(ptanalyze.list_policies()["policy"])
    texts = [term.meaning for term in known] + [paper.citation for paper in glossary().papers]
    assert [text for text in texts if printable(text) != text] == [], "a reader would see escapes"
    for term in known:
        assert "term-" in linked(f"a {term.name.split(',')[0].split(' ...')[0]} b"), term.name


def test_cells_have_a_text_and_what_to_sort_by():
    columns = {"a": Column("A", "", word), "b": Column("B", "", ratio), "c": Column("C", "", percent)}
    table = grid("t", "T", columns, [{"a": "x", "b": 1.234, "c": 0.5}, {"a": "y", "b": math.nan}])
    assert [cell.text for cell in table.rows[0]] == ["x", "1.23", "50.0 %"]
    assert [cell.order for cell in table.rows[0]] == [None, 1.234, 0.5]
    assert [cell.text for cell in table.rows[1]] == ["y", "–", "–"]
    assert table.rows[1][1].order == table.rows[1][2].order == LEAST
    assert memory(-393216).text == "-384 KiB" and memory(0.0).text == "0 KiB"
    assert percent(-0.00001).text == "0.0 %"


def test_a_picture_loses_what_nobody_sees():
    kept = '<path d="M 1.26 -0.04 L 3.996 20"/>'
    empty = "<metadata>\n x\n </metadata>\n <!-- y --><style></style>"
    seen = f'<svg a="1">\n {empty}\n <g id="text_4">\n <g id="k"/> {kept}</g>\n</svg>'
    svg = f'<?xml version="1.0"?>\n<!DOCTYPE svg>\n{seen}'
    assert smaller(svg) == f"<svg a='1'><style>{STYLE}</style><path d='M 1.3 0 L 4 20'/></svg>"


def test_a_text_of_a_picture_has_the_width_it_was_laid_out_with():
    """In DejaVu Sans 10 points wide an "m" is 9.7 points; another font is stretched to as much."""
    text = smaller(
        '<svg><style></style><text style="font-size: 10px; text-anchor: end" x="1">mmmm</text></svg>'
    )
    assert "textLength='39.0'" in text and "style='text-anchor: end'" in text


def test_of_several_processes_it_is_said_which_count(tmp_path):
    (whole,), (heap,) = (
        studies([ptanalyze.load(one)], ptanalyze.Setup.of())
        for one in (make_family(tmp_path / "c"), tmp_path / "c" / "pid-8")
    )
    assert any("3 processes together" in one.text for one in cautions(whole))
    assert not any("processes" in one.text for one in cautions(heap))
    assert any(
        "about the first" in one.text
        for one in cautions(replace(whole, results=[replace(whole.results[0], findings=())]))
    )


def test_commands_in_a_text_are_code_and_hold_no_links():
    said = linked("Each walk: `ptanalyze walk <b>` shows a walk`s reads")
    assert "<code>ptanalyze walk &lt;b&gt;</code> shows a walk`s reads" in said
    assert said.count('class="term"') == 1 and said.startswith("Each <a")
