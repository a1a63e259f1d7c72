"""The script that tries the Pin tool, as far as it goes without Pin: refusals, and its probes under QEMU."""

import os
import runpy
import subprocess
import sys

import pytest

from native.tracing import ROOT, build_plugin

pytestmark = pytest.mark.native
SCRIPT, RUN = ROOT / "pintool/try-pin.sh", ROOT / "pintool/probes/run.sh"
JUDGE = ROOT / "pintool/probes/judge.py"
PROBES = ("plain", "threads", "fork", "exec", "gather")


def words(command, **environment):
    env = {name: value for name, value in os.environ.items() if name != "PIN_ROOT"}
    env |= {"PYTHON": sys.executable, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=300)


def fake_kit(place, rules):
    """A kit whose program only says its version."""
    (place / "source/tools/Config").mkdir(parents=True)
    (place / "source/tools/Config/makefile.config").write_text(rules)
    (place / "pin").write_text("#!/bin/sh\necho Pin 0.0\n")
    (place / "pin").chmod(0o755)
    return place


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (None, "PIN_ROOT is not set: get a Pin 3 kit for Linux (gcc) from Intel, unpack it"),
        ((), "no program pin in it"),
        (("pin",), "no source/tools/Config/makefile.config; unpack the whole kit"),
    ],
)
def test_without_a_kit_one_line_says_what_to_do(tmp_path, there, says):
    for name in there or ():
        (tmp_path / name).touch(0o755)
    kit = {} if there is None else {"PIN_ROOT": str(tmp_path)}
    done = words([SCRIPT, tmp_path / "report"], **kit)
    assert done.returncode == 2 and done.stdout == "" and not (tmp_path / "report").exists()
    assert says in done.stderr and len(done.stderr.splitlines()) == 1


def test_an_interpreter_without_ptanalyze_and_a_report_that_cannot_be_written_are_refused(tmp_path):
    kit = {"PIN_ROOT": str(fake_kit(tmp_path, ""))}
    assert "has no ptanalyze" in words([SCRIPT], **kit, PYTHON="/bin/false").stderr
    done = words([SCRIPT, tmp_path / "no/report"], **kit)
    assert done.returncode == 2 and "cannot be written; name another file" in done.stderr


def test_a_kit_that_does_not_build_leaves_a_report_that_says_why(tmp_path):
    kit = fake_kit(tmp_path / "kit", "$(error this kit is broken)\n")
    done = words([SCRIPT, tmp_path / "report"], PIN_ROOT=str(kit))
    report = (tmp_path / "report").read_text()
    assert done.returncode == 1 and report == done.stdout
    assert "Pin 0.0" in report and "not built:" in report and "this kit is broken" in report


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    build_plugin()
    logs = tmp_path_factory.mktemp("probes")
    return words([RUN, "qemu", logs]), logs


def test_the_probes_find_nothing_wrong_with_the_tracer_that_was_tested_otherwise(ran):
    done, _ = ran
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == list(PROBES) and done.returncode == 0
    assert [row[3] for row in rows if row[0] != "gather"] == ["ok"] * 4
    assert rows[-1][3:] in (["ok"], ["not", "run:", "this", "CPU", "has", "no", "AVX2"])
    assert [row[2] for row in rows[:4]] == [
        "0",
        "0",
        "0",
        "3",
    ]  # after exec the trace is shorter than the run


@pytest.mark.parametrize(
    ("probe", "capture", "says"),
    [
        ("gather", "plain", "page 0 has (accesses, store) (6, True), not (1, False)"),
        ("plain", "fork", "page 32 has (accesses, store) None, not (6, True); 32 pages seen"),
        ("threads", "plain", "not four different ones"),
        ("exec", "fork", "the trace ended by exit, not exec"),
        ("fork", "exec", "the trace ended by exec, not exit"),
    ],
)
def test_the_judge_says_what_is_wrong(ran, probe, capture, says):
    _, logs = ran
    assert says in runpy.run_path(str(JUDGE))["judge"](probe, logs / capture, int(base_of(logs, capture), 16))


def test_the_judge_ends_with_1_where_something_is_wrong(ran):
    _, logs = ran
    done = words([sys.executable, JUDGE, "exec", logs / "fork", base_of(logs, "fork")])
    assert done.returncode == 1 and done.stdout == "the trace ended by exit, not exec\n"


def base_of(logs, probe):
    return (logs / f"{probe}.out").read_text().split()[0]
