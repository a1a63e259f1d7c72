"""Machine and cost files: those that come with the package, and every way to get one wrong."""

import re

import msgspec
import numpy as np
import pytest

from ptanalyze.core.errors import UsageError, bundled
from ptanalyze.core.interval import Interval
from ptanalyze.core.machine import Costs, load_costs, load_machine, machine_names

COSTS = ["epyc-7543", "hydra-haswell", "server-2020"]
NAMES = [
    "emerald-rapids",
    "epyc-7543-16-nodes",
    "epyc-genoa",
    "epyc-milan",
    "granite-rapids",
    "hydra-haswell",
    "ice-lake",
    "ptemagnet-broadwell",
    "sapphire-rapids",
    "vmitosis-cascade-lake",
]
GOOD = (bundled("models") / "machines" / "ptemagnet-broadwell.toml").read_text()
GOOD_COSTS = (bundled("models") / "costs" / "server-2020.toml").read_text()


def test_the_bundled_machines_are_the_papers_and_those_of_clouds():
    assert machine_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_bundled_machine_loads_with_its_costs_and_names_its_sources(name):
    machine = load_machine(name)
    assert machine.name == name
    assert load_costs(machine).name == machine.costs
    for field in (
        "nodes",
        "ghz",
        "tlb",
        "walk_caches",
        "l2",
        "llc",
        "share",
        "latency_idle",
        "latency_contended",
    ):
        assert len(machine.sources[field]) > 10


@pytest.mark.parametrize("name", COSTS)
def test_every_number_of_a_bundled_cost_file_says_whether_it_is_published_derived_or_estimated(name):
    costs = load_costs(None, str(bundled("models") / "costs" / f"{name}.toml"))
    assert costs.name == name
    numbers = {field.name for field in msgspec.structs.fields(Costs)} - {"name", "description", "sources"}
    shootdowns = {field for field in numbers if field.startswith("ipi_")}
    assert set(costs.sources) == numbers - shootdowns | {"ipi"}
    for text in costs.sources.values():
        assert re.search(r"\b(published|derived|estimate)\b", text)


@pytest.mark.parametrize("name", NAMES)
def test_remote_memory_is_farther_and_contended_memory_farther_still(name):
    machine = load_machine(name)
    idle, contended = machine.latency_cycles(), machine.latency_cycles(contended=True)
    remote = ~np.eye(machine.nodes, dtype=bool)
    assert idle[remote].min() > idle.diagonal().max()
    assert (contended[remote] > idle[remote]).all()


def test_a_machine_without_latencies_under_load_has_no_contended_ones():
    known = load_machine("sapphire-rapids")
    machine = msgspec.structs.replace(known, latency=msgspec.structs.replace(known.latency, contended=None))
    with pytest.raises(UsageError, match=r"latency\.contended = none: .*leave out --contended"):
        machine.latency_cycles(contended=True)


def test_the_papers_numbers_are_in_the_files():
    cascade, haswell = load_machine("vmitosis-cascade-lake"), load_machine("hydra-haswell")
    assert (cascade.nodes, cascade.cpus_per_node, cascade.ghz) == (4, 48, 2.1)
    assert (cascade.tlb.l1_4k.entries, cascade.tlb.l1_2m.entries, cascade.tlb.l2.entries) == (64, 32, 1536)
    assert (haswell.nodes, haswell.cpus_per_node, haswell.ghz) == (8, 36, 2.5)
    assert (haswell.tlb.l1_4k.entries, haswell.tlb.l2.entries) == (64, 1024)


def write(tmp_path, old, new, text=GOOD):
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("nodes = 2", "nodes = 0", "nodes = 0: must be a finite number above 0"),
        ("nodes = 2", "nodes = 65", "nodes = 65: at most 64"),
        ("nodes = 2", "nodes = 3", "latency.idle = 2 rows of [2]: must have 3 rows of 3 numbers"),
        ("nodes = 2", "nodes = 2.5", "nodes = 2.5: Expected `int`"),
        ("nodes = 2", 'nodes = "two"', "nodes = 'two': Expected `int`"),
        ("nodes = 2\n", "", "nodes: missing"),
        ("nodes = 2", "nodes = 2\nnoods = 2", "noods: no such field"),
        ("ghz = 2.4", "ghz = -2.4", "ghz = -2.4: must be a finite number above 0"),
        ("ghz = 2.4", "ghz = nan", "ghz = nan: must be"),
        ("ghz = 2.4", "ghz = inf", "ghz = inf: must be"),
        ("cpus_per_node = 20", "cpus_per_node = 0", "cpus_per_node = 0: must be"),
        (
            "l2 = { entries = 1536",
            "l2 = { entries = 1537",
            "tlb.l2.entries = 1537: must be a multiple of its ways, 6",
        ),
        (
            "l2 = { entries = 1536, ways = 6 }",
            "l2 = { entries = 6, ways = 0 }",
            "tlb.l2.ways = 0: must be 1 or more",
        ),
        ("l2 = { entries = 1536", "l2 = { entris = 1536", "tlb.l2.entris: no such field"),
        ("l2 = { entries = 1536", 'l2 = { entries = "x"', "tlb.l2.entries = 'x': Expected `int`"),
        ("pde = { entries = 32", "pde = { entries = -4", "walk_caches.pde.entries = -4: must be 1 or more"),
        ("share = 0.5", "share = 1.5", "l2.share = 1.5: must be above 0, at most 1"),
        ("cycles = 12.0", "cycles = -1.0", "l2.cycles = -1.0: must be"),
        (
            "[85.0, 140.0]",
            "[85.0, -140.0]",
            "latency.idle[0][1] = -140.0: must be a finite number of ns above 0",
        ),
        ("[85.0, 140.0]", "[85.0, 0.0]", "latency.idle[0][1] = 0.0: must be"),
        ("[85.0, 140.0]", "[85.0, 150.0]", "latency.idle[0][1] = 150.0: differs from [1][0], 140.0"),
        ("[85.0, 140.0]", "[95.0, 90.0]", "latency.idle[0][1] = 90.0: differs from [1][0], 140.0"),
        ("[85.0, 140.0]", "[150.0, 140.0]", "latency.idle[0][1] = 140.0: below node 0's own memory, 150.0"),
        ("[85.0, 140.0]", "[85.0]", "latency.idle = 2 rows of [1, 2]: must have 2 rows"),
        ("[85.0, 140.0]", '[85.0, "far"]', "latency.idle[0][1] = 'far': Expected `float`"),
    ],
)
def test_a_wrong_machine_file_names_file_field_and_value(tmp_path, old, new, said):
    path = write(tmp_path, old, new)
    with pytest.raises(UsageError, match=re.escape(f"{path}: {said}")) as caught:
        load_machine(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("\nfault_ns = 300.0", "\nfault_ns = -1.0", "fault_ns = -1.0: must be a finite number, not negative"),
        ("munmap = 2791.0", "munmap = -1.0", "call.munmap = -1.0: must be a finite number, not negative"),
        ("brk = 1400.0\n", "", "call.brk: missing"),
        ("[call]", "[call]\nmmop = 1.0", "call.mmop: no such field"),
        ("copy = 26.7", "copy = nan", "entry.rewrite.copy = nan: must be a finite number"),
        ("copy = 26.7", 'copy = "few"', "entry.rewrite.copy = 'few': Expected `float`"),
        (", copy = 26.7", "", "entry.rewrite.copy: missing"),
        ("vm_exit_ns = 1500.0\n", "", "vm_exit_ns: missing"),
        ("table_move_ns = 3000.0", "table_move_ns = inf", "table_move_ns = inf: must be a finite number"),
        ("ipi_local_ns = 47.0", "ipi_local_ns = 470.0", "ipi_local_ns = 470.0: above ipi_remote_ns, 183.0"),
        ("low = 0.5, high = 0.9", "low = 0.9, high = 0.5", "exposed = 0.9..0.5: low must not be above high"),
        ("low = 0.5, high = 0.9", "low = -0.5, high = 0.9", "exposed.low = -0.5: must be a finite number"),
        ("low = 0.5, high = 0.9", "low = 0.5, high = 1.9", "exposed.high = 1.9: a share is at most 1"),
        ("low = 0.5, high = 0.9", 'low = "few", high = 0.9', "exposed.low = 'few': Expected `float`"),
        ("low = 0.5, high = 0.9", "low = 0.5", "exposed.high: missing"),
        (
            "low = 0.5, high = 0.9",
            "low = 0.5, middle = 1.0, high = 0.9",
            "exposed.middle = 1.0: not between low and high, 0.5..0.9",
        ),
        ("\nfault_ns", "\nfalt_ns", "falt_ns: no such field"),
    ],
)
def test_a_wrong_cost_file_names_file_field_and_value(tmp_path, old, new, said):
    path = write(tmp_path, old, new, GOOD_COSTS)
    with pytest.raises(UsageError, match=re.escape(f"{path}: {said}")):
        load_costs(load_machine(NAMES[0]), str(path))


def test_the_middle_of_an_interval_is_half_way_unless_a_cost_file_says_where(tmp_path):
    ends = "exposed = { low = 0.5, high = 0.9 }"
    plain = write(tmp_path, ends, ends, GOOD_COSTS)
    assert load_costs(load_machine(NAMES[0]), plain).exposed == Interval(0.5, 0.7, 0.9)
    stated = write(tmp_path, ends, "exposed = { low = 0.5, middle = 0.6, high = 0.9 }", GOOD_COSTS)
    assert load_costs(load_machine(NAMES[0]), stated).exposed == Interval(0.5, 0.6, 0.9)


def test_what_is_no_toml_file_is_said_so(tmp_path):
    path = tmp_path / "mine.toml"
    for damaged in (b"nodes = [", b"\xff\xfe", GOOD.encode()[:200]):
        path.write_bytes(damaged)
        with pytest.raises(UsageError, match=re.escape(str(path))):
            load_machine(str(path))


def test_a_missing_file_and_an_unknown_name_are_told_apart(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        load_machine(str(tmp_path / "none.toml"))
    with pytest.raises(
        UsageError, match="machine pentium: unknown; there are: emerald-rapids, epyc-7543-16-nodes, "
    ):
        load_machine("pentium")


def test_costs_of_an_unknown_name_are_refused(tmp_path):
    path = write(tmp_path, 'costs = "server-2020"', 'costs = "free"')
    with pytest.raises(
        UsageError, match="cost free: unknown; there are: epyc-7543, hydra-haswell, server-2020"
    ):
        load_costs(load_machine(str(path)))


def test_a_loaded_node_may_answer_others_sooner_than_itself(tmp_path):
    text = write(tmp_path, "", "").read_text()
    loaded = "contended = [[300.0, 200.0], [200.0, 100.0]]\n"
    path = tmp_path / "loaded.toml"
    path.write_text(re.sub(r"contended = .*?\]\s*,?\s*\]\n", loaded, text, flags=re.DOTALL))
    assert load_machine(str(path)).latency.contended[0] == (300.0, 200.0)
