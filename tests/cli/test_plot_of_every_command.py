"""Every command that prints a table draws it: a real image, readable at its default size; stdout stays."""

import re
import shutil
from itertools import cycle
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib import image

import ptanalyze
from every_command import LEAVES, takes
from plot_texts import readable
from ptanalyze.formats.capture_dir import seal
from ptanalyze.show import plots
from vm_samples import unpack

HOWTO = Path(ptanalyze.__file__).parents[1] / "docs" / "howto" / "plots.md"
VM = "VM"  # stands for a copy of the bundled capture of a VM
COUNTERS = (
    "591789168957,,cycles:u\n310406758348,,dtlb_load_misses.walk_pending:u\n"
    "15741821,,dtlb_store_misses.walk_pending:u\n0,,ept.walk_pending:u\n"
)
MATRIX = ",0,1,2,3\n0,-,50,125,125\n1,50,-,125,125\n2,125,125,-,50\n3,125,125,50,-\n"
DRAWN = {
    "synth": ["-o", "made", "--size", "16M", "--guest", "visible", "--accesses", 1000],
    "join": ["pair/host", "pair/guest", "-o", "joined"],
    "diff": [VM, VM],
    "info": [VM],
    "check": [VM],
    "walk": [VM, "0x4000000000"],
    "classify": [VM],
    "fragmentation": [VM, "--after"],
    "whatif": [VM, "-p", "mitosis", "-p", "hydra"],
    "timeline": [VM, "-p", "linux", "-p", "vmitosis-migrate", "--windows", 4],
    "sweep": [VM, "-p", "hydra", "-p", "mitosis", "--set", "prefetch=0,9"],
    "degrees": [VM],
    "compare": [f"{VM}@linux", f"{VM}@mitosis"],
    "advise": [VM],
    "calibrate": ["--local", "local.csv"],
    "predict": ["--local", "local.csv"],
    "validate": ["--paper", "vmitosis", "--row", "table 4"],
    "topology groups": ["matrix.csv"],
    "policies": [],
    "machines": [],
}
ELSEWHERE = {  # what measures the machine, and who tests its plot
    "survey": "tests/native/test_survey.py",
    "topology measure": "tests/native/test_topology_plots.py",
    "topology latency": "tests/native/test_topology_plots.py",
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
ENDINGS = dict(zip(DRAWN, cycle(("png", "svg", "pdf")), strict=False))


def test_every_command_draws_or_has_a_reason_not_to():
    assert sorted(LEAVES) == sorted([*DRAWN, *ELSEWHERE, *NO_TABLE])


def test_whatever_prints_a_table_takes_plot_and_nothing_else_does():
    for name, command in LEAVES.items():
        assert takes(command, "--plot") == (name not in NO_TABLE), name
        assert takes(command, "--plot") or not takes(command, "--json"), name


def test_the_manual_says_what_each_command_draws_with_which_function():
    rows = [line.split("|")[1:4] for line in HOWTO.read_text().splitlines() if line.startswith("| `")]
    told = [name for command, _, _ in rows for name in re.findall(r"`([^`]+)`", command)]
    assert sorted(told) == sorted([*DRAWN, *ELSEWHERE, "machines NAME", "report"])
    functions = {name for _, _, functions in rows for name in re.findall(r"`(\w+)`", functions)}
    assert functions == set(plots.__all__) - {"save"}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory with all that the commands read; it is the working one."""
    (tmp_path / "local.csv").write_text(COUNTERS)
    (tmp_path / "matrix.csv").write_text(MATRIX)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def seen(monkeypatch):
    """The figures that are saved, and readable."""
    found, save = [], plots.save

    def kept(figure, path):
        assert readable(figure)
        found.append(figure)
        save(figure, path)

    monkeypatch.setattr(plots, "save", kept)
    return found


def is_an_image(path):
    if path.suffix == ".png":
        return image.imread(path).shape[1] > 1000
    if path.suffix == ".svg":
        return ElementTree.parse(path).getroot().tag.endswith("svg")
    return path.read_bytes().startswith(b"%PDF") and b"%%EOF" in path.read_bytes()[-10:]


@pytest.mark.parametrize("name", DRAWN)
def test_a_command_draws_a_readable_image_and_prints_what_it_prints_without(pt, vm_sample, place, seen, name):
    if name == "join":
        unpack("visible-bound", place).rename(place / "pair")
    words = [*name.split(), *(str(one).replace(VM, str(vm_sample)) for one in DRAWN[name])]
    plain = pt(*words)
    if name in ("synth", "join"):
        shutil.rmtree(place / words[words.index("-o") + 1])
    path = place / f"plot.{ENDINGS[name]}"
    drawn = pt(*words, "--plot", path)
    assert (drawn.code, drawn.out) == (plain.code, plain.out) and plain.code == 0, drawn.err
    assert f"ptanalyze: wrote {path}" in drawn.err
    assert is_an_image(path) and len(seen) == 1


@pytest.mark.parametrize("name", ["machines", "info", "walk", "diff", "topology groups", "calibrate"])
def test_json_stays_alone_on_stdout(pt, vm_sample, place, seen, name):
    words = [*name.split(), *(str(one).replace(VM, str(vm_sample)) for one in DRAWN[name]), "--json"]
    assert pt(*words, "--plot", place / "a.svg").out == pt(*words).out
    assert len(seen) == 1


def test_one_machine_is_drawn_as_its_matrix_and_one_policy_alone(pt, place, seen):
    assert pt("machines", "hydra-haswell", "--plot", place / "a.png").code == 0
    assert pt("policies", "hydra", "--plot", place / "b.png").code == 0
    assert len(seen[0].axes[0].get_xticks()) == 8 and len(seen[1].axes[0].get_yticks()) == 1


def test_the_map_of_a_capture_and_of_a_vms_host_side_is_drawn(pt, place, seen):
    host = unpack("visible-bound", place) / "host"
    seal(host, "vm-host", {})
    for kind in ("tables", "map"):
        ran = pt("info", host, "--plot", place / "a.svg", "--plot-kind", kind)
        assert ran.code == 0, ran.err
    assert all("ePT" in figure.get_suptitle() for figure in seen)


def test_a_walk_that_ends_nowhere_is_drawn_and_ends_with_1(pt, vm_sample, place, seen):
    ran = pt("walk", vm_sample, "0x7f0000000000", "--plot", place / "a.svg")
    assert ran.code == 1 and (place / "a.svg").exists() and "not mapped" in ran.out


def test_the_statistics_of_predictions_are_drawn_instead(pt, place, seen):
    ran = pt("predict", "--statistics", "--plot", place / "a.svg")
    assert ran.code == 0 and "mean error" in seen[0].get_suptitle()
