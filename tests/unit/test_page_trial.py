"""Trials of page sizes: their records."""

import pytest

from ptanalyze.core.errors import CaptureError
from ptanalyze.core.interval import Interval
from ptanalyze.cost.law import PageTrial
from ptanalyze.formats.measured import read_measured, write_calibration
from ptanalyze_law.calibration_file import read_calibration

TRIAL = PageTrial(
    program="redis-server",
    kernel="6.18.0",
    cpu="a CPU",
    date="2026-11-28",
    figure="system calls per CPU second",
    gain=Interval(1.49, 1.52, 1.55),
    contiguous=Interval(1.08, 1.11, 1.13),
    pairs=6,
    seconds=61.5,
    blocks=473,
    resident_bytes=1 << 30,
    huge_share_found=0.0,
    huge_share_huge=0.97,
    refused={"EINVAL": 114},
)


def kept(tmp_path, trial):
    path = tmp_path / "app.toml"
    write_calibration(path, trial)
    return path


def test_a_trial_of_page_sizes_is_kept_beside(tmp_path):
    path = kept(tmp_path, TRIAL)
    assert read_measured(path) == TRIAL
    with pytest.raises(CaptureError, match=r"kind = page size: .*whatif CAPTURE --calibration"):
        read_calibration(path)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('kind = "page size"', 'kind = "x"', "kind = x: expected page size"),
        ("low = 1.49", "low = 1.53", "gain = 1.53, 1.52, 1.55: expected low, middle, high"),
        ("low = 1.08", "low = 0.0", "contiguous = 0, 1.11, 1.13"),
        ("high = 1.55", "high = inf", "gain = 1.49, 1.52, inf"),
        ("huge_share_huge = 0.97", "huge_share_huge = 97.0", "huge_share_huge = 97.0: must be at most 1"),
        ("pairs = 6", "pairs = 0", "pairs = 0: must be at least 1"),
        ("EINVAL = 114", "EINVAL = -1", "refused"),
        ("blocks = 473\n", "", "blocks: missing"),
        ("blocks = 473", "blocks = 473\nwalkers = 2.0", "walkers: no such field"),
    ],
)
def test_a_damaged_trial_names_file_and_field(tmp_path, old, new, why):
    path = kept(tmp_path, TRIAL)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(CaptureError, match=why) as refused:
        read_measured(path)
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)
