"""The share of the LLC left to page tables: an estimate, whose bounds the interval of a speed-up covers."""

import pytest
from msgspec.structs import replace

from ptanalyze import whatif
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import at_other_shares, load_machine, sharing
from ptanalyze.formats.measured.machine import write_machine

MACHINE = load_machine("vmitosis-cascade-lake")
SMALL = replace(MACHINE, llc=replace(MACHINE.llc, bytes=704 << 10), l2=replace(MACHINE.l2, bytes=64 << 10))
BOUNDS = ["speedup_low", "speedup", "speedup_high"]


def speedups(share):
    """(low, middle, high) of hydra over linux where page tables are larger than the caches."""
    return whatif("sysbench-memory", ["hydra"], machine=SMALL, cache_share=share).iloc[1][BOUNDS].tolist()


def test_an_interval_covers_the_bounds_of_the_share_and_its_middle_is_at_the_machines_own():
    fixed = [speedups(share) for share in (0.125, 0.25, 0.5)]
    low, middle, high = speedups("0.125:0.5")
    assert low == min(one[0] for one in fixed)
    assert max(one[2] for one in fixed) <= high < 1.2 * max(one[2] for one in fixed), "data wait least at 0.5"
    assert middle == fixed[1][1] and fixed[0] != fixed[1] != fixed[2]
    assert speedups(None) == [low, middle, high]


def test_without_bounds_there_are_no_other_shares():
    assert at_other_shares(sharing(MACHINE, "0.25")) == ()
    assert [one.llc.share for one in at_other_shares(MACHINE)] == [0.125, 0.5]
    assert [one.llc.share for one in at_other_shares(sharing(MACHINE, "0.25:0.5"))] == [0.5]


@pytest.mark.parametrize("text", ["", "x", "0", "1.5", "-1", "nan", "0.1:", "0.1:0.3:0.5", "0:1", "inf"])
def test_what_is_no_share_is_refused_in_a_line(text):
    with pytest.raises(UsageError, match=r"^--cache-share .*: write the share .* as 0.25, or its bounds"):
        sharing(MACHINE, text)


@pytest.mark.parametrize("text", ["0.3:0.5", "0.1:0.2", "0.5:0.1"])
def test_bounds_have_to_hold_the_machines_own_share(text):
    with pytest.raises(UsageError, match=r"leaves out the machine's own share, 0\.25"):
        sharing(MACHINE, text)


@pytest.mark.parametrize("bounds", ["[0.3, 0.5]", "[0.0, 0.5]", "[0.125, 1.5]", "[0.5, 0.125]", "[nan, 0.5]"])
def test_a_machine_file_with_other_bounds_is_refused(tmp_path, bounds):
    file = tmp_path / "machine.toml"
    write_machine(file, MACHINE)
    text = file.read_text()
    assert "[0.125, 0.5]" in text
    file.write_text(text.replace("[0.125, 0.5]", bounds))
    with pytest.raises(UsageError, match=r"machine.toml: llc.shares = .*bounds of llc.share, 0.25"):
        load_machine(file)


def test_bounds_survive_writing_a_machine_file(tmp_path):
    file = tmp_path / "machine.toml"
    write_machine(file, MACHINE)
    assert load_machine(file) == MACHINE
