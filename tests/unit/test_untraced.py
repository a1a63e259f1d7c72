"""What is claimed without a trace: bounds in closed form, and nothing where the caches hold the entries."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from ptanalyze.analysis.advise import fewer
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.snapshot import BATCHES, Heat
from ptanalyze.show.whatif import sentence
from strategies import PAGE, Page, build_snapshot, small_machine

HEAP = 1 << 30
LINE = 8 * PAGE  # bytes mapped by a line of entries
COSTS = load_costs(load_machine("sapphire-rapids"))
FITS = "fit the caches: placement can gain nothing to speak of"


def ask(snapshot, lines, nodes=2, shares=None, policies=("mitosis",)):
    """[Result], of a machine whose LLC has so many lines, a multiple of 4."""
    machine = small_machine(nodes, cache_lines=(4, lines))
    machine = msgspec.structs.replace(machine, llc=msgspec.structs.replace(machine.llc, shares=shares))
    setup = Setup.of(cold=True, machine=machine, costs=COSTS)
    return replay_snapshot(snapshot, None, [(name, {}) for name in policies], setup)


def native(pages=128, apart=PAGE, nodes=2):
    return build_snapshot([(HEAP + k * apart, k) for k in range(pages)], nodes=nodes, table_nodes=[0])


@pytest.mark.parametrize(("nodes", "least"), [(2, "33.3"), (4, "42.9")])
def test_the_bound_is_that_of_reads_of_dram_from_every_node_alike(nodes, least):
    """Local 100 ns, remote 200: of tables on one node, 1 - 100 / (100 / n + 200 (n - 1) / n)."""
    base, mitosis = ask(native(nodes=nodes), 12, nodes)
    assert fewer(base, mitosis) == f"at most {least} % fewer walk cycles"
    said = sentence([base, mitosis])
    assert said.startswith(
        f"With mitosis at most {least} % fewer walk cycles than linux, if every leaf entry"
    )
    assert said.endswith(f"The program is taken to walk equally from {nodes} nodes.")
    assert any("a bound" in note and f"equally from {nodes} nodes" in note for note in base.notes)


def test_of_one_node_no_nodes_are_said():
    base, same = ask(native(nodes=1), 12, 1)
    assert sentence([base, same]) == "No policy takes fewer walk cycles than linux."
    assert "equally" not in " ".join(base.notes)


@pytest.mark.parametrize(
    ("snapshot", "lines"),
    [
        (native(128), 16),
        (native(16, apart=LINE), 16),
        (native(16, apart=1 << 21), 16),  # a leaf table each
        (build_snapshot([Page(k << 21, k << 9, level=2) for k in range(128)], table_nodes=[0]), 16),
        (build_snapshot([Page(k << 30, k << 18, level=3) for k in range(32)], table_nodes=[0]), 4),
    ],
    ids=["full lines", "a page a line", "a page a table", "2 MiB", "1 GiB"],
)
def test_the_caches_hold_what_has_as_many_lines_and_not_one_set_more(snapshot, lines):
    base, mitosis = ask(snapshot, lines)
    assert base.cached == f"its leaf entries, 1 KiB of page-table lines, {FITS}"
    assert base.cached in base.notes and sentence([base, mitosis]) == f"I{base.cached[1:]}."
    if lines > 4:
        few, other = ask(snapshot, lines - 4)
        assert few.cached == "" and sentence([few, other]).startswith("With mitosis at most 33.3 %")
        assert few.row() == base.row()


def test_the_least_that_may_be_left_to_page_tables_must_hold_them():
    assert (
        ask(native(), 32, shares=(0.5, 1.0))[0].cached and not ask(native(), 28, shares=(0.5, 1.0))[0].cached
    )


def test_of_heat_the_lines_of_used_pages_count():
    used = np.arange(64, dtype=np.uint64) * np.uint64(PAGE) + np.uint64(HEAP)
    seen = np.ones((64, BATCHES, 1), np.uint8)
    heat = Heat(
        used,
        np.ones(64, np.uint8),
        seen,
        np.ones((BATCHES, 1), np.int64),
        np.ones(1),
        np.zeros(1),
        np.zeros(64),
    )
    assert ask(replace(native(), heat=heat), 8)[0].cached and not ask(native(), 8)[0].cached


def test_of_a_vm_the_lines_of_both_tables_count():
    pages = [(HEAP + k * PAGE, 512 + k) for k in range(128)]
    both = build_snapshot(pages, [], nodes=2, table_nodes=[0], host_table_nodes=[0])
    assert not ask(both, 16)[0].cached and ask(both, 40)[0].cached
