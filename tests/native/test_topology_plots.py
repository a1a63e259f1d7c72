"""`ptanalyze topology measure` and `latency` draw what they measured on this machine."""

import os

import pytest

from native.dumping import make
from plot_texts import readable
from ptanalyze.cli import run
from ptanalyze.show import plots

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(
        len(os.sched_getaffinity(0)) < 2 and not os.environ.get("CI"), reason="a pair needs two CPUs"
    ),
]


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("ptpingpong", ["measure", "--rounds", "100", "--repeat", "3"]),
        ("ptchase", ["latency", "--mebibytes", "16", "--bursts", "5"]),
    ],
)
def test_what_is_measured_is_drawn(tool, words, tmp_path, monkeypatch):
    make("dumps")
    found, save = [], plots.save
    monkeypatch.setattr(plots, "save", lambda figure, path: (found.append(figure), save(figure, path)))
    path = tmp_path / "measured.png"
    assert run(["topology", *words, "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG") and readable(found[0])
