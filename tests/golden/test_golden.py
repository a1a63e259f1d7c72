"""The bundled captures' counts, to the last integer, under every policy.

They are facts of the captures and the model, not of the machine that computes them. When the model changes on
purpose, run with GOLDEN=write, read the difference, and say in the commit why it changed.
"""

import json
import os
from pathlib import Path

import pytest

from ptanalyze.analysis.classify import walk_locality
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import bundled
from ptanalyze.core.machine import load_machine
from ptanalyze.formats.capture import open_capture
from ptanalyze.policies import names

HERE = Path(__file__).parent
NATIVE = (
    "linux", "first-touch", "interleave", "bind", "ideal", "mitosis", "hydra", "vmitosis-migrate", "wasp",
    "thp",
)  # fmt: skip
NESTED = (
    *NATIVE, "vmitosis-replicate", "ept-reset", "ptemagnet", "shadow",
    "shadow+mitosis", "thp+ptemagnet+vmitosis-replicate",
)  # fmt: skip
NEED_NODES = ("mitosis", "hydra", "wasp")  # in the guest
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
        path.write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")
    assert found == json.loads(path.read_text())


@pytest.fixture(scope="module")
def sample():
    return open_capture(bundled("samples") / "sysbench-memory")


def counts(capture, machine, policies, refused=None):
    """Counts of the run as traced."""
    return [stored(one) for one in replayed(capture, machine, policies, refused, cold=True)]


def replayed(capture, machine, policies, refused=None, cold=False):
    told = {"mode": "no-p"} if capture.snapshot.numa_oblivious else {}
    return replay_snapshot(
        capture.snapshot,
        capture.trace,
        [(name, told if "vmitosis-replicate" in name else {}) for name in policies],
        Setup.of(machine=load_machine(machine), cold=cold),
        refused=refused,
    )


def stored(result):
    by_bit = enumerate(result.reads.sum(axis=(1, 2, 3)))
    return {
        **{key: result.row()[key] for key in COUNTS},
        "tlb": result.hits.tolist(),
        "classes": result.classes.tolist(),
        "reads_by_bit": {str(bit): int(count) for bit, count in by_bit if count},
    }


@pytest.mark.parametrize("machine", MACHINES)
def test_counts_under_every_policy_are_as_stored(sample, machine):
    agree(f"whatif-{machine}", counts(sample, machine, NATIVE))


@pytest.mark.parametrize("vm, refused", [("vm-numa-visible", ()), ("vm-numa-oblivious", NEED_NODES)])
def test_counts_of_a_vm_under_every_policy_are_as_stored(vm, refused):
    capture, said = open_capture(bundled("samples") / vm), {}
    agree(f"whatif-{vm}", counts(capture, MACHINES[0], NESTED, said))
    assert set(said) == set(refused)


def test_every_policy_has_a_golden_answer():
    named = {part for name in (*NATIVE, *NESTED) for part in name.split("+")}
    assert named == set(names())


def test_the_walks_classes_are_as_stored(sample):
    seen, _ = walk_locality(sample, Setup.of(machine=load_machine("vmitosis-cascade-lake")), by="thread")
    rows = [
        [str(group), int(socket), kind, int(count)] for group, socket, kind, count, _ in seen.frame().values
    ]
    agree("classify", rows)
