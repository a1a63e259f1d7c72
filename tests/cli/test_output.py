"""--json, --csv, -o, --plot and the tables behind them: one answer in all its forms, the API among them."""

import csv
import json
import re
import shlex
import shutil
import stat
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib import image

import ptanalyze
from captures import TOUCHES, shorter
from command_line import LEAVES, is_one_line, takes
from needs import needs_root
from plot_texts import readable
from ptanalyze.core.errors import bundled
from ptanalyze.core.machine import load_machine
from ptanalyze.formats.measured import write_machine
from ptanalyze.formats.text_output import SCHEMA, csv_text, plain
from ptanalyze.show import plots
from ptanalyze.show.whatif import aligned
from ptanalyze_pages import trial_command as trial
from ptanalyze_pages.far_tables import Trial, Window
from ptanalyze_report import page

# --json, --csv, -o, --plot and the tables behind them: one answer in all its forms, the same as the API's.
# Each command that prints a table runs once in each form; what holds of every one is asserted of that.

DOCS = Path(ptanalyze.__file__).parents[1] / "docs"
CAPTURES = sorted(path.name for path in bundled("samples").iterdir() if path.is_dir())
COUNTERS = (
    "591789168957,,cycles:u,1,100.00,,\n310406758348,,dtlb_load_misses.walk_pending:u,1,100.00,,\n"
    "15741821,,dtlb_store_misses.walk_pending:u,1,100.00,,\n0,,ept.walk_pending:u,1,100.00,,\n"
)
EXAMPLES = {  # VM stands for a copy of the bundled capture of a VM
    "diff": "VM VM",
    "info": "VM",
    "check": "VM",
    "walk": "VM 0x4000000000",
    "classify": "VM",
    "fragmentation": "VM --after",
    "whatif": "VM -p mitosis -p hydra",
    "timeline": "VM -p linux -p vmitosis-migrate --windows 4",
    "sweep": "VM -p hydra -p mitosis --set prefetch=0,9",
    "advise": "VM",
    "calibrate": "--local local.csv",
    "validate": "--paper vmitosis --row 'table 4'",
    "policies": "",
    "machines": "",
}
# they measure this machine: tests/native/test_topology.py
ELSEWHERE = ("survey",)
NO_TABLE = {
    "record": "one line: what was recorded",
    "dump process": "one line: what was dumped",
    "dump vm": "one line: what was dumped",
    "import": "one line: what was imported",
    "doctor": "lines about the host, or JSON for a fleet",
    "hugepages": "mappings and lines to type, or JSON",
    "join": "one line: what the host maps",
    "redact": "one line: what was written",
    "synth": "one line: what was made",
    "relocate": "lines about one process, or its plan in JSON",
    "trial": "a line per measurement; -o is a calibration",
    "report": "a page that has its plots inside",
}
TABLES_ALONE = {"check", "policies", "survey", "diff", "machines"}
DRAWN = {*EXAMPLES} - TABLES_ALONE
ONLY_JSON = {"doctor", "hugepages", "relocate"}
OTHER_NAMES = {"calibrate": "calibration"}
OWN_FILE = {"calibrate"}  # -o is what they make
FORMS = {"table": "json", "json": "csv", "csv": "json"}  # what is printed, what -o writes; json also draws
IMAGES = dict(zip(EXAMPLES, cycle(("png", "svg", "pdf")), strict=False))


def test_every_command_has_an_example_or_a_reason_not_to():
    assert sorted(LEAVES) == sorted([*EXAMPLES, *ELSEWHERE, *NO_TABLE])


def test_whatever_prints_a_table_takes_all_forms_of_output_and_nothing_else_does():
    for name, command in LEAVES.items():
        forms = {takes(command, option) for option in ("--json", "--csv")}
        assert takes(command, "--plot") is (name in DRAWN), name
        assert forms == ({True, False} if name in ONLY_JSON else {name not in NO_TABLE}), name
        endings = [one.metavar for one in command.params if "-o" in one.opts]
        assert (endings == ["FILE.{json,csv}"]) == (name not in NO_TABLE and name not in OWN_FILE)


def rows_of(page):
    return [row.split("|")[1:4] for row in (DOCS / page).read_text().splitlines() if row.startswith("| `")]


def test_the_manual_has_a_row_for_every_command_with_json():
    rows = rows_of("reference/json.md")
    listed = {command.strip(" `"): what.strip().split("`")[1] for command, what, *_ in rows}
    assert all(listed[name] == OTHER_NAMES.get(name, name) for name in (*EXAMPLES, *ELSEWHERE))


def test_the_manual_says_what_each_command_draws_with_which_function():
    rows = rows_of("howto/plots.md")
    assert {name for command, _, _ in rows for name in re.findall(r"`([^`]+)`", command)} == DRAWN
    functions = {name for _, _, functions in rows for name in re.findall(r"`(\w+)`", functions)}
    assert functions == {*plots.__all__, "prediction_plot", "validation"} - {"save"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with all that the examples read; they run and write there."""
    place = tmp_path_factory.mktemp("examples")
    (place / "local.csv").write_text(COUNTERS)
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
        words += {"table": [], "csv": ["--csv"], "json": ["--json"]}[form]
        words += ["--plot", f"{name}.{IMAGES[name]}"] if form == "json" and name in DRAWN else []
        words += ["-o", f"{name}.{FORMS[form]}"] if name not in OWN_FILE else []
        ran = once(*words, *more)
        assert ran.code == 0, ran.err
        return ran

    return call


@pytest.mark.parametrize("name", EXAMPLES)
def test_json_is_one_object_with_schema_what_and_result(answer, name):
    whole = json.loads(answer(name, "json").out, parse_constant=pytest.fail)
    assert list(whole) == ["schema", "what", "result"]
    assert whole["schema"] == SCHEMA == 3
    assert whole["what"] == OTHER_NAMES.get(name, name)
    assert whole["result"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_tables_fit_a_terminal_of_80_columns(answer, name):
    lines = answer(name, "table").out.splitlines()
    tables = [line for line in lines if not line.startswith("    ptanalyze ")]  # a command is never broken
    assert tables and max(map(len, tables)) <= 80


def test_a_policys_name_is_never_broken_and_stands_beside_its_cells_where_80_columns_hold_both():
    cells = "1.30x (1.14-1.43)", "+5.7 MiB", "26.8 ms", "research kernel"
    beside, widest, name, alone = aligned([(name, *cells) for name in ("thp", "a" * 24, "b" * 25)])
    assert beside.startswith(" thp ") and len(widest) == 80 and name == " " + "b" * 25
    assert len({line.index(cells[0]) for line in (beside, widest, alone)}) == 1


def is_an_image(path):
    if path.suffix == ".png":
        return image.imread(path).shape[1] > 1000
    if path.suffix == ".svg":
        return ElementTree.parse(path).getroot().tag.endswith("svg")
    return path.read_bytes().startswith(b"%PDF") and b"%%EOF" in path.read_bytes()[-10:]


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name in DRAWN])
def test_a_command_draws_a_readable_image(answer, place, drawn, name):
    file = f"{name}.{IMAGES[name]}"
    assert f"ptanalyze: wrote {file}\n" in answer(name, "json").err
    assert is_an_image(place / file) and drawn.count(file) == 1


@pytest.mark.parametrize("name", sorted({*EXAMPLES} - OWN_FILE))
def test_a_file_holds_what_is_printed_in_any_other_form_and_one_table(answer, place, name):
    """The JSON is printed with a plot and written without, the CSV the other way round."""
    files = {ending: place / f"{name}.{ending}" for ending in FORMS.values()}
    for form, ending in FORMS.items():
        assert f"ptanalyze: wrote {files[ending].name}\n" in answer(name, form).err
    for form in ("json", "csv"):
        assert answer(name, form).out == files[form].read_text()
    rows = list(csv.DictReader(files["csv"].read_text().splitlines()))
    assert rows and not any(row[name] == name for row in rows for name in row)


@pytest.mark.parametrize("path", ["x.tsv", "no/where.csv", "."])
def test_a_file_that_cannot_be_written_is_refused_before_any_work(pt, sample, tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    for command in (("info", sample), ("whatif", sample, "-p", "hydra")):
        ran = pt(*command, "-o", path)
        assert is_one_line(ran, 2) and not ran.out and "-o" in ran.err


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_as_dev_null(tmp_path, closed):
    command = f"{sys.executable} -m ptanalyze info lookup -o x.csv {closed}"
    assert subprocess.run(command, shell=True, cwd=tmp_path).returncode == 0
    assert (tmp_path / "x.csv").read_text().startswith("section,fact,value\n")


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
def test_files_of_the_command_line_are_the_tables_of_the_api(pt, tmp_path, made):
    capture = made(pt, tmp_path)
    table = ptanalyze.whatif(capture, ["mitosis", "ideal"])
    asked = "whatif", capture, "-p", "mitosis", "-p", "ideal", "-o"
    assert pt(*asked, tmp_path / "file.csv").code == pt(*asked, tmp_path / "file.json").code == 0
    assert (tmp_path / "file.csv").read_text() == csv_text(table)
    rows = json.loads((tmp_path / "file.json").read_text())["result"]
    same = [column for column in table if column in rows[0]]
    assert len(same) > 40
    expected = plain(table[same].astype(object).to_dict("records"))
    assert [{name: row[name] for name in same} for row in rows] == expected


@pytest.mark.parametrize("line", ["policies --csv --json", "info --json --csv", "relocate 1 --yes --dry-run"])
def test_two_forms_or_two_ways_at_once_are_refused(pt, line):
    assert is_one_line(pt(*line.split()), 2)


# `--plot FILE` and its kinds, and every plot of the bundled captures as a reader finds it.


def test_another_ending_and_a_missing_directory_are_refused_before_any_work(pt, sample, tmp_path):
    for path, why in (
        (tmp_path / "a.gif", "FILE.png, FILE.svg or FILE.pdf"),
        (tmp_path / "no" / "a.png", "directory"),
    ):
        ran = pt("whatif", sample, "-p", "hydra", "--plot", path)
        assert is_one_line(ran, 2) and why in ran.err and not ran.out
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_drawn_is_one_line_after_the_table(pt, tmp_path):
    ran = pt("timeline", bare_trace(pt, tmp_path), "-p", "mitosis", "--plot", tmp_path / "a.svg")
    assert ran.code == 2 and ran.err.splitlines()[-1].startswith("ptanalyze: nothing to draw: ")
    assert "mitosis" in ran.out


# Every file that is named with an option: whole, not through links, of the user who typed the command.

COUNTED = {
    "cycles:u": 1e10, "instructions:u": 1e10, "dtlb_load_misses.walk_active:u": 3e9,
    "dtlb_store_misses.walk_active:u": 1e8, "dtlb_load_misses.walk_completed:u": 1e8,
}  # fmt: skip
TRIED = Trial(10.0, tuple(Window(far, 1.3 - 0.3 * far, far, 1.0, COUNTED) for far in (True, False)))
TABLE = ("policies", "ideal", "-o")
PLOT = ("walk", "lookup", "0x4000000000", "--plot")
OUTPUTS = {
    **dict.fromkeys(("a.json", "a.csv"), lambda pt, path: pt(*TABLE, path)),
    **dict.fromkeys(("a.png", "a.svg", "a.pdf"), lambda pt, path: pt(*PLOT, path)),
    "report.html": lambda pt, path: page.write(path, "x"),
    "machine.toml": lambda pt, path: write_machine(path, load_machine("hydra-haswell")),
    "law.toml": lambda pt, path: pt("calibrate", "--local", "local.csv", "-o", path),
    "pages.prom": lambda pt, path: pt("survey", "--prometheus", path),
    **dict.fromkeys(("t.toml", "t.near.csv", "t.far.csv"), lambda pt, path: trial.write("t.toml", TRIED)),
}
SHARED = {"pages.prom"}  # which node_exporter reads


@needs_root
@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_are_private_and_follow_no_links(pt, monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    (tmp_path / "local.csv").write_text(COUNTERS)
    (tmp_path / "victim").write_text("precious")
    (tmp_path / name).symlink_to("victim")
    before = set(tmp_path.iterdir())
    OUTPUTS[name](pt, tmp_path / name)
    facts = (tmp_path / name).lstat()
    assert (tmp_path / "victim").read_text() == "precious" and facts.st_size > 0
    assert facts.st_mode == stat.S_IFREG | (0o644 if name in SHARED else 0o600)
    assert facts.st_uid == facts.st_gid == 65534
    assert {path.name for path in {*tmp_path.iterdir()} - before} <= {*OUTPUTS}
