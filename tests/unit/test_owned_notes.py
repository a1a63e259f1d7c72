"""Notes of several results: each once, and whose it is where not all have it."""

from types import SimpleNamespace

from ptanalyze.analysis.findings import owned_notes


def result(policy, *notes, assumptions="idle latencies"):
    return SimpleNamespace(policy=policy, notes=notes, price=SimpleNamespace(assumptions=assumptions))


def test_a_note_that_not_all_policies_have_names_those_that_have_it():
    results = [
        result("first-touch", "of all", "of most"),
        result("linux", "of all", "of most"),
        result("thp+hydra", "of all", "few reads from DRAM", "thp: 2 MiB stay"),
    ]
    assert owned_notes(results) == [
        "of all",
        "all but thp+hydra: of most",
        "idle latencies",
        "thp+hydra: few reads from DRAM",
        "thp: 2 MiB stay",
    ]
    assert "idle latencies" not in owned_notes(results, assumptions=False)


def test_of_one_policy_and_of_points_of_a_sweep_notes_need_no_name():
    assert owned_notes([result("linux", "alone")]) == ["alone", "idle latencies"]
    points = [result("thp", "at one node"), result("thp", "at two nodes")]
    assert owned_notes(points, assumptions=False) == ["at one node", "at two nodes"]
