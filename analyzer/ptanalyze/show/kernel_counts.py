"""What a kernel counted of a program, beside what replays of its trace count."""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis.answer import Matrix, Quantity
from ..analysis.ranking import label_of
from ..cost.result import Result
from ..formats.replica_history import Record

NAMES = {
    "replica_faults": "replica faults",
    "pte_copies": "entries copied",
    "pte_writes": "entries written",
    "pte_fanout": "further copies written",
    "ipis": "IPIs",
    "ipis_saved": "IPIs saved",
    "table_pages_peak": "table pages at peak",
}


def beside(record: Record, results: Sequence[Result]) -> Matrix:
    """A column for the kernel and one for each policy.

    A kernel counts the whole life of a process, a replay what its trace holds.
    """
    what = f"record #{record.number}: {record.comm}, PID {record.pid}, {record.seconds:.1f} s"
    rows = [
        Quantity(name, [record.counts[kind], *(counted(result, kind) for result in results)])
        for kind, name in NAMES.items()
    ]
    return Matrix(["kernel", *(label_of(result, results) for result in results)], {what: rows})


def counted(result: Result, kind: str) -> int:
    return result.table_pages_peak if kind == "table_pages_peak" else result.count(kind)
