"""Each plot says which columns it draws: with those alone it draws the same."""

import inspect
import re

import pandas as pd
import pytest

import ptanalyze
from plot_texts import words
from ptanalyze.analysis import frames
from ptanalyze.capture.check import check_capture
from ptanalyze.capture.live.survey import Surveyed
from ptanalyze.capture.vm.diff import diff
from ptanalyze.capture.vm.join import Fit, Share
from ptanalyze.cli.survey import answer
from ptanalyze.core.machine import load_machine
from ptanalyze.show import plots
from ptanalyze.validate.leave_one_out import leave_one_out, summary
from ptanalyze.validate.run import flat, validate

DRAWN = [name for name in plots.__all__ if name != "save"]


def moved_threads():
    """A published and a predicted line of three points, as vmitosis_moved.samples has them."""
    line = {"variant": "RRI", "title": "nothing migrates", "seconds": [-5.0, 5.0, 15.0]}
    line |= {"share": [1, 0.4, 0.5], "low": [1, 0.3, 0.4], "high": [1, 0.5, 0.6]}
    return pd.concat([pd.DataFrame(line | {"source": of}) for of in ("published", "predicted")])


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """{plot: a table for it}"""
    place = tmp_path_factory.mktemp("documented")
    vm = ptanalyze.synth(place / "vm", "64M", guest="visible", accesses=40000)
    found = ptanalyze.replay(vm, ["linux", "mitosis", "hydra"], windows=3, cold=True)
    pages = ptanalyze.page_tables(vm)
    machine = load_machine("hydra-haswell")
    counters = place / "perf.csv"
    walks = ("dtlb_load_misses", "dtlb_store_misses", "ept")
    events = {"cycles": 9000, **{f"{unit}.walk_pending": 1000 for unit in walks}}
    counters.write_text("".join(f"{count}00000,,{event}:u\n" for event, count in events.items()))
    calibration = ptanalyze.calibrate(counters, native=False)
    papers = validate(("vmitosis",), "Figure 1", quick=True)
    return {
        "changes": frames.changes_frame(diff(vm, vm)),
        "checks": frames.findings_frame(list(check_capture(vm))),
        "coefficients": frames.coefficients_frame(calibration),
        "comparison": ptanalyze.compare(found.frame.iloc[[0]], found.frame.iloc[[1]]),
        "curve": ptanalyze.sweep(vm, ["hydra"], {"prefetch": [0, 9]}),
        "degrees": ptanalyze.degrees(vm),
        "fit": frames.fit_frame(Fit(Share(10, 9, 1, 0), Share(10, 5, 3, 2), 4, 4)),
        "footprint": found.frame,
        "fragmentation": ptanalyze.fragmentation(vm, after=True),
        "latency": frames.latency_frame({"idle": machine.latency.idle}, range(machine.nodes)),
        "locality": ptanalyze.classify(vm),
        "machines": ptanalyze.list_machines(),
        "page_table_map": pages,
        "pareto": found.frame,
        "policies": ptanalyze.list_policies(),
        "prediction": ptanalyze.predict(calibration),
        "prediction_errors": summary(leave_one_out()),
        "reads": found.reads,
        "roofline": found.frame,
        "speedup": found.frame,
        "survey": answer(
            [Surveyed(7, "db", "process", "/", 8192, 1 << 20, {0: 3, 1: 1}, {0: 2}, 0, {1: 1.0})], 1, 2
        ).table,
        "table_pages": pages,
        "throughput": moved_threads(),
        "timeline": found.timeline,
        "validation": frames.published_frame([flat(row) for _, rows in papers for row in rows]),
        "walk": ptanalyze.walk(vm, int(pages["base"].iloc[-1])),
        "walk_map": ptanalyze.walk_map(vm),
    }


@pytest.mark.parametrize("name", DRAWN)
def test_the_columns_that_a_plot_names_are_all_that_it_needs(tables, name):
    draw, table = getattr(plots, name), tables[name]
    told = inspect.getdoc(draw).partition("\ncolumns  ")[2]
    named = set(re.findall(r"\w+", told)) | set(table.attrs.get("swept", ()))
    columns = [column for column in table.columns if column in named]
    alone = table[columns]
    alone.attrs = table.attrs
    assert columns and words(draw(alone)) == words(draw(table))


@pytest.mark.parametrize("name", ["latency", "walk", "roofline", "page_table_map", "timeline"])
def test_the_attrs_that_a_plot_names_are_there(tables, name):
    told = inspect.getdoc(getattr(plots, name)).partition("attrs ")[2]
    assert set(re.findall(r"\w+", told)) <= set(tables[name].attrs)
