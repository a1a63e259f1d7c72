"""The report: what is on it and when, its words, that names cannot become markup, that it loads nothing."""

import base64
import gzip
import hashlib
import math
import re
import tomllib
from dataclasses import replace
from itertools import pairwise

import pytest

import ptanalyze
from captures import make_family
from ptanalyze.core.errors import printable
from ptanalyze.show import plots
from ptanalyze_report.figures import Column, described, memory, percent, ratio, walkers
from ptanalyze_report.page import asset, coded, html, whole
from ptanalyze_report.study import cautions, studies
from report_page import ReportPage
from strategies import small_machine

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'{{ 7 * 7 }}"
PAGES = ("native_page", "untraced_page", "all_page")


@pytest.fixture(params=PAGES)
def page(request):
    return request.getfixturevalue(request.param)


def figures(page, chapter=""):
    """Keys of the figures of a page, or of one of its chapters."""
    begins = f"{chapter}figure-"
    return {name.removeprefix(begins) for name in page.ids() if name.startswith(begins)}


def test_figures_are_there_when_their_data_are(native_page, untraced_page, all_page):
    common = {"locality", "map", "speedup", "locality-policies"}
    assert figures(native_page) == common | {"sizes", "timeline"}
    for chapter, more in (("c0-", "timeline"), ("c1-", "fragmentation"), ("c2-", "timeline")):
        assert figures(all_page, chapter) == common | {"sizes", more}
    assert figures(untraced_page) == common | {"reads"}


def test_the_advice_is_the_terminals(native_study, native_page):
    text, lines = native_page.text(), [line.strip() for line in native_study.lines]
    assert len(lines) > 1 and all(line in text for line in lines)
    rows = native_page.table("sizes-data")
    assert len(rows) == 1 + 2 * len(native_study.curve.times) and rows[-1][0] == "256"


def test_the_full_table_says_what_advise_says(native, native_page):
    header, *rows = native_page.table("policies")
    frame = ptanalyze.advise(native).frame
    assert [row[0].split(" ")[0] for row in rows] == frame["policy"].tolist()
    column = {name: k for k, name in enumerate(header)}
    for row, known in zip(rows, frame.to_dict("records"), strict=True):
        assert row[column["Speed-up middle"]] == f"{known['speedup']:.2f}"
        assert row[column["Local share of walks"]] == f"{100 * known['leaf_LL_share']:.1f} %"
        assert row[column["Memory more at its peak"]] == memory(known["extra_bytes"])
    best = "baseline" if frame["policy"][0] == frame["baseline"][0] else "advised"
    assert rows[0][0].endswith(best) and sum("baseline" in row[0] for row in rows) == 1


def test_without_a_trace_there_is_no_run_time_and_the_page_says_so(untraced_page):
    header, *_ = untraced_page.table("policies")
    assert not {"Low", "High"} & set(header)
    assert "no trace: every mapped page counts once" in untraced_page.text()


def test_several_captures_are_side_by_side_then_one_by_one(native, vm, twin, all_page):
    text = all_page.text()
    assert str(native.directory) in text and "The advice" in text and "Side by side" in text
    _, *rows = all_page.table("captures")
    assert [row[0] for row in rows] == [str(native.directory), vm.directory.name, str(twin.directory)]
    assert rows[0][1:] == rows[2][1:] != rows[1][1:]
    _, *rows = all_page.table("speed-ups")
    assert all(row[1] == row[3] for row in rows)
    shared = {row[0]: row[2] for row in rows}
    assert shared["vmitosis-replicate"] != "–" and shared["linux"] == "1.00"
    assert [row[1] for row in rows if row[0] == "vmitosis-replicate"] == ["–"]


def test_the_page_is_well_formed_and_reads_in_order(page):
    assert not page.unclosed and not page.wrong
    assert len(page.ids()) == len(set(page.ids()))
    levels = [int(e.tag[1]) for e in page.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    assert page.all("html")[0].attributes["lang"] == "en"


def test_links_within_the_page_lead_somewhere(page):
    inside = {href for href in page.values("href") if href.startswith("#")}
    assert "#main" in inside and inside <= {f"#{name}" for name in page.ids()}
    assert set(page.values("aria-labelledby")) <= set(page.ids())


def test_pictures_have_words_and_tables_headings(page):
    images = page.all("img")
    assert images and all(len(one.attributes["alt"]) > 30 for one in images)
    assert len(page.all("figcaption")) == len(images) == len(page.all("figure"))
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(cell.attributes.get("scope") in ("col", "row") for cell in page.all("th"))


def test_nothing_is_loaded_from_anywhere(page):
    images = page.values("src")
    assert images and all(one.startswith("data:image/svg+xml,") for one in images)
    links = {e.attributes["href"] for e in page.all("a") if not e.attributes["href"].startswith("#")}
    assert all(re.fullmatch(r"https://[\w./-]+", link) for link in links)
    assert not page.all("link", "iframe", "object", "embed", "video", "audio", "base", "form", "svg")
    assert not re.search(r"url\(|@import", page.all("style")[0].text)
    assert not [name for e in page.elements for name in e.attributes if name.startswith("on")]


def test_a_browser_is_told_to_load_nothing_and_run_one_script(page):
    policy = next(e for e in page.all("meta") if "http-equiv" in e.attributes).attributes["content"]
    library, own = page.all("script")
    assert library.attributes == {"type": "application/gzip", "id": "datatables"}
    digest = base64.b64encode(hashlib.sha256("".join(own.texts).encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}' blob:" in policy and "default-src 'none'" in policy
    unpacked = gzip.decompress(base64.b64decode(library.text)).decode()
    assert "DataTables" in unpacked and "export{" in unpacked


def test_names_are_text_and_never_markup(native_study):
    study = native_study
    facts = {**study.facts, "capture": {HOSTILE: HOSTILE}}
    check = replace(study.checks[0], name=HOSTILE, reason=HOSTILE, verdict="note")
    hostile = replace(
        study, name=HOSTILE, facts=facts, checks=[*study.checks, check], lines=[HOSTILE],
        advised=replace(study.advised, refused={HOSTILE: HOSTILE}),
    )  # fmt: skip
    page = ReportPage(html([hostile, hostile], HOSTILE))
    assert len(page.all("script")) == 2 and not [e for e in page.elements if "onerror" in e.attributes]
    assert all(source.startswith("data:") for source in page.values("src"))
    assert page.text().count(HOSTILE) > 20 and not page.unclosed and not page.wrong
    assert page.all("h1")[0].text == f"Page walks of {HOSTILE} and {HOSTILE}"


def test_a_page_shows_no_physical_address(vm, all_page):
    text = all_page.text().lower()
    frames = {int(frame) for frame in (*vm.snapshot.guest.frame, *vm.snapshot.host.frame) if frame > 4096}
    assert not [frame for frame in frames if f"{frame:#x}" in text or f"{frame << 12:#x}" in text]


# The report's words: how sure it is, its glossary, its cells.


@pytest.fixture(scope="module")
def threads(place):
    capture = ptanalyze.synth(place / "threads", "16M", threads=4, accesses=40000, init_trace=False)
    (study,) = studies([capture], ptanalyze.Setup.of())
    return study


def test_failed_checks_are_the_gravest_caution(threads):
    assert "None of" in next(one.text for one in cautions(threads) if one.code == "checks")
    failed = replace(threads.checks[-1], verdict="failed", wrong=3, examined=9)
    first, *_ = cautions(replace(threads, checks=[*threads.checks[:-1], failed]))
    assert first.weight == "failed" and "(3 of 9)" in first.text


def test_threads_that_walk_most_come_first(threads):
    rows = {table.key: table for table in walkers(threads)}["walkers-thread"].rows
    counts = [row["count"] for row in rows]
    assert len(counts) > 1 and counts == sorted(counts, reverse=True)
    assert sum(counts) == threads.walkers["thread"]["count"].sum()
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert all(0 <= row["near"] <= 1 for row in rows)
    assert not list(walkers(replace(threads, walkers={})))
    rare = threads.walkers["thread"].assign(group=["rare", *threads.walkers["thread"]["group"][1:]])
    rare.loc[0, "count"] = 1
    (few,) = walkers(replace(threads, walkers={"thread": rare}))
    assert {row["name"] for row in few.rows} == {row["name"] for row in rows}


def test_a_later_part_of_a_run_leaves_out_what_is_of_the_run_as_traced(threads, place):
    (part,) = studies([ptanalyze.load(place / "threads")], ptanalyze.Setup.of(begin="40%"))
    said = [" --from: left out" in ReportPage(html([one], "")).text() for one in (part, threads)]
    assert said == [True, False] and not part.walkers and part.base["walks"] < threads.base["walks"]


def test_commands_in_a_text_are_code():
    expected = "Type <code>ptanalyze walk &lt;b&gt;</code> &amp; read"
    assert coded("Type `ptanalyze walk <b>` & read") == expected


def test_words_of_commands_are_whole():
    expected = 'a <span class="word">--b=1.5</span> &lt;c&gt; <span class="word">/d</span>'
    assert whole("a --b=1.5 <c> /d") == expected


def test_every_term_and_figure_has_a_meaning():
    terms, figures = tomllib.loads(asset("glossary.toml"))["terms"], described()
    assert terms and all(term["name"] and term["meaning"].strip().endswith(".") for term in terms)
    assert {about["draw"] for about in figures.values()} <= set(plots.__all__)
    texts = [" ".join(text.split()) for about in (*terms, *figures.values()) for text in about.values()]
    assert [text for text in texts if printable(text) != text] == [], "a reader would see escapes"


def test_cells_have_a_text_and_an_order():
    column = Column("B", "", ratio)
    assert column.cell(1.234) == ("1.23", 1.234) and Column("A").cell("x") == ("x", "x")
    assert column.cell(math.nan) == column.cell(None) and column.cell(None)[0] == "–"
    assert column.cell(None)[1] < -1e299
    assert memory(-393216) == "-384 KiB" and memory(0.0) == "0 KiB"
    assert percent(0.5) == "50.0 %" and percent(-0.00001) == "0.0 %"


def test_several_processes_are_said_to_count_together(tmp_path):
    whole, heap = (
        studies([ptanalyze.load(one)], ptanalyze.Setup.of())[0]
        for one in (make_family(tmp_path / "c"), tmp_path / "c" / "pid-8")
    )
    assert any("3 processes together" in one.text for one in cautions(whole))
    assert not any("processes" in one.text for one in cautions(heap))


def test_what_a_workload_is_ends_where_nothing_tells_why_and_one_node_shows_no_placements(tmp_path):
    alone = ptanalyze.synth(tmp_path / "c", "4M", trace=False, nodes=1, threads=1)
    asked = ptanalyze.Setup.of(machine=small_machine(1), costs="server-2020")
    page = ReportPage(html(studies([alone], asked), "report"))
    assert "Workload: Thin. " in page.text() and len(page.table("policies")) == 3, "heading, thp, linux"
