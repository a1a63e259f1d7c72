"""A cluster of two workers on this machine: the same integers, also when one of them is lost."""

import pickle
import socket
import sys
from dataclasses import replace

import pytest

from cluster import cluster, noted
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.sweep import carried_out, done_there, received, sent, swept, workers_on
from ptanalyze.capture.synth.capture import synthesize
from ptanalyze.capture.synth.plan import Parameters
from ptanalyze.core.errors import CaptureError, RefusedError, UsageError
from ptanalyze.core.machine import load_machine
from ptanalyze.formats.capture import load
from ptanalyze.show.report.write import studies
from ptanalyze.validate.run import flat, validate

SETUP = Setup.of(machine=load_machine("sapphire-rapids").resized(2))
GRID = {"prefetch": ["0", "4"], "nodes": ["2", "3"]}
NAMES = ["hydra", "mitosis"]


@pytest.fixture(scope="module")
def two():
    with cluster(2) as both:
        yield both


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    made = tmp_path_factory.mktemp("captures") / "small"
    synthesize(Parameters(size=4 << 20, accesses=4000, threads=2, nodes=2), made)
    return load(made)


@pytest.fixture(scope="module")
def here(capture):
    """The sweep in this process."""
    return told(swept(capture, NAMES, GRID, SETUP))


def told(points):
    return [(point, result.to_json()) for point, result in points]


def test_a_sweep_by_workers_has_the_same_points_in_the_same_order_with_the_same_numbers(two, capture, here):
    refused = {}
    assert told(swept(capture, NAMES, GRID, SETUP, refused, two.on)) == here
    assert len(here) == 2 * len(["linux", "hydra 0", "hydra 4", "mitosis"]) and not refused


def test_figures_by_workers_are_the_same(two):
    here, there = (validate(["hydra"], "Figure 9", True, on=on) for on in ("", two.on))
    assert [(paper.paper, [flat(row) for row in rows]) for paper, rows in here] == [
        (paper.paper, [flat(row) for row in rows]) for paper, rows in there
    ]


def test_a_report_of_several_captures_by_workers_is_the_same(two, tmp_path):
    for name, placement in (("a", "first-touch"), ("b", "interleave")):
        synthesize(Parameters(size=4 << 20, nodes=2, placement=placement), tmp_path / name, trace=False)
    captures = [load(tmp_path / name) for name in "ab"]
    (here,), there = studies(captures[1:], SETUP), studies(captures, SETUP, on=two.on)
    assert [study.name for study in there] == ["a", "b"]
    assert told(enumerate(there[0].results)) != told(enumerate(here.results))
    assert told(enumerate(there[1].results)) == told(enumerate(here.results))
    assert there[1].sentence == here.sentence and there[1].ranked.equals(here.ranked)


def test_what_a_worker_refuses_is_refused_here_in_the_same_words(two, capture):
    with pytest.raises(UsageError) as here:
        swept(capture, ["hydra"], {"prefetch": ["10"]}, SETUP)
    with pytest.raises(UsageError) as there:
        swept(capture, ["hydra"], {"prefetch": ["10"]}, SETUP, on=two.on)
    assert str(here.value) == str(there.value)


@pytest.mark.parametrize(
    "error", [CaptureError("a/trace.ptt", "contents", 3, "damaged"), RefusedError("why", "hydra")]
)
def test_errors_travel(error):
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error) and str(back) == str(error) and vars(back) == vars(error)


def test_a_lost_worker_costs_what_it_had_and_no_more(two, tmp_path):
    log, at_loss = tmp_path / "log", []

    def lose(done, total, what):
        if done == 10:
            two.replace(1)
            at_loss.append(len(log.read_text().split()))

    with workers_on(two.on) as workers:
        done = carried_out(workers, noted, [(log, str(k)) for k in range(40)], lose)
    again = len(log.read_text().split()) - 40
    assert done == [str(k) for k in range(40)]
    assert 0 <= again <= at_loss[0] - 10  # done, but not yet heard of


def test_a_sweep_that_loses_a_worker_ends_with_the_same_numbers(two, capture, here):
    ended = []

    def lose(done, total, what):
        if not ended:
            two.kill(1)
        ended.append((done, total))

    two.wait()
    two.stop(1)  # so that it has units and ends none of them
    assert told(swept(capture, NAMES, GRID, replace(SETUP, progress=lose), on=two.on)) == here
    assert ended == [(k + 1, len(ended)) for k in range(len(ended))] and len(ended) >= 4


def test_a_cluster_that_is_not_there_is_said_in_one_line_with_the_way_out(two, tmp_path, monkeypatch):
    two.kill(0)
    with pytest.raises(UsageError, match="the scheduler has no workers; start one"), workers_on(two.on):
        pass
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    for on, why in (
        (f"dask:127.0.0.1:{free}", "no scheduler answers .*refused"),
        ("dask:here", "missing port"),
        ("slurm", "write dask:HOST:PORT"),
    ):
        with pytest.raises(UsageError, match=why), workers_on(on):
            pass
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"pip install 'ptanalyze\[dask\]'"), workers_on("dask:a:1"):
        pass


def test_a_worker_of_another_version_and_one_that_does_not_see_the_capture_refuse(capture):
    with pytest.raises(UsageError, match=r"you have 0\.0\.1"):
        done_there(noted, ("", ""), "0.0.1")
    with pytest.raises(UsageError, match="does not see it"):
        received(replace(sent(capture), directory=capture.directory / "gone"))
