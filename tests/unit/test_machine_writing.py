"""Machine files made from measured latencies load as what was measured."""

import numpy as np
import pytest

from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_machine, machine_names
from ptanalyze.formats.measured.latency import NodeLatency
from ptanalyze.formats.measured.machine import with_latency, write_machine

IDLE = np.array([[80.0, 130.0], [134.0, 82.0]])
LOADED = np.array([[150.0, 300.0], [310.0, 160.0]])


def measured(idle=IDLE, contended=LOADED):
    return NodeLatency((0, 1), idle, contended, "a chase on two nodes")


@pytest.mark.parametrize("name", machine_names())
def test_every_bundled_machine_is_written_as_it_is_read(tmp_path, name):
    machine, path = load_machine(name), tmp_path / "copy.toml"
    write_machine(path, machine)
    assert load_machine(str(path)) == machine
    assert path.stat().st_mode & 0o777 == 0o600


def test_measured_latencies_take_the_place_of_the_machines_own(tmp_path):
    made = with_latency(load_machine("hydra-haswell"), measured(), "mine")
    write_machine(tmp_path / "mine.toml", made)
    again = load_machine(str(tmp_path / "mine.toml"))
    assert (again.name, again.nodes) == ("mine", 2)
    assert again.latency.idle == ((80.0, 132.0), (132.0, 82.0))
    assert again.latency.contended[1] == (305.0, 160.0)
    assert again.sources["latency_idle"] == "a chase on two nodes"
    assert again.tlb == load_machine("hydra-haswell").tlb


def test_without_latencies_under_load_there_are_none(tmp_path):
    made = with_latency(load_machine("hydra-haswell"), measured(contended=None), "mine")
    write_machine(tmp_path / "mine.toml", made)
    assert load_machine(str(tmp_path / "mine.toml")).latency.contended is None


def test_what_is_no_machine_or_no_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"\[1\]\[0\] = 132 ns is below node 1's own memory"):
        with_latency(load_machine("hydra-haswell"), measured(np.array([[80.0, 130.0], [134.0, 150.0]])), "m")
    with pytest.raises(UsageError, match=r"expected FILE\.toml"):
        write_machine(tmp_path / "mine.txt", load_machine("hydra-haswell"))
