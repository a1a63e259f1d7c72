"""The replay of hydra, and its twin, against what two real kernels did, operation by operation.

Differences are listed in kernel/differences.csv, each with a reason from REASONS; a difference that
is not listed fails, and so does one that is listed and gone.
"""

import csv

import pytest

from kernel_scripts import FACTS, differences, facts, seen_by_replay, seen_by_twin

FILTERS = {
    "a_four_cpus": ("off", "single", "all", "all-or-none"),
    "a_eight_cpus": ("off", "single", "all", "all-or-none"),
    "b_four_cpus": ("off", "single", "single", "single"),  # it knows 0 and 1; it went on with 1
}
REASONS = {
    "unmapping is not filtered": "A interrupts everyone for munmap and MADV_DONTNEED: its choice",
    "unmapping by level 2": "B spares nodes without the level-2 table for munmap, mremap's too: its choice",
    "owner of a table": "a table's owner made it; the paper's example and 4.17 go by VMA",
    "merging on node 0": "A merges adjacent mappings of node 0 only: its bug",
    "one flush for a move": "A flushes once for all leaf tables that mremap moves, B and Linux once for each",
    "owner left out": "A's all-or-none leaves the owner's CPUs with old entries: its bug",
    "4 KiB entries": "B's counters know entries of 4 KiB pages only",
    "zero page": "writing a page that was only read faults again: not in the replay (docs: model)",
}


def listed(kernel):
    with open(FACTS / "differences.csv") as file:
        rows = [row for row in csv.DictReader(file) if row["kernel"] == kernel]
    assert {row["reason"] for row in rows} <= REASONS.keys()
    return {(row["scenario"], row["step"], row["quantity"]) for row in rows}


@pytest.mark.parametrize("model", [seen_by_replay, seen_by_twin])
@pytest.mark.parametrize("kernel", FILTERS)
def test_the_replay_and_its_twin_do_what_the_kernel_did_but_for_the_differences_listed(kernel, model):
    found, compared = set(), 0
    for scenario in facts(kernel):
        params = {"prefetch": scenario["order"], "prefetch_on": "every"}
        params["tlbflush"] = FILTERS[kernel][scenario["tlbflush_opt"]]
        threads = 8 if kernel == "a_eight_cpus" else 4
        count, differ = differences(scenario, "hydra", params, threads, model)
        compared += count
        found |= {(scenario["name"], *at) for at in differ}
    assert compared > 350
    assert found == listed(kernel)


def test_every_reason_is_that_of_a_listed_difference():
    with open(FACTS / "differences.csv") as file:
        assert {row["reason"] for row in csv.DictReader(file)} == REASONS.keys()
