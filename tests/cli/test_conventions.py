"""What people expect of any command line: -p all, commas, near misses named, help, bare addresses."""

import json
import os
import subprocess
import sys

import pytest
from pandas import DataFrame

from ptanalyze.core.errors import meant
from ptanalyze.policies import names
from ptanalyze.show.terminal import latex, markdown


def policies_in(ran):
    return [row["policy"] for row in json.loads(ran.out)["result"]]


def test_policies_are_named_one_by_one_with_commas_all_at_once_or_as_the_api_does_by_default(pt, sample):
    def asked(*words):
        return policies_in(pt("whatif", sample, *words, "--json"))

    assert asked("-p", "mitosis,hydra") == asked("-p", "mitosis", "-p", "hydra") == asked()
    assert asked("-p", "bind:node=1,mitosis")[1:] == ["bind", "mitosis"]
    everything = pt("whatif", sample, "-p", "all", "--json")
    refused = json.loads(everything.out)["refused"]
    assert {*policies_in(everything), *refused} == set(names())


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["whatf"], "did you mean whatif?"),
        (["whatif", "-p", "mitos"], "did you mean mitosis?"),
        (["whatif", "-p", "hydra", "-m", "saphire-rapids"], "did you mean sapphire-rapids?"),
    ],
)
def test_a_near_miss_is_named(pt, arguments, near):
    ran = pt(*arguments)
    assert ran.code == 2 and near in ran.err


def test_what_is_near_nothing_is_not_guessed():
    assert meant("toaster", names()) == "" and meant("Hydra", names()) == "did you mean hydra? "


def test_help_and_version_are_found_where_other_programs_have_them(pt):
    assert pt("help").out == pt("--help").out and pt("help", "walk").out == pt("walk", "--help").out
    assert pt("-V").out == pt("version").out == pt("--version").out != ""


def test_an_address_is_hexadecimal_with_and_without_its_mark_and_the_capture_may_be_left_out(
    pt, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    marked, bare = pt("walk", "lookup", "0x4000000000"), pt("walk", "lookup", "4000000000")
    assert marked.code == 0 and marked.out == bare.out == pt("walk", "4000000000").out
    for words in ((), ("a", "b", "c"), ("lookup", "zz")):
        assert pt("walk", *words).code == 2


def test_a_size_is_written_with_its_unit(pt, tmp_path):
    ran = pt("record", "-o", tmp_path / "c", "--no-dump", "--max-bytes", "lots", "--", "true")
    assert ran.code == 2 and "write it like 64M" in ran.err


def test_a_size_limit_that_no_trace_fits_in_is_refused_before_the_program_runs(pt, tmp_path):
    made = tmp_path / "made"
    ran = pt("record", "-o", tmp_path / "c", "--no-dump", "--max-bytes", "10", "--", "touch", str(made))
    assert ran.code == 2 and "max-bytes = 10: " in ran.err and "64K" in ran.err and not made.exists()


def test_a_log_with_forced_colour_holds_no_progress_bars(sample):
    command = [sys.executable, "-m", "ptanalyze", "whatif", str(sample), "-p", "hydra"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"FORCE_COLOR": "1"})
    assert done.returncode == 0 and "\x1b" not in done.stderr and "\r" not in done.stderr


def test_tables_are_pasted_into_issues_and_papers(pt, sample):
    rows = json.loads(pt("whatif", sample, "-p", "hydra,mitosis", "--json").out)["result"]
    lines = pt("whatif", sample, "-p", "hydra,mitosis", "--format", "markdown").out.splitlines()
    assert [line.split(" | ")[0].lstrip("| ") for line in lines] == [
        "policy",
        "---",
        *(r["policy"] for r in rows),
    ]
    assert {line.count(" | ") for line in lines} == {lines[0].count(" | ")} and "speedup_low" in lines[0]
    tex = pt("policies", "hydra", "--format", "latex").out
    assert (
        tex.startswith("% in the preamble: \\usepackage{booktabs}\n\\begin{tabular}{l")
        and "acts\\_on" in tex
        and tex.endswith("\\end{tabular}\n")
    )


def test_a_sweep_prints_its_axes_and_the_columns_of_whatif_for_a_paper(pt, sample):
    asked = "sweep", sample, "-p", "hydra", "--set", "latency_ratio=1.5,3", "--format"
    names = [cell.strip() for cell in pt(*asked, "markdown").out.splitlines()[0].strip("|\n ").split("|")]
    assert names[:2] == ["latency_ratio", "policy"] and "speedup" in names and len(names) <= 12
    assert len(pt(*asked, "csv").out.splitlines()[0].split(",")) > 40


def test_a_value_that_only_one_of_the_policies_takes_says_how_to_give_it_to_that_one(pt, vm_sample):
    ran = pt("whatif", vm_sample, "-p", "mitosis,vmitosis-replicate,vmitosis-migrate", "--set", "mode=no-f")
    assert ran.code == 2 and ran.out == ""
    assert ran.err == (
        "ptanalyze: --set mode=no-f: no such value for policy mitosis; name the policy that it is for: "
        "vmitosis-replicate.mode=no-f\n"
    )


def test_what_stands_for_markup_is_escaped():
    table = DataFrame({"a|b_c": ["50 % & {x}\x1b", None], "n": [1.5, float("nan")]})
    assert markdown(table).splitlines()[0] == "| a\\|b_c | n |" and "\x1b" not in markdown(table)
    assert r"50 \% \& \{x\}" in latex(table) and latex(table).count(r" & - \\") == 1


def test_a_size_of_less_than_a_page_is_a_forgotten_unit(pt, sample):
    ran = pt("advise", sample, "--memory", "1")
    assert ran.code == 2 and "write 1M, or 1%" in ran.err


def test_what_makes_a_capture_names_it_when_nobody_does(pt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lackey.txt").write_text("I  04001000,3\n L 10000000,8\n")
    made = [
        (("synth", "--size", "16M", "--no-trace"), "synth"),
        (("import", "lackey", "lackey.txt"), "lackey.txt"),
        (("redact", "synth.capture"), "synth.redacted"),
        (("synth", "--size", "16M", "--no-trace"), "synth.2"),
    ]
    for words, name in made:
        assert pt(*words).code == 0
        assert (tmp_path / f"{name}.capture/capture.json").is_file(), words
