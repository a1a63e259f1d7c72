"""The bundled capture's counts, to the last integer, under every policy.

They are facts of the capture and the model, not of the machine that computes them. When the model changes on
purpose, run with GOLDEN=write, read the difference, and say in the commit why it changed.
"""

import json
import os
from pathlib import Path

import pytest

from ptanalyze.analysis.classify import walk_locality
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.bundled import bundled
from ptanalyze.core.machine import load_machine
from ptanalyze.formats.capture import open_capture
from ptanalyze.policies import POLICIES

HERE = Path(__file__).parent
NATIVE = (
    "linux", "first-touch", "interleave", "bind", "ideal", "mitosis", "hydra", "vmitosis-migrate", "wasp",
    "thp", "five-level", "domains+hydra",
)  # fmt: skip
NESTED = (
    *NATIVE[:-2], "vmitosis-replicate", "hydra-2d", "ptemagnet", "five-level", "shadow", "shadow+mitosis",
    "thp+ptemagnet+vmitosis-replicate", "domains+hydra",
)  # fmt: skip
MACHINES = ("vmitosis-cascade-lake", "hydra-haswell")
COUNTS = (
    "policy", "params", "walks", "dram_reads", "remote_dram_reads", "remote_reads", "pt_bytes",
    "pt_bytes_extra", "pt_bytes_peak", "pte_writes", "pte_fanout", "faults", "replica_faults", "pte_copies",
    "tables_new", "tables_freed", "tables_moved", "vm_exits", "ipis_local", "ipis_remote", "ipis_saved_local",
    "ipis_saved_remote", "ept_bytes", "ept_pte_writes", "ept_pte_fanout", "ept_replica_faults",
    "ept_pte_copies", "ept_tables_new", "ept_tables_moved", "aside_bytes",
)  # fmt: skip


def agree(name, found):
    """Compare with the stored answer, or store it."""
    path = HERE / f"{name}.json"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(path.read_text())


@pytest.fixture(scope="module")
def sample():
    return open_capture(bundled("samples") / "sysbench-memory")


def counts(capture, machine, policies, cache_dir):
    results = replay_snapshot(
        capture.snapshot,
        capture.trace,
        [(name, {}) for name in policies],
        Setup.of(machine=load_machine(machine), cold=True),
        cache_dir=cache_dir,
    )
    rows = [{key: result.row()[key] for key in COUNTS} for result in results]
    for row, result in zip(rows, results, strict=True):
        row["tlb"] = result.hits.tolist()
        row["classes"] = result.classes.tolist()
        row["reads_by_bit"] = {
            str(bit): int(count) for bit, count in enumerate(result.reads.sum(axis=(1, 2, 3))) if count
        }
    return rows


@pytest.mark.parametrize("machine", MACHINES)
def test_counts_under_every_policy_are_as_stored(sample, machine, tmp_path):
    agree(f"whatif-{machine}", counts(sample, machine, NATIVE, tmp_path))


@pytest.mark.parametrize("vm", ["vm-numa-visible", "vm-numa-oblivious"])
def test_counts_of_a_vm_under_every_policy_are_as_stored(vm, tmp_path):
    capture = open_capture(bundled("samples") / vm)
    agree(f"whatif-{vm}", counts(capture, MACHINES[0], NESTED, tmp_path))


def test_every_policy_has_a_golden_answer():
    named = {part for name in (*NATIVE, *NESTED) for part in name.split("+")}
    assert named == {policy.name for policy in POLICIES}


def test_the_walks_classes_are_as_stored(sample):
    seen, _ = walk_locality(sample, Setup.of(machine=load_machine("vmitosis-cascade-lake")), by="thread")
    rows = [
        [str(group), int(socket), kind, int(count)] for group, socket, kind, count, _ in seen.frame().values
    ]
    agree("classify", rows)
