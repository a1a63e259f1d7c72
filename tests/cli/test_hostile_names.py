r"""Names in captures, files and options reach nobody's terminal, spreadsheet or file as anything but text."""

import csv
import io
import json
import xml.etree.ElementTree as tree

import pandas as pd
import pytest
from markdown_it import MarkdownIt

from hostile import EVIL, FORMULA, HARM, hostile_copy
from one_line import is_one_line
from ptanalyze.core.errors import bundled
from ptanalyze.show.terminal import markdown


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A capture with hostile names below a directory with a hostile name."""
    place = tmp_path_factory.mktemp("hostile") / "$x_{ \x1b[31m\n\u202e$"
    place.mkdir()
    return hostile_copy(bundled("samples") / "sysbench-memory", place / "a$\\b{$\x1b[1m")


ASKED = [
    ("info",),
    ("check",),
    ("classify", "--by", "vma"),
    ("classify", "--by", "vma", "--weight", "4k"),
    ("walk", "0x1000"),
    ("fragmentation",),
    ("whatif", "-p", "mitosis"),
    ("advise",),
]


def harmless(text, forms=True):
    return not HARM & set(text) and not any(ord(one) < 32 and one not in "\n\t" for one in text)


@pytest.mark.parametrize("asked", ASKED, ids=" ".join)
@pytest.mark.parametrize("form", ["table", "--json", "--csv"])
def test_names_of_a_capture_are_only_shown(once, hostile, asked, form):
    command, *more = asked
    ran = once(command, hostile, *more, *([form] if form != "table" else []))
    assert ran.code in (0, 1, 2, 3) and harmless(ran.out) and harmless(ran.err), ran
    if form == "--json" and ran.out:
        json.loads(ran.out)


def test_the_table_shows_names_as_escapes_on_their_line(once, hostile):
    out = once("info", hostile).out
    assert r"\x1b]0;title\x07\x1b[31m\u202e\u2066two\u2028lines\x9b1m\x7f" in out


def test_a_name_that_is_no_utf8_is_shown_with_its_byte(once, hostile):
    for form in ((), ("--csv",), ("--json",)):
        ran = once("classify", hostile, "--by", "vma", *form)
        assert ran.code == 0 and r"caf\xe9$\frac{$.dat" in ran.out.replace("\\\\", "\\"), ran


@pytest.mark.parametrize("stored", [False, True], ids=["printed", "stored"])
def test_no_cell_of_a_csv_is_a_formula(pt, hostile, tmp_path, stored):
    file = tmp_path / "t.csv"
    ran = pt("info", hostile, *(("-o", file) if stored else ("--csv",)))
    text = file.read_text() if stored else ran.out
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    assert cells and harmless(text)
    for cell in cells:
        assert cell[:1] not in "=@+-" or not cell[1:] or float(cell) is not None


def test_a_formula_in_a_cell_is_quoted_and_a_number_is_not():
    from pandas import DataFrame

    from ptanalyze.formats.text_output import csv_text

    table = DataFrame({"=a": [FORMULA, "@x", "+1+1", "-cmd", "-1.5", "-", "a\nb"], "n": range(-3, 4)})
    rows = list(csv.reader(io.StringIO(csv_text(table))))
    assert rows[0] == ["'=a", "n"]
    assert [row[0] for row in rows[1:]] == [f"'{FORMULA}", "'@x", "'+1+1", "'-cmd", "-1.5", "-", r"a\nb"]
    assert [row[1] for row in rows[1:]] == ["-3", "-2", "-1", "0", "1", "2", "3"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "no\x1b[31m\nsuch"),
        ("whatif", "-p", "\x1b[31m\nx"),
        ("whatif", "--set", "\x1b[31m\n"),
        ("whatif", "-m", "\x1b[31m\n.toml"),
        ("classify", "--by", "\x1b[31m"),
        ("no\x1b[31m\nsuch",),
        ("info", "--\x1b[31m"),
        ("predict", "\x1b[31m\n"),
        ("compare", "\x1b.json", "\n.json"),
        ("redact", "a\x1b[31m\n", "-o", "b\x1b[31m\n"),
    ],
)
def test_what_was_typed_is_named_without_its_controls(pt, arguments):
    ran = pt(*arguments)
    assert ran.code == 2 and harmless(ran.err) and harmless(ran.out), ran
    assert ran.err.startswith("Usage") or is_one_line(ran, 2)


def test_a_plot_shows_hostile_names_literally(pt, hostile, tmp_path):
    file = tmp_path / "a.svg"
    ran = pt("classify", hostile, "--by", "vma", "--plot", file)
    assert ran.code == 0, ran
    texts = "".join(tree.parse(file).getroot().itertext())
    assert r"caf\xe9$\frac{$." in texts and r"a$\b{$\x1b[1m" in texts and harmless(texts)


def test_a_report_shows_hostile_names_literally(pt, hostile, tmp_path):
    file = tmp_path / "page.html"
    ran = pt("report", hostile, "-o", file)
    assert ran.code == 0 and harmless(ran.err), ran
    page = file.read_text("utf-8")
    own = page[: page.index("<script")] + page[page.rindex("</script>") :]
    assert EVIL.partition("<")[2] not in page and not HARM & set(own)


def test_names_that_others_chose_stay_text_in_a_markdown_table():
    names = [
        "<img src=x onerror=alert(1)>",
        "a|b[c](http://evil.example) ![d](e)",
        "**b** _i_ `c` ~~s~~ &lt; \\\\ \\|",
        "https://evil.example www.evil.example a@evil.example",
        "vm_flags_2",
    ]
    page = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    tokens = page.parse(markdown(pd.DataFrame({"name": names, "pages": 1})))
    inline = [token.children for token in tokens if token.type == "inline"][2::2]
    assert {piece.type for cell in inline for piece in cell} <= {"text", "text_special"}
    assert ["".join(piece.content for piece in cell) for cell in inline] == names


@pytest.mark.parametrize("name", ["https://evil.example", "www.evil.example", "a@evil.example"])
def test_a_name_is_no_address_to_github_either(name):
    assert name not in markdown(pd.DataFrame({"name": [name]}))
