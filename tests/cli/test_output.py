"""--json, --csv, -o, --plot and the tables behind them: one answer in all its forms, the same as the API's.

Each command that prints a table runs once in each form; what holds of every one is asserted of that.
"""

import csv
import io
import json
import re
import shlex
import shutil
from itertools import cycle
from pathlib import Path
from xml.etree import ElementTree

import pandas
import pytest
from matplotlib import image

import ptanalyze
from every_command import LEAVES, takes
from one_line import is_one_line
from plot_texts import readable
from ptanalyze.core.errors import bundled
from ptanalyze.formats.text_output import SCHEMA
from ptanalyze.show import plots
from shorter import TOUCHES, shorter
from vm_samples import unpack

DOCS = Path(ptanalyze.__file__).parents[1] / "docs"
CAPTURES = sorted(path.name for path in bundled("samples").iterdir() if path.is_dir())
COUNTERS = (
    "591789168957,,cycles:u\n310406758348,,dtlb_load_misses.walk_pending:u\n"
    "15741821,,dtlb_store_misses.walk_pending:u\n0,,ept.walk_pending:u\n"
)
MATRIX = ",0,1,2,3\n0,-,50,125,125\n1,50,-,125,125\n2,125,125,-,50\n3,125,125,50,-\n"
EXAMPLES = {  # VM stands for a copy of the bundled capture of a VM
    "synth": "-o made --size 16M --guest visible --accesses 1000",
    "join": "pair/host pair/guest -o made",
    "diff": "VM VM",
    "info": "VM",
    "check": "VM",
    "walk": "VM 0x4000000000",
    "classify": "VM",
    "fragmentation": "VM --after",
    "whatif": "VM -p mitosis -p hydra",
    "timeline": "VM -p linux -p vmitosis-migrate --windows 4",
    "sweep": "VM -p hydra -p mitosis --set prefetch=0,9",
    "degrees": "VM",
    "compare": "VM@linux VM@mitosis",
    "advise": "VM",
    "calibrate": "--local local.csv",
    "predict": "--local local.csv",
    "validate": "--paper vmitosis --row 'table 4'",
    "topology groups": "matrix.csv",
    "policies": "",
    "machines": "",
}
ELSEWHERE = {  # what measures the machine, and who tests its JSON and its plot
    "survey": "tests/native/test_survey.py",
    "topology measure": "tests/native/test_pingpong.py, test_topology_plots.py",
    "topology latency": "tests/native/test_chase.py, test_topology_plots.py",
}
NO_TABLE = {
    "record": "one line: what was recorded",
    "heat": "one line: what was sampled",
    "dump process": "one line: what was dumped",
    "dump vm": "one line: what was dumped",
    "import": "one line: what was imported",
    "doctor": "lines about the host",
    "redact": "one line: what was written",
    "report": "a page that has its plots inside",
    "completion": "a script",
}
OTHER_NAMES = {"calibrate": "calibration"}
OWN_FILE = {"synth", "join", "calibrate", "topology measure", "topology latency"}  # -o is what they make
FORMS = {"table": "json", "json": "csv", "csv": "parquet"}  # what is printed, what -o writes; json also draws
IMAGES = dict(zip(EXAMPLES, cycle(("png", "svg", "pdf")), strict=False))


def test_every_command_has_an_example_or_a_reason_not_to():
    assert sorted(LEAVES) == sorted([*EXAMPLES, *ELSEWHERE, *NO_TABLE])


def test_whatever_prints_a_table_takes_all_forms_of_output_and_nothing_else_does():
    for name, command in LEAVES.items():
        forms = {takes(command, option) for option in ("--json", "--csv", "--plot")}
        assert forms == {name not in NO_TABLE}, name
        endings = [one.metavar for one in command.params if "-o" in one.opts]
        assert (endings == ["FILE.{json,csv,parquet}"]) == (name not in NO_TABLE and name not in OWN_FILE)


def rows_of(page):
    lines = (DOCS / page).read_text().splitlines()
    return [line.split("|")[1:4] for line in lines if line.startswith("| `")]


def test_the_manual_has_a_row_for_every_command_with_json():
    listed = {
        command.strip(" `"): what.strip().split("`")[1] for command, what, *_ in rows_of("reference/json.md")
    }
    assert all(listed[name] == OTHER_NAMES.get(name, name) for name in (*EXAMPLES, *ELSEWHERE))


def test_the_manual_says_what_each_command_draws_with_which_function():
    rows = rows_of("howto/plots.md")
    told = [name for command, _, _ in rows for name in re.findall(r"`([^`]+)`", command)]
    assert sorted(told) == sorted([*EXAMPLES, *ELSEWHERE, "machines NAME", "report"])
    functions = {name for _, _, functions in rows for name in re.findall(r"`(\w+)`", functions)}
    assert functions == set(plots.__all__) - {"save"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with all that the examples read; they run and write there."""
    place = tmp_path_factory.mktemp("examples")
    (place / "local.csv").write_text(COUNTERS)
    (place / "matrix.csv").write_text(MATRIX)
    unpack("visible-bound", place).rename(place / "pair")
    return place


@pytest.fixture(scope="module")
def drawn():
    """Names of the plots that were drawn, and readable."""
    return []


@pytest.fixture
def answer(once, vm_sample, place, drawn, monkeypatch):
    """Run an example in one of FORMS, in a terminal of 80 columns."""
    save = plots.save

    def kept(figure, path):
        assert readable(figure)
        drawn.append(path)
        save(figure, path)

    monkeypatch.setattr(plots, "save", kept)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(place)

    def call(name, form, *more):
        shutil.rmtree("made", ignore_errors=True)
        words = [*name.split(), *shlex.split(EXAMPLES[name].replace("VM", str(vm_sample)))]
        words += {"table": [], "csv": ["--csv"], "json": ["--json", "--plot", f"{name}.{IMAGES[name]}"]}[form]
        words += ["-o", f"{name}.{FORMS[form]}"] if name not in OWN_FILE else []
        ran = once(*words, *more)
        assert ran.code == 0, ran.err
        return ran

    return call


@pytest.mark.parametrize("name", EXAMPLES)
def test_json_is_one_object_with_schema_what_and_result(answer, name):
    whole = json.loads(answer(name, "json").out, parse_constant=pytest.fail)
    assert list(whole) == ["schema", "what", "result"]
    assert whole["schema"] == SCHEMA == 2
    assert whole["what"] == OTHER_NAMES.get(name, name)
    assert whole["result"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_tables_fit_a_terminal_of_80_columns(answer, name):
    lines = answer(name, "table").out.splitlines()
    tables = [line for line in lines if not line.startswith("    ptanalyze ")]  # a command is never broken
    assert tables and max(map(len, tables)) <= 80


def is_an_image(path):
    if path.suffix == ".png":
        return image.imread(path).shape[1] > 1000
    if path.suffix == ".svg":
        return ElementTree.parse(path).getroot().tag.endswith("svg")
    return path.read_bytes().startswith(b"%PDF") and b"%%EOF" in path.read_bytes()[-10:]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_command_draws_a_readable_image(answer, place, drawn, name):
    file = f"{name}.{IMAGES[name]}"
    assert f"ptanalyze: wrote {file}\n" in answer(name, "json").err
    assert is_an_image(place / file) and drawn.count(file) == 1


@pytest.mark.parametrize(
    "name", ["synth", "join", "calibrate", "machines", "info", "walk", "diff", "topology groups"]
)
def test_a_command_prints_what_it_prints_without_a_plot(answer, name):
    assert answer(name, "table", "--plot", "again.svg").out == answer(name, "table").out


def are_one_table(text, parquet):
    """CSV text and a Parquet file."""
    rows = list(csv.DictReader(io.StringIO(text)))
    table = pandas.read_parquet(parquet)
    assert rows and len(rows) == len(table) and list(rows[0]) == list(table.columns)
    assert all(row[name] != name for row in rows for name in row), "the header stands once"
    return True


@pytest.mark.parametrize("name", sorted({*EXAMPLES} - OWN_FILE))
def test_a_file_holds_what_is_printed_in_any_other_form_and_one_table(answer, place, name):
    """The JSON is printed with a plot and written without, the CSV the other way round."""
    files = {ending: place / f"{name}.{ending}" for ending in FORMS.values()}
    for form, ending in FORMS.items():
        assert f"ptanalyze: wrote {files[ending].name}\n" in answer(name, form).err
    for form in ("json", "csv"):
        assert answer(name, form).out == files[form].read_text()
    assert are_one_table(files["csv"].read_text(), files["parquet"])
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o600}


NATIVE = {
    **{name: words.replace("VM", "sysbench-memory") for name, words in EXAMPLES.items() if "VM" in words},
    "timeline": "sysbench-memory -p hydra --windows 3",
    "policies": "",
    "machines": "",
    "predict": "--statistics",
}
del NATIVE["fragmentation"]


@pytest.fixture
def native(once, place, monkeypatch):
    """Run an example of a native capture with `--csv -o`."""
    monkeypatch.chdir(place)

    def call(name):
        ran = once(name, *NATIVE[name].split(), "--csv", "-o", f"native {name}.parquet")
        assert ran.code == 0, ran.err
        return ran

    return call


@pytest.mark.parametrize("name", NATIVE)
def test_a_file_holds_what_is_printed_of_a_native_capture(native, place, name):
    assert are_one_table(native(name).out, place / f"native {name}.parquet")


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


def test_every_column_of_the_api_is_one_of_the_command_line(native, sample):
    rows = csv.reader(io.StringIO(native("whatif").out))
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
def test_a_table_to_paste_fits_a_page_and_its_columns_can_be_chosen(pt, native, tmp_path, name):
    words = (name, *NATIVE[name].split())
    every = native(name).out.splitlines()[0].split(",")
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
