"""ideal says what it bounds: locality, not policies that read less."""

import ptanalyze
from ptanalyze.policies import find


def test_a_result_of_ideal_says_what_it_does_not_bound_and_others_do_not(tmp_path):
    made = ptanalyze.synth(tmp_path / "c", "16M", threads=2, nodes=2, accesses=5000)
    linux, ideal = ptanalyze.replay(made, "ideal", baseline="linux").results
    said = [note for note in ideal.notes if note.startswith("ideal bounds locality only")]
    assert len(said) == 1 and "thp" in said[0] and "hydra" in said[0]
    assert not [note for note in linux.notes if "ideal" in note]
    untraced = ptanalyze.synth(tmp_path / "u", "16M", nodes=2, trace=False)
    assert said[0] in ptanalyze.replay(untraced, "ideal").results[1].notes
    assert "bounds locality" in find("ideal").doc


def test_huge_pages_are_faster_than_the_bound_of_locality(tmp_path):
    made = ptanalyze.synth(tmp_path / "c", "32M", threads=2, nodes=2, accesses=10_000, init_trace=False)
    table = ptanalyze.whatif(made, ["ideal", "thp"], baseline="linux", cold=True).set_index("policy")
    assert table["remote_dram_reads"]["ideal"] == 0
    assert table["walk_cycles"]["thp"] < table["walk_cycles"]["ideal"] < table["walk_cycles"]["linux"]
