"""The Python API: names, lazy import, tables with units, and the command line's answers."""

import copy
import html
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pandas as pd
import pytest

import ptanalyze
from ptanalyze.analysis.whatif import replay
from ptanalyze.core.errors import UsageError, bundled
from ptanalyze.core.machine import load_machine
from ptanalyze.core.snapshot import EMULATOR
from ptanalyze.formats.capture import Capture
from ptanalyze.formats.measured import write_calibration

POLICIES = ["linux", "mitosis", ("hydra", {"prefetch": 0})]


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    place = tmp_path_factory.mktemp("api") / "native"
    return ptanalyze.synth(place, "16M", accesses=1500, init_trace=False, mprotect_every=500)


@pytest.fixture(scope="module")
def vm(tmp_path_factory):
    place = tmp_path_factory.mktemp("api") / "vm"
    return ptanalyze.synth(place, "16M", accesses=1500, init_trace=False, guest="visible", fragmentation=0.3)


@pytest.fixture(scope="module")
def untraced(tmp_path_factory):
    return ptanalyze.synth(tmp_path_factory.mktemp("api") / "untraced", 16 << 20, trace=False)


@pytest.fixture(scope="module")
def replayed(native):
    return ptanalyze.replay(native, POLICIES, windows=3)


def test_the_package_loads_libraries_only_for_what_is_asked_of_it():
    code = """
import sys, ptanalyze
names = ptanalyze.load, ptanalyze.list_machines
print(*(library for library in ("numba", "matplotlib", "pandas") if library in sys.modules))
"""
    assert not subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.split()


def test_no_name_of_the_api_is_hidden_by_a_room():
    rooms = {path.name for path in Path(ptanalyze.__file__).parent.iterdir() if path.is_dir()}
    assert all(ptanalyze.API[name] == (".", name) for name in rooms & set(ptanalyze.API))


def test_a_policy_with_settings_is_written_as_on_the_command_line(native):
    row = ptanalyze.whatif(native, ["mitosis:nodes=0,2"]).iloc[-1]
    assert row.speedup == ptanalyze.whatif(native, ("mitosis", {"nodes": "0,2"})).iloc[-1].speedup
    assert "nodes=0,2" in row.params and len(ptanalyze.sweep(native, "hydra:prefetch=1", {"nodes": [4]})) == 2
    with pytest.raises(UsageError, match="nodes: write KEY=VALUE"):
        ptanalyze.whatif(native, "mitosis:nodes")


@pytest.mark.parametrize("ask", [ptanalyze.advise, ptanalyze.whatif, ptanalyze.classify, ptanalyze.sizes])
def test_what_is_no_setup_is_refused(native, ask):
    with pytest.raises(UsageError, match="setup = "):
        ask(native, setup=["mitosis"])


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="wonder"):
        _ = ptanalyze.wonder
    assert {n for n in dir(ptanalyze) if n[0] != "_"} <= set(ptanalyze.API) <= set(dir(ptanalyze))


def test_every_name_of_the_stub_is_there_and_documented():
    assert len(ptanalyze.API) > 20 and set(ptanalyze.__all__) == set(ptanalyze.API)
    for name in ptanalyze.API:
        assert getattr(ptanalyze, name).__doc__, name


def test_load_takes_a_directory_a_capture_or_nothing(native, tmp_path, monkeypatch):
    assert isinstance(native, Capture)
    assert ptanalyze.load(native) is native
    assert repr(native) == f"Capture({str(native.directory)!r}: page tables, trace)"
    assert ptanalyze.load(str(native.directory)).directory == native.directory
    monkeypatch.chdir(native.directory.parent)
    assert ptanalyze.load().directory.resolve() == native.directory.resolve()
    with pytest.raises(UsageError, match=r"no such capture.* samples: embeddings, lookup, "):
        ptanalyze.load(tmp_path / "nothing")


def test_a_bundled_sample_is_loaded_by_its_name_unless_a_directory_has_it(native, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("lookup", "sysbench-memory", "vm-numa-visible", "vm-numa-oblivious"):
        assert ptanalyze.load(name).directory == bundled("samples") / name
    for name in ("samples/vm-numa-visible", "..", ""):
        with pytest.raises(UsageError):
            ptanalyze.load(name)
    (tmp_path / "vm-numa-visible").symlink_to(native.directory)
    assert ptanalyze.load("vm-numa-visible").manifest.provenance == native.manifest.provenance


def test_attrs_are_plain_copyable_and_say_units_notes_and_provenance(native, replayed):
    for table in (replayed.frame, replayed.reads, replayed.leaves, replayed.calls, replayed.timeline):
        assert copy.deepcopy(table.attrs) == table.attrs == json.loads(json.dumps(table.attrs))
        numbers = {name for name in table.columns if table[name].dtype.kind in "iuf"}
        assert set(table.attrs["units"]) == numbers
        assert table.attrs["provenance"]["capture"] == str(native.directory)
        assert any("costs of" in one["text"] for one in table.attrs["findings"])
    units = replayed.frame.attrs["units"]
    assert units["walk_cycles"] == "cycles" and units["pt_bytes"] == "bytes" and units["speedup"] == "ratio"
    assert units["leaf_LL_share"] == "share" and units["reads_per_walk"] == "reads/walk"
    assert pd.concat([replayed.frame, replayed.frame]).attrs == replayed.frame.attrs


def test_a_sweep_has_a_column_a_key_and_what_is_not_ones_own_is_missing(native):
    table = ptanalyze.sweep(native, ["mitosis", "hydra"], {"prefetch": [0, 3], "nodes": [4, 5]})
    assert table.columns[:2].tolist() == ["prefetch", "nodes"]
    hydra = table[table["policy"] == "hydra"]
    assert hydra[["nodes", "prefetch"]].to_numpy().tolist() == [[4, 0], [4, 3], [5, 0], [5, 3]]
    assert table.loc[table["policy"] == "mitosis", "prefetch"].isna().all()
    assert table.attrs["swept"] == ["prefetch", "nodes"] and "machine" not in table.attrs["provenance"]


def test_page_tables_are_the_snapshots_without_physical_addresses(vm):
    table, snapshot = ptanalyze.page_tables(vm), vm.snapshot
    assert len(table) == len(snapshot.guest) + len(snapshot.host)
    guest = table[table["dimension"] == "gPT"]
    assert (guest["node"].to_numpy() == snapshot.guest.node).all()
    assert (guest["tracers"].to_numpy() == ((snapshot.guest.flags & EMULATOR) != 0)).all()
    assert guest["span_bytes"].max() == 1 << 48 and "frame" not in table


def test_latencies_that_a_machine_lacks_are_missed_before_anything_is_computed(native):
    known = load_machine("vmitosis-cascade-lake")
    idle = msgspec.structs.replace(known, latency=msgspec.structs.replace(known.latency, contended=None))
    ticks = []
    with pytest.raises(UsageError, match=r"latency\.contended = none"):
        ptanalyze.advise(native, machine=idle, contended=True, progress=lambda *tick: ticks.append(tick))
    assert ticks == []
    for machine, how, memory in (
        (idle, {}, None),
        (known, {}, "idle"),
        (known, {"contended": True}, "loaded"),
        (known, {"stands_for": 4}, "idle to loaded"),
    ):
        found = replay(native, ["linux"], machine=machine, **how).results
        assert {one.provenance.get("memory") for one in found} == {memory}
        assert all(f"{memory or 'idle'} latencies, " in one.assumptions for one in found)


PERF = """{cycles},,cycles:u,10000000000,100.00,,
{load},,dtlb_load_misses.walk_pending:u,10000000000,100.00,,
{store},,dtlb_store_misses.walk_pending:u,10000000000,100.00,,
{ept},,ept.walk_pending:u,10000000000,100.00,,
10000000000,ns,duration_time:u,10000000000,100.00,,
"""


def test_a_calibration_or_its_file_sets_the_proportions_of_run_time(vm, tmp_path):
    local, kept = tmp_path / "local.txt", tmp_path / "app.toml"
    counted = {"load": 4_000_000_000, "store": 1_000_000_000, "ept": 3_000_000_000}
    local.write_text(PERF.format(cycles=20_000_000_000, **counted))
    known = ptanalyze.calibrate(local)
    write_calibration(kept, known)
    asked = ["linux", "vmitosis-replicate"]
    tables = (ptanalyze.whatif(vm, asked, calibration=one, cold=True) for one in (None, known, kept))
    plain, given, read = (table["speedup"][1] for table in tables)
    assert given == read != plain
    advised = ptanalyze.advise(vm, calibration=kept, cold=True).frame.set_index("policy")
    assert advised["speedup"]["vmitosis-replicate"] == given


def test_a_table_without_speed_ups_says_that_its_walk_cycles_are_bounds_and_what_caches_hold(untraced):
    table = ptanalyze.whatif(untraced, ["mitosis"])
    codes = ("bound", "caches-hold-leaf-entries")
    told = [one["text"] for one in table.attrs["findings"] if one["code"] in codes]
    assert len(told) == 2 and repr(table).splitlines()[-2:] == told


def test_a_table_of_results_shows_the_columns_that_matter_and_has_all(native):
    asked = ["mitosis", ("mitosis", {"nodes": "0,1"}), "ept-reset"]  # which needs nested tables
    table = ptanalyze.whatif(native, asked, baseline="bind:node=1")
    shown = repr(table).splitlines()
    assert shown[0].split() == ["policy", "params", "speedup", "speedup_low", "speedup_high", "memory_mib"]
    mib = (table["pt_bytes_peak"] - table["pt_bytes_peak"][0]) / 2**20
    assert [float(row.split()[-1]) for row in shown[1:4]] == pytest.approx(mib.tolist(), abs=6e-4)
    larger = ptanalyze.sizes(native, "mitosis", times=[4])
    more = [float(row.split()[-1]) for row in repr(larger).splitlines()[1:5]]
    copies = larger["pt_bytes_extra"] / 2**20
    assert more == pytest.approx(copies.tolist(), abs=6e-4) and more[3] > more[1] > 0 == more[2]
    swept = ptanalyze.sweep(native, ["mitosis", "ept-reset"], {"nodes": [4]})
    assert {one.splitlines()[-1] for one in (repr(table), repr(swept))} == {shown[-1]}
    assert all(f"<p>{html.escape(shown[-1])}</p>" in one._repr_html_() for one in (table, swept))
    assert shown[-1].startswith("ept-reset: ") and table["params"][0] == "node=1"
    [about] = [line for line in shown if line.startswith(f"machine {table['machine'][0]} ")]
    assert f"; {table.shape[1]} columns" in about and "walks" in table
    kept = pickle.loads(pickle.dumps(table))
    assert kept.equals(table) and kept.attrs == table.attrs
    assert {type(one) for one in (table.head(), table[["policy"]], table.copy())} == {pd.DataFrame}


def test_captures_and_answers_show_themselves_in_a_notebook(native, tmp_path):
    """Each has HTML with its main numbers, in which a capture's own name is text."""
    hostile = shutil.copytree(native.directory, tmp_path / "<img src=x onerror=alert(1)>")
    shown = ptanalyze.load(hostile)._repr_html_()
    assert "&lt;img src=x" in shown and "<img" not in shown and "page tables, trace" in shown
    advised = ptanalyze.advise(native)
    assert html.escape(advised.sentence) in advised._repr_html_() and "<table" in advised._repr_html_()
    assert f"{advised.replayed.frame['speedup'].max():,.3f}" in advised.replayed._repr_html_()
