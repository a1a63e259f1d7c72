"""The bundled capture's counts, to the last integer, under every policy.

They are facts of the capture and the model, not of the machine that computes them. When the model changes on
purpose, run with GOLDEN=write, read the difference, and say in the commit why it changed.
"""

import json
import os
from pathlib import Path

import pytest

from ptanalyze.bundled import bundled
from ptanalyze.capture import open_capture
from ptanalyze.locality import walk_locality
from ptanalyze.machine import load_machine
from ptanalyze.whatif import whatif

HERE = Path(__file__).parent
POLICIES = ("linux", "first-touch", "interleave", "ideal", "mitosis", "hydra")
MACHINES = ("vmitosis-cascade-lake", "hydra-haswell")
COUNTS = (
    "policy", "params", "walks", "dram_reads", "remote_dram_reads", "remote_reads", "pt_bytes",
    "pt_bytes_extra", "pt_bytes_peak", "pte_writes", "pte_fanout", "faults", "replica_faults", "pte_copies",
    "tables_new", "tables_freed", "ipis_local", "ipis_remote", "ipis_saved_local", "ipis_saved_remote",
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


@pytest.mark.parametrize("machine", MACHINES)
def test_counts_under_every_policy_are_as_stored(sample, machine, tmp_path):
    results = whatif(
        sample.snapshot,
        sample.trace,
        load_machine(machine),
        [(name, {}) for name in POLICIES],
        cache_dir=tmp_path,
    )
    rows = [{key: result.row()[key] for key in COUNTS} for result in results]
    for row, result in zip(rows, results, strict=True):
        row["tlb"] = result.hits.tolist()
        row["classes"] = result.classes.tolist()
        row["reads_by_level"] = result.reads.sum(axis=(1, 2, 3))[8:48:8].tolist()
    agree(f"whatif-{machine}", rows)


def test_the_walks_classes_are_as_stored(sample):
    seen, _ = walk_locality(sample, load_machine("vmitosis-cascade-lake"), by="thread")
    rows = [
        [str(group), int(socket), kind, int(count)] for group, socket, kind, count, _ in seen.frame().values
    ]
    agree("classify", rows)
