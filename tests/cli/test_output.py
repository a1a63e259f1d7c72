"""--json, --csv, -o and the tables behind them: one answer in all its forms, the same as the API's."""

import csv
import io
import json

import pandas
import pytest

import ptanalyze
from every_command import EVERY, takes
from one_line import is_one_line
from ptanalyze.core.bundled import bundled
from shorter import TOUCHES, shorter

OWN_FILE = {"synth", "join", "calibrate", "topology measure", "topology latency"}  # -o is what they make
CAPTURES = sorted(path.name for path in bundled("samples").iterdir() if path.is_dir())


@pytest.mark.parametrize("name", [name for name, command in EVERY.items() if takes(command, "--json")])
def test_whatever_prints_a_table_takes_all_forms_of_output(name):
    assert all(takes(EVERY[name], option) for option in ("--json", "--csv", "--plot", "-o"))
    endings = next(one.metavar for one in EVERY[name].params if "-o" in one.opts)
    assert (endings == "FILE.{json,csv,parquet}") == (name not in OWN_FILE)


EXAMPLES = {
    "info": (),
    "check": (),
    "walk": ("0x4000000000",),
    "classify": (),
    "diff": ("sysbench-memory",),
    "whatif": ("-p", "mitosis"),
    "sweep": ("-p", "hydra", "--set", "prefetch=0,9"),
    "timeline": ("-p", "hydra", "--windows", 3),
    "degrees": (),
    "advise": (),
}
WITHOUT_CAPTURE = {
    "policies": (),
    "machines": (),
    "predict": ("--statistics",),
    "compare": ("sysbench-memory@mitosis", "sysbench-memory@hydra"),
}


@pytest.mark.parametrize("name", [*EXAMPLES, *WITHOUT_CAPTURE])
def test_a_file_holds_what_is_printed_and_one_table(pt, tmp_path, name):
    words = (name, "sysbench-memory", *EXAMPLES[name]) if name in EXAMPLES else (name, *WITHOUT_CAPTURE[name])
    files = {ending: tmp_path / f"file.{ending}" for ending in ("json", "csv", "parquet")}
    printed = {
        "json": pt(*words, "--json", "-o", files["json"]),
        "csv": pt(*words, "--csv", "-o", files["csv"]),
        "parquet": pt(*words, "-o", files["parquet"]),
    }
    assert all(ran.code == 0 for ran in printed.values())
    assert all(f"ptanalyze: wrote {files[ending]}" in ran.err for ending, ran in printed.items())
    for ending in ("json", "csv"):
        assert printed[ending].out == files[ending].read_text()
    rows = list(csv.DictReader(io.StringIO(printed["csv"].out)))
    table = pandas.read_parquet(files["parquet"])
    assert rows and len(rows) == len(table) and list(rows[0]) == list(table.columns)
    assert all(row[name] != name for row in rows for name in row), "the header stands once"
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o600}


@pytest.mark.parametrize("path", ["x.tsv", "no/where.csv", "."])
def test_a_file_that_cannot_be_written_is_refused_before_any_work(pt, sample, tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    for command in (("info", sample), ("whatif", sample, "-p", "hydra")):
        ran = pt(*command, "-o", path)
        assert is_one_line(ran, 2) and not ran.out and "-o" in ran.err


def bare_trace(pt, place):
    lines = "".join(f"I  04001000,3\n L {0x10000000 + k * 4096:08x},8\n" for k in range(500))
    (place / "lackey.txt").write_text(lines)
    assert pt("import", "lackey", place / "lackey.txt", "-o", place / "bare").code == 0
    return place / "bare"


def without_trace(pt, place):
    size = ("--size", "16M", "--guest", "visible", "--no-trace")
    assert pt("synth", "-o", place / "tables", *size).code == 0
    return place / "tables"


def sample_of(name):
    return lambda pt, place: shorter(bundled("samples") / name, place / name, TOUCHES[name])


@pytest.mark.parametrize(
    "made",
    [*map(sample_of, CAPTURES), bare_trace, without_trace],
    ids=[*CAPTURES, "bare trace", "without a trace"],
)
def test_compare_finds_no_difference_between_the_api_and_a_file_of_the_command_line(pt, tmp_path, made):
    capture = made(pt, tmp_path)
    table = ptanalyze.whatif(capture, ["mitosis", "ideal"])
    for ending in ("json", "csv", "parquet"):
        path = tmp_path / f"file.{ending}"
        assert pt("whatif", capture, "-p", "mitosis", "-p", "ideal", "-o", path).code == 0
        compared = ptanalyze.compare(table, path)
        assert compared.attrs["exact"] and not len(compared), ending
        assert compared.attrs["alike"] > 40 * len(table)
    written = [tmp_path / "file.json", tmp_path / "file.csv"]
    assert pt("compare", *written, "--exact").code == 0


def test_every_column_of_the_api_is_one_of_the_command_line(pt, sample):
    rows = csv.reader(io.StringIO(pt("whatif", sample, "-p", "mitosis", "--csv").out))
    assert next(rows) == list(ptanalyze.whatif(sample, "mitosis").columns)


def test_classes_by_two_weights_are_one_csv_table(pt, sample):
    out = pt("classify", sample, "--weight", "leaf", "--weight", "walks", "--csv").out
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {row["weight"] for row in rows} == {"leaf", "walks"} and out.count("share") == 1


def test_mapped_pages_have_no_thread_on_the_command_line_and_in_the_api(pt, sample):
    for weight in ("leaf", "4k"):
        ran = pt("classify", sample, "--by", "thread", "--weight", weight)
        with pytest.raises(ptanalyze.core.errors.UsageError) as refused:
            ptanalyze.classify(sample, by="thread", weight=weight)
        assert is_one_line(ran, 2) and ran.err == f"ptanalyze: {refused.value}\n"


def test_classes_by_thread_are_the_same_on_the_command_line_and_in_the_api(pt, sample):
    rows = json.loads(pt("classify", sample, "--by", "thread", "--json").out)["result"][0]["rows"]
    table = ptanalyze.classify(sample, by="thread", weight="walks").drop(columns="weight")
    assert rows == table.to_dict("records")


@pytest.mark.parametrize("name", ["info", "classify", "whatif", "timeline", "degrees", "policies"])
def test_a_table_to_paste_fits_a_page_and_its_columns_can_be_chosen(pt, tmp_path, name):
    words = (name, "sysbench-memory", *EXAMPLES[name]) if name in EXAMPLES else (name, *WITHOUT_CAPTURE[name])
    every = pt(*words, "--csv").out.splitlines()[0].split(",")
    pasted = pt(*words, "--format", "markdown").out.splitlines()[0].strip("| ").split(" | ")
    assert len(pasted) <= 14 and set(pasted) <= set(every)
    chosen = [every[-1], every[0]]
    asked = (*words, "--columns", ",".join(chosen))
    markdown = pt(*asked, "--format", "markdown", "-o", tmp_path / "some.csv").out
    assert markdown.startswith(f"| {' | '.join(chosen)} |\n")
    assert (tmp_path / "some.csv").read_text().splitlines()[0] == ",".join(chosen)
    assert all(one in pt(*asked).out for one in chosen)


def test_a_column_that_is_none_is_refused_with_what_was_meant_and_json_has_no_columns(pt, sample, tmp_path):
    ran = pt("classify", sample, "--weight", "leaf", "--columns", "group,cuont")
    assert ran.code == 2 and ran.out == "" and is_one_line(ran, 2)
    assert "--columns cuont: no such column; did you mean count? known: group, socket" in ran.err
    for json_form in (("--json",), ("-o", tmp_path / "x.json")):
        ran = pt("classify", sample, "--columns", "group", *json_form)
        assert ran.code == 2 and "--columns: JSON holds everything" in ran.err


def test_what_the_capture_does_not_allow_is_said_beside_every_form(pt, sample):
    for form in (("--csv",), ("--format", "latex"), ("--columns", "policy,speedup")):
        assert "ptanalyze: policy ptemagnet: " in pt("whatif", sample, "-p", "hydra,ptemagnet", *form).err


@pytest.mark.parametrize(
    "forms", [("--csv", "--json"), ("--json", "--format", "csv"), ("--csv", "--format", "latex")]
)
def test_two_forms_at_once_are_refused_and_the_same_twice_is_one(pt, forms):
    ran = pt("policies", *forms)
    assert ran.code == 2 and not ran.out and "print one of them; -o FILE writes another" in ran.err
    assert pt("policies", "--csv", "--format", "csv").out == pt("policies", "--csv").out != ""


def test_a_form_that_is_asked_for_goes_before_one_from_the_configuration(pt, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    plain = pt("policies", "--json").out
    (tmp_path / "ptanalyze").mkdir()
    (tmp_path / "ptanalyze" / "config.toml").write_text('format = "markdown"\n')
    assert pt("policies").out.startswith("| ") and pt("policies", "--json").out == plain
