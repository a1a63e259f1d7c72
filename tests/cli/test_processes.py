"""Captures of several processes on the command line."""

import json

from families import make_family


def test_what_processes_share_is_shown_and_a_single_one_is_refused(pt, tmp_path):
    family = make_family(tmp_path / "c")
    shown = pt("info", family)
    assert shown.code == 0 and "processes" in shown.out
    facts = json.loads(pt("info", family, "--json").out)["result"]
    assert facts["process 7"] == {
        "name": "p7",
        "table pages": 5,
        "leaf tables": 2,
        "with shared pages": 1,
        "with no others": 1,
        "4 KiB pages": 3,
        "of them shared": 2,
    }
    assert json.loads(pt("info", family, "--shared", "--json").out)["result"][1]["group"] == 0
    assert "0x200000" in pt("info", family, "--shared").out
    alone = pt("info", family / "pid-8", "--shared")
    assert alone.code == 2 and "dump process --tree PID" in alone.err


def test_answers_say_first_of_which_processes_they_are(pt, tmp_path):
    family = make_family(tmp_path / "c")
    for command in ("whatif", "advise"):
        assert "3 processes together" in pt(command, family).out
        assert "processes together" not in pt(command, family / "pid-8").out
    assert "3 processes together" in pt("classify", family).out
    assert "PID 7 alone" in pt("classify", family, "--by", "vma").out
