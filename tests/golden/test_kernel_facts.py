"""The replays of hydra and mitosis, and their twins, against what real kernels did, operation by operation.

Differences are listed in kernel/differences.csv, each with a reason from REASONS; a difference that
is not listed fails, and so does one that is listed and gone.
"""

import csv
from pathlib import Path

import pytest

import lab.oracle
from kernel_scripts import FACTS, differences, facts, seen_by_replay, seen_by_twin
from lab.oracle.scenarios import scenarios

SCRIPTS = Path(lab.oracle.__file__).parent / "operations.txt"
FILTERS = {  # of hydra; the other kernels replicate as mitosis does
    "a_four_cpus": ("off", "single", "all", "all-or-none"),
    "a_eight_cpus": ("off", "single", "all", "all-or-none"),
    "b_four_cpus": ("off", "single", "single", "single"),  # it knows 0 and 1; it went on with 1
    "c_operations": ("off", "single"),
}
KERNELS = (*FILTERS, "eager_four_cpus", "eager_operations")
KERNELS += ("wasp_four_cpus", "wasp_eight_cpus", "wasp_operations")
REASONS = {  # with the function and commit it comes from; A, B and C are the kernels of kernel/README.md
    "unmapping is not filtered": "A interrupts everyone for munmap and MADV_DONTNEED: its choice",
    "unmapping by level 2": "B and C spare nodes without the level-2 table for munmap, and for mremap: "
    "their choice (zap_pmd_range, 556815fad)",
    "owner of a table": "a table's owner made it; the paper's example and 4.17 go by VMA",
    "merging on node 0": "A merges adjacent mappings of node 0 only: its bug",
    "one flush for a move": "A flushes once for all leaf tables that mremap moves, B and Linux once for each",
    "owner left out": "A's all-or-none leaves the owner's CPUs with old entries: its bug",
    "4 KiB entries": "B's and C's counters know entries of 4 KiB pages only (hydra_set_pmd, 556815fad)",
    "moved tables": "eager replication follows faults: what mremap moved is on the owner's node alone "
    "until then (hydra_eager_fanout, 556815fad)",
    "idle CPUs": "C counts all CPUs of mm_cpumask (flush_tlb_mm_node_range, 556815fad), "
    "and does not interrupt the idle ones (should_flush_tlb)",
    "fork": "fork write-protects what is then copied on write (copy_present_ptes, wp_page_copy): "
    "no trace has it",
    "fault-around": "a read maps 16 pages of a file at once (do_fault_around): not in the replay",
    "copy on write": "writing a private file's page that is mapped already (wp_page_copy): not in the replay",
    "split": "a huge page that changes in part becomes 512 entries (__split_huge_pmd): not in the replay",
    "moved huge page": "a huge entry goes along with mremap (move_huge_pmd): not in the replay",
    "flush of a gone huge page": "C finds no level-2 entry any more and interrupts everyone: its choice "
    "(flush_tlb_vma_range, 556815fad)",
    "zero page": "writing a page that was only read (wp_page_copy, do_huge_zero_wp_pmd): not in the replay",
}


def listed(kernel):
    with open(FACTS / "differences.csv") as file:
        rows = [row for row in csv.DictReader(file) if row["kernel"] == kernel]
    assert {row["reason"] for row in rows} <= REASONS.keys()
    return {(row["scenario"], row["step"], row["quantity"]) for row in rows}


def replayed_as(kernel, scenario):
    """(policy, parameters)"""
    if kernel not in FILTERS:
        return "mitosis", {}
    params = {"prefetch": scenario["order"], "prefetch_on": "every"}
    return "hydra", params | {"tlbflush": FILTERS[kernel][scenario["tlbflush_opt"]]}


@pytest.mark.parametrize("model", [seen_by_replay, seen_by_twin])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_replay_and_its_twin_do_what_the_kernel_did_but_for_the_differences_listed(kernel, model):
    found, compared = set(), 0
    for scenario in facts(kernel):
        policy, params = replayed_as(kernel, scenario)
        count, differ = differences(scenario, policy, params, 8 if "eight" in kernel else 4, model)
        compared += count
        found |= {(scenario["name"], *at) for at in differ}
    assert compared > 350
    assert found == listed(kernel)


def test_the_scripts_of_the_lab_are_those_of_the_facts():
    assert scenarios(SCRIPTS) == scenarios(FACTS / "c_operations.json")


def test_every_reason_is_that_of_a_listed_difference():
    with open(FACTS / "differences.csv") as file:
        assert {row["reason"] for row in csv.DictReader(file)} == REASONS.keys()
