"""Machine and cost files: read, written, and what is wrong with them."""

import re

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from ptanalyze import whatif
from ptanalyze.analysis.replay import at_shares, replay_steady_state, replay_walks, start
from ptanalyze.core import machine as machines
from ptanalyze.core.errors import UsageError, bundled
from ptanalyze.core.interval import Interval
from ptanalyze.core.machine import Cache, Costs, load_costs, load_machine, machine_names, sharing
from ptanalyze.cost import counts as cost
from ptanalyze.cost.counts import DRAM, LLC
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.measured import write_machine
from ptanalyze.kernels.replay import counters
from ptanalyze.policies import plan_for
from ptanalyze.world.scenario import ScenarioOptions, captured_scenario
from ptanalyze_host.machine_file import with_latency, with_own_cycles, with_walks
from ptanalyze_host.node_latency import NodeLatency

COSTS = sorted(path.stem for path in (bundled("models") / "costs").glob("*.toml"))
NAMES = [
    "emerald-rapids", "epyc-7543-16-nodes", "epyc-genoa", "epyc-genoa-cxl", "epyc-milan", "granite-rapids",
    "granite-rapids-snc3", "hydra-haswell", "ice-lake", "ports-sandy-bridge", "ptemagnet-broadwell",
    "sapphire-rapids", "vmitosis-cascade-lake",
]  # fmt: skip
SOURCED = ("nodes", "ghz", "tlb", "walk_caches", "l2", "llc", "share", "latency_idle", "latency_contended")
GOOD = (bundled("models") / "machines" / "ptemagnet-broadwell.toml").read_text()
GOOD_COSTS = (bundled("models") / "costs" / "server-2020.toml").read_text()


def test_the_bundled_machines_are_the_papers_and_those_of_clouds():
    assert machine_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_bundled_machine_loads_with_its_costs_and_names_its_sources(name):
    machine = load_machine(name)
    assert machine.name == name
    assert (costs := load_costs(machine)).name == machine.costs
    assert machine.walkers < 6 or costs.exposed.low == pytest.approx(1 / 6, abs=0.005)  # ADR 47
    for field in SOURCED:
        assert len(machine.sources[field]) > 10
    loaded = machine.latency_cycles(contended=True) - machine.latency_cycles()
    assert (loaded >= 0).all() and loaded[list(machine.cpu_nodes)].any(axis=1).all()


@pytest.mark.parametrize("name", COSTS)
def test_every_number_of_a_bundled_cost_file_says_whether_it_is_published_derived_or_estimated(name):
    costs = load_costs(None, str(bundled("models") / "costs" / f"{name}.toml"))
    assert costs.name == name
    numbers = {field.name for field in msgspec.structs.fields(Costs)} - {"name", "description", "sources"}
    assert set(costs.sources) == numbers - {field for field in numbers if field.startswith("ipi_")} | {"ipi"}
    for text in costs.sources.values():
        assert re.search(r"\b(published|derived|estimate)\b", text)
    assert re.fullmatch(r"\d+\.\d+", costs.kernel)


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
        ("nodes = 2", "nodes = 0", "nodes = 0: must be at least 1"),
        ("nodes = 2", "nodes = 2\nwalk_spread = [1.1, 1.2]", "walk_spread = [1.1, 1.2]: must be a"),
        ("nodes = 2", "nodes = 65", "nodes = 65: must be at most 64"),
        ("nodes = 2", "nodes = 3", "latency.idle = 2 rows of [2]: must have 3 rows of 3 numbers"),
        ("nodes = 2", "nodes = 2.5", "nodes = 2.5: Expected `int`"),
        ("nodes = 2\n", "", "nodes: missing"),
        ("nodes = 2", "nodes = 2\nnoods = 2", "noods: no such field"),
        ("ghz = 2.4", "ghz = nan", "ghz = nan: must be at least"),
        ("ghz = 2.4", "ghz = inf", "ghz = inf: must be at most 1,000"),
        ("l2 = { entries = 1536", "l2 = { entries = 1537", "tlb.l2.entries = 1537: must be a multiple of"),
        ("l2 = { entries = 1536, ways = 6 }", "l2 = { entries = 6, ways = 0 }", "tlb.l2.ways = 0: must be"),
        ("l2 = { entries = 1536", "l2 = { entris = 1536", "tlb.l2.entris: no such field"),
        ("pde = { entries = 32", "pde = { entries = -4", "walk_caches.pde.entries = -4: must be at least 1"),
        ("share = 0.5", "share = 1.5", "l1d.share = 1.5: must be at most 1"),
        ("cycles = 5.0", "cycles = -1.0", "l1d.cycles = -1.0: must be at least"),
        ("cycles = 12.0", "cycles = -1.0", "walk_caches.cycles = -1.0: must be at least 0"),
        ("[85.0, 140.0]", "[85.0, 1e-300]", "latency.idle[0][1] = 1e-300: must be at least"),
        ("ghz = 2.4", "ghz = 1e-308", "ghz = 1e-308: must be at least"),
        ("[85.0, 140.0]", "[85.0, 150.0]", "latency.idle[0][1] = 150.0: differs from [1][0], 140.0"),
        ("[85.0, 140.0]", "[150.0, 140.0]", "latency.idle[0][1] = 140.0: below node 0's own memory, 150.0"),
        ("[85.0, 140.0]", "[85.0]", "latency.idle = 2 rows of [1, 2]: must have 2 rows"),
        ("[85.0, 140.0]", '[85.0, "far"]', "latency.idle[0][1] = 'far': Expected `float`"),
    ],
)
def test_a_wrong_machine_file_names_file_field_and_value(tmp_path, old, new, said):
    path = write(tmp_path, old, new)
    with pytest.raises(UsageError, match=re.escape(f"{path}: {said}")):
        load_machine(str(path))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("\nfault_ns = 300.0", "\nfault_ns = -1.0", "fault_ns = -1.0: must be at least 0"),
        ("brk = 1400.0\n", "", "call.brk: missing"),
        ("[call]", "[call]\nmmop = 1.0", "call.mmop: no such field"),
        ("copy = 26.7", "copy = nan", "entry.rewrite.copy = nan: must be at least 0"),
        ("table_move_ns = 3000.0", "table_move_ns = inf", "table_move_ns = inf: must be at most"),
        ("ipi_local_ns = 47.0", "ipi_local_ns = 470.0", "ipi_local_ns = 470.0: above ipi_remote_ns, 183.0"),
        ("low = 0.5, high = 0.9", "low = 0.9, high = 0.5", "exposed = 0.9..0.5: low must not be above high"),
        ("low = 0.5, high = 0.9", "low = -0.5, high = 0.9", "exposed.low = -0.5: must be a finite number"),
        ("low = 0.5, high = 0.9", "low = 0.5, high = 2.9", "exposed.high = 2.9: at most 2 threads share"),
        ("low = 0.5, high = 0.9", 'low = "few", high = 0.9', "exposed.low = 'few': Expected `float`"),
        ("low = 0.5, high = 0.9", "low = 0.5, high = inf", "exposed.high = inf: must be a finite number"),
        ("low = 0.5, high = 0.9", "low = 0.5", "exposed.high: missing"),
        ("low = 0.5, high = 0.9", "low = 0.5, middle = 1.0, high = 0.9", "exposed.middle = 1.0: not between"),
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


def test_a_missing_file_and_an_unknown_name_are_told_apart(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        load_machine(str(tmp_path / "none.toml"))
    with pytest.raises(UsageError, match="machine pentium: unknown; there are: emerald-rapids, epyc-"):
        load_machine("pentium")


def test_a_loaded_node_may_answer_others_sooner_than_itself(tmp_path):
    text = write(tmp_path, "", "").read_text()
    loaded = "contended = [[300.0, 200.0], [200.0, 100.0]]\n"
    path = tmp_path / "loaded.toml"
    path.write_text(re.sub(r"contended = .*?\]\s*,?\s*\]\n", loaded, text, flags=re.DOTALL))
    assert load_machine(str(path)).latency.contended[0] == (300.0, 200.0)


# Machine files made from measured latencies load as what was measured.

IDLE = np.array([[80.0, 130.0], [134.0, 82.0]])
LOADED = np.array([[150.0, 300.0], [310.0, 160.0]])


def measured(idle=IDLE, contended=LOADED):
    return NodeLatency((0, 1), idle, contended, "a chase on two nodes")


@pytest.mark.parametrize("name", machine_names())
def test_every_bundled_machine_is_written_as_it_is_read(tmp_path, name):
    machine, path = load_machine(name), tmp_path / "copy.toml"
    write_machine(path, machine)
    assert load_machine(str(path)) == machine


def test_measured_latencies_take_the_place_of_the_machines_own(tmp_path):
    write_machine(tmp_path / "mine.toml", with_latency(load_machine("hydra-haswell"), measured(), "mine"))
    again = load_machine(str(tmp_path / "mine.toml"))
    assert (again.name, again.nodes) == ("mine", 2)
    assert again.latency.idle == ((80.0, 132.0), (132.0, 82.0))
    assert again.latency.contended[1] == (305.0, 160.0)
    assert again.sources["latency_idle"] == "a chase on two nodes"
    assert again.tlb == load_machine("hydra-haswell").tlb


def test_a_walk_takes_what_small_pages_add_to_random_reads_less_the_read_of_its_entry():
    """By hand: 2 MiB of entries are beyond 32 KiB of L2, within 4 MiB of LLC; 100 cycles, 40 the read's."""
    l2, llc = Cache(1 << 16, 8, 0.5, 14.0), Cache(32 << 20, 16, 0.125, 40.0)
    plain = msgspec.structs.replace(load_machine("hydra-haswell"), ghz=2.0, l2=l2, llc=llc)
    local = plain.latency.idle[0][0]

    def adding(machine, ns):
        return with_own_cycles(machine, Interval.exactly(ns / local), 1 << 30)

    assert adding(plain, 50.0).walk_caches.cycles == 60
    assert "50 ns" in adding(plain, 50.0).sources["walk_cycles"]
    assert adding(plain, 0.0).walk_caches.cycles == plain.walk_caches.cycles
    assert adding(plain, 0.0).walk_spread == (1, 1)
    uneven = with_own_cycles(plain, Interval(0.4, 0.5, 0.8), 1 << 30, 100.0)
    assert uneven.walk_spread == (0.8, 1.6) and uneven.llc_data == 200
    small = msgspec.structs.replace(plain, llc=Cache(1 << 20, 16, 0.125, 40.0))
    dram = small.table_cycles().diagonal().mean()
    assert adding(small, 500.0).walk_caches.cycles == pytest.approx(1000 - dram, abs=0.1)


def test_a_read_of_a_table_takes_what_a_measured_walk_over_it_takes(tmp_path):
    """By hand: leaf entries from DRAM, others from caches; load adds what it adds to any read. What walks
    take beside their reads was measured with them."""
    plain = with_latency(load_machine("hydra-haswell"), measured(), "mine")
    took = {(0, 0): 90.0, (0, 1): 150.0, (1, 0): 160.0, (1, 1): 95.0}
    machine, odd = with_walks(plain, (0, 1), took, "measured")
    walk = np.array([[90.0, 155.0], [155.0, 95.0]])
    assert not odd and machine.latency.walk == tuple(map(tuple, walk.tolist()))
    count, reads = counters(2), np.array([[5, 7], [11, 13]])
    count.reads[8, ..., DRAM], count.reads[16, 0, 0, LLC] = reads, 100
    added = np.array(machine.latency.contended) - machine.latency.idle
    for contended, each in ((False, walk), (True, walk + added)):
        cached, own = 100 * machine.llc.cycles, reads.sum() * machine.walk_caches.cycles
        expected = (reads * each).sum() * machine.ghz + cached
        found = cost.walk_cycles(count.reads, cost.read_cycles(machine, contended), own).sum()
        assert found == pytest.approx(expected)
    local = (reads.sum(axis=1) * walk.diagonal()).sum() * machine.ghz + cached
    home = cost.at_home(cost.read_cycles(machine))
    assert cost.walk_cycles(count.reads, home, own).sum() == pytest.approx(local)
    farther = (machine.table_cycles() - machine.latency_cycles() + machine.walk_caches.cycles) / machine.ghz
    assert farther == pytest.approx(walk - np.array(plain.latency.idle))
    write_machine(tmp_path / "mine.toml", machine)
    assert load_machine(tmp_path / "mine.toml") == machine
    for other in (machine.resized(4), machines.at_latency_ratio(machine, 3.0)):
        beyond = (other.table_cycles() - other.latency_cycles())[:2, :2] + machine.walk_caches.cycles
        beyond /= machine.ghz
        assert beyond == pytest.approx(farther)
    same, odd = with_walks(plain, (0, 1), took | {(1, 1): 81.0}, "measured")
    assert same.latency == plain.latency
    assert odd.startswith("latency.walk[1][1] = 81: below a read of the same")


def test_what_is_no_machine_or_no_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"\[1\]\[0\] = 132 ns is below node 1's own memory"):
        with_latency(load_machine("hydra-haswell"), measured(np.array([[80.0, 130.0], [134.0, 150.0]])), "m")
    with pytest.raises(UsageError, match=r"expected FILE\.toml"):
        write_machine(tmp_path / "mine.txt", load_machine("hydra-haswell"))


# The share of the LLC left to page tables: an estimate, whose bounds the interval of a speed-up covers.

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
    assert middle == fixed[0][1] and fixed[0] != fixed[1] != fixed[2]
    assert speedups(None) == [low, middle, high]


def test_one_replay_counts_at_every_share_what_a_replay_at_that_share_alone_counts():
    """At first, and once more with warm caches."""
    capture = open_capture(bundled("samples") / "sysbench-memory")

    def counts(machine):
        scenario = captured_scenario(capture.snapshot, capture.trace, ScenarioOptions(machine=machine))
        run, caches = start(plan_for("hydra"), scenario), scenario.caches()
        mapped = replay_walks([run], scenario, scenario.reads(caches=caches), more=True)
        again = scenario.steady_state()
        replay_steady_state([run], again, again.reads(caches=caches), mapped)
        return run

    shared = sharing(SMALL, "0.1:0.5")
    every = counts(shared)
    for number, share in enumerate((0.125, 0.1, 0.5)):
        alone = counts(sharing(SMALL, f"{share}"))
        for together, counted in ((every.first, alone.first), (every.counters, alone.counters)):
            assert (at_shares(together.reads, shared.llc)[number] == counted.reads).all()
            assert counted.reads[..., DRAM].any()
            assert (together.events == counted.events).all() and (together.classes == counted.classes).all()


def test_without_bounds_there_are_no_other_shares():
    assert sharing(MACHINE, "0.25").llc.every_share == (0.25,)
    assert MACHINE.llc.every_share == (0.125, 0.5)
    assert sharing(MACHINE, "0.1:0.5").llc.every_share == (0.1, 0.125, 0.5)


@pytest.mark.parametrize("name", machine_names())
def test_a_quarter_of_an_llc_has_its_ways_and_other_shares_are_ways_of_the_same_sets(name):
    llc = load_machine(name).llc
    sets, ways = replace(llc, share=0.25, shares=(0.125, 1)).stacks
    assert sets == llc.bytes // (machines.LINE_BYTES * llc.ways * machines.LINES)
    assert [sets * every + more for every, more in ways] == [llc.lines_at(of) for of in (0.125, 0.25, 1)]
    assert ways[1] == (llc.ways, 0) and ways[2][0] == 4 * llc.ways


@pytest.mark.parametrize("text", ["", "x", "0", "1.5", "-1", "nan", "0.1:", "0.1:0.3:0.5", "0:1", "inf"])
def test_what_is_no_share_is_refused_in_a_line(text):
    with pytest.raises(UsageError, match=r"^--cache-share .*: write the share .* as 0.25, or its bounds"):
        sharing(MACHINE, text)


@pytest.mark.parametrize("text", ["0.3:0.5", "0.05:0.1", "0.5:0.1"])
def test_bounds_have_to_hold_the_machines_own_share(text):
    with pytest.raises(UsageError, match=r"leaves out the machine's own share, 0\.125"):
        sharing(MACHINE, text)


@pytest.mark.parametrize("bounds", ["[0.3, 0.5]", "[0.0, 0.5]", "[0.125, 1.5]", "[0.5, 0.125]", "[nan, 0.5]"])
def test_a_machine_file_with_other_bounds_is_refused(tmp_path, bounds):
    file = tmp_path / "machine.toml"
    write_machine(file, MACHINE)
    text = file.read_text()
    assert "[0.125, 0.5]" in text
    file.write_text(text.replace("[0.125, 0.5]", bounds))
    with pytest.raises(UsageError, match=r"machine.toml: llc.shares = .*bounds of llc.share, 0.125"):
        load_machine(file)
