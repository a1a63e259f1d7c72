"""`ptanalyze report`: a page from the command line."""

import os
import shlex
import signal
import threading

import pytest

import ptanalyze
from one_line import is_one_line
from ptanalyze.capture.check import Finding
from report_page import ReportPage


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    place = tmp_path_factory.mktemp("report") / "small"
    return ptanalyze.synth(place, "16M", accesses=1500, init_trace=False, mprotect_every=500).directory


def repeated(page):
    """The command that makes the page again; other commands are what to do about the program."""
    return next(code.text for code in page.all("code") if code.text.startswith("ptanalyze report"))


def test_without_a_capture_a_page_about_the_bundled_sample_is_written_and_said_where(
    pt, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    ran = pt("report")
    sample = "ptanalyze: no capture here, so the bundled sample: lookup\n"
    assert ran.code == 0 and not ran.out and ran.err == f"{sample}ptanalyze: wrote report.html\n"
    page = ReportPage((tmp_path / "report.html").read_text("utf-8"))
    assert "lookup" in page.text()
    assert repeated(page).startswith("ptanalyze report")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_the_command_to_repeat_is_what_was_given_and_makes_the_same_page(pt, small, tmp_path):
    given = ("--memory", "1%", "-m", "hydra-haswell", "--contended", "--threads-to-nodes", "block")
    path = tmp_path / "a b.html"
    assert pt("report", small, "-o", path, *given).code == 0
    text = path.read_text("utf-8")
    command = repeated(ReportPage(text))
    name, sub, *arguments = shlex.split(command)
    assert (name, sub) == ("ptanalyze", "report")
    assert set(arguments) == {str(small), str(path), "--output", "--machine", *given} - {"-m"}
    path.unlink()
    assert pt(sub, *arguments).code == 0 and path.read_text("utf-8") == text


def test_errors_are_one_line_and_come_before_any_work(pt, small, tmp_path):
    for given, why in (
        ((tmp_path / "nothing", "-o", tmp_path / "a.html"), "no such capture"),
        ((small, "-o", tmp_path / "a.pdf"), "FILE.html"),
        ((small, "-o", tmp_path / "no" / "a.html"), "there is no directory"),
        ((small, "-o", tmp_path / "a.html", "--memory", "lots"), "write a size"),
        ((small, "-o", tmp_path / "a.html", "-m", "toaster"), "toaster"),
        ((small, tmp_path, "-o", tmp_path / "a.html"), "capture.json"),
    ):
        ran = pt("report", *given)
        assert is_one_line(ran, 2) and why in ran.err and not ran.out
    assert list(tmp_path.iterdir()) == []


def test_a_page_is_about_the_policies_that_are_asked_for(pt, small, tmp_path):
    path = tmp_path / "few.html"
    assert pt("report", small, "-p", "mitosis,hydra:prefetch=0", "-o", path, "--horizon", "1m").code == 0
    page = ReportPage(path.read_text("utf-8"))
    _, *rows = page.table("policies")
    assert {row[0].partition(" ")[0] for row in rows} == {"linux", "mitosis", "hydra:prefetch=0"}
    assert "--policy mitosis --policy hydra:prefetch=0" in repeated(page)


def test_a_page_of_a_trace_can_count_each_mapped_page_once(pt, small, tmp_path):
    path = tmp_path / "leaf.html"
    assert pt("report", small, "--weight", "leaf", "-p", "mitosis", "-o", path).code == 0
    page = ReportPage(path.read_text("utf-8"))
    text = page.text()
    assert "The capture's trace is left out, as asked: every mapped page counts once for each node" in text
    assert "pages Local" in text and "when warm" not in text
    assert not any(e.attributes.get("id", "").startswith("walkers") for e in page.all("table"))


def test_policies_that_a_page_cannot_show_are_refused_in_one_line(pt, small, tmp_path):
    for given, why in (
        ("hydra,hydra:prefetch=0", "policy hydra: asked for twice"),
        ("shadow", "policy shadow: a native capture has no host tables"),
        ("mitos", "did you mean mitosis"),
    ):
        ran = pt("report", small, "-p", given, "-o", tmp_path / "a.html")
        assert is_one_line(ran, 2) and why in ran.err
    assert list(tmp_path.iterdir()) == []


def test_the_exit_code_is_that_of_check(pt, tmp_path, monkeypatch):
    from ptanalyze.capture import check

    whole, gone = check.check_capture, Finding("dump: complete", 5, 1, "partial", "one page was gone")
    monkeypatch.setattr(check, "check_capture", lambda one: [*whole(one), gone])
    path = tmp_path / "page.html"
    untraced = ptanalyze.synth(tmp_path / "untraced", "16M", trace=False).directory
    assert pt("report", untraced, "-o", path).code == 3
    assert "1 check of the capture found data missing" in ReportPage(path.read_text("utf-8")).text()


def test_ctrl_c_leaves_what_was_there(pt, small, tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT)).start()
    ran = pt("report", small, "-o", path)
    assert ran.code == 130 and ran.err.strip() == "ptanalyze: interrupted"
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_ctrl_c_that_code_in_c_turned_into_another_error_is_still_ctrl_c(pt, monkeypatch):
    """Matplotlib's does: "Invalid affine transformation matrix"."""
    from ptanalyze.capture import check

    def drawn(*_, **__):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise ValueError("Invalid affine transformation matrix") from None

    monkeypatch.setattr(check, "check_capture", drawn)
    ran = pt("check")
    assert ran.code == 130 and ran.err.splitlines()[-1] == "ptanalyze: interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
