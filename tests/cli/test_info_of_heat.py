"""`info` about a capture with samples: nothing twice, what else cleared the bits, lengths as one reads."""

from heated import USED, one_node_capture
from ptanalyze.capture.describe import for_people, in_ms
from ptanalyze.formats.manifest import seal


def test_what_else_cleared_accessed_bits_is_said(pt, tmp_path):
    capture = one_node_capture(tmp_path / "app")
    seal(capture.directory, "process", {"also clears accessed bits": "kdamond 0 is running"})
    assert "kdamond 0 is running" in pt("info", capture.directory).out


def test_what_the_manifest_says_is_not_said_again():
    facts = {"capture": {"pid": 7}, "how sure": {"pid": 7, "retries": 0}, "trace": {"pid": 7}}
    assert for_people(facts)["how sure"] == {"retries": 0} and for_people(facts)["trace"] == {"pid": "7"}
    assert for_people({"how sure": {"pid": 7}})["how sure"] == {"pid": "7"}


def test_when_page_tables_were_read_is_said_in_words():
    said = for_people({"capture": {"page_tables": "roi_end"}, "trace": {"page_tables": "of old"}})
    assert said == {"capture": {"page tables read at": "region's end"}, "trace": {"page tables": "of old"}}


def test_milliseconds_have_three_digits_and_no_powers_of_ten():
    assert [in_ms(s) for s in (0.00945, 0.1, 1.0101)] == ["9.45", "100", "1,010"]


def test_pages_are_listed_by_heat_alone_and_without_it_the_way_out_is_named(pt, tmp_path):
    one_node_capture(tmp_path / "app")
    ran = pt("classify", tmp_path / "app", "--by", "page")
    assert ran.code == 0 and "40000000-40001000" in ran.out
    assert f"of {USED} pages\n" in ran.out
    asked = pt("classify", "sysbench-memory", "--by", "page")
    assert asked.code == 2 and "add them with `ptanalyze heat PID --add CAPTURE`" in asked.err
    other = pt("classify", tmp_path / "app", "--by", "page", "--weight", "leaf")
    assert other.code == 2 and "by = page: with weight = heat, not leaf" in other.err
