"""What a Hydra kernel counted of processes that ended, beside what replays of a trace count.

Usage: python -m lab.oracle.history FILE[#RECORD] CAPTURE [POLICY ...]   (FILE: /proc/hydra/history)

The kernel counts the whole life of a process, a replay what its trace holds.

Source: arch/x86/mm/hydra_stats.c (hydra_stats_print) of the Linux 7.0 with Hydra, github.com/julianw1010/
hydra-7.0.0-fork. A record begins with "MM record #N" between two rules; below it are lines of a name and a
number, in sections that are underlined.
"""

import re
import sys
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from ptanalyze.analysis.ranking import label_of
from ptanalyze.analysis.whatif import replay
from ptanalyze.capture.describe import program
from ptanalyze.core.errors import CaptureError, UsageError, printable
from ptanalyze.formats.capture import load
from ptanalyze.show.terminal import print_rows

MOST_BYTES = 1 << 26
MOST_DIGITS = 19  # of a number that the kernel prints, a long
RULE = re.compile(r"={60,}")
BEGINS = re.compile(r"  MM record #(\d{1,20})")
VALUE = re.compile(r" +(\S.*?) +(\d{1,19})(?:  +\(.*\))?")
COMM = re.compile(r" +comm +(\S.*?)")
LIFETIME = re.compile(r" +lifetime \(s\) +(\d{1,10}\.\d{3})")
LEVEL = re.compile(r" +(PGD|P4D|PUD|PMD|PTE) +([\d .]+?)")
TABLES = "Page tables: MAX watermark"
WRITES = "Page-table entry modifications"
# EVENT_KINDS of kernels.replay -> the kernel's name for it
COUNTED = {
    "replica_faults": "Replica faults",
    "pte_copies": "PTE entries copied (4KB)",
    "ipis": "Total shootdowns (with optimization)",
    "ipis_saved": "Shootdowns saved by node-scoping",
}

NAMES = {
    "replica_faults": "replica faults",
    "pte_copies": "entries copied",
    "pte_writes": "entries written",
    "pte_fanout": "further copies written",
    "ipis": "IPIs",
    "ipis_saved": "IPIs saved",
    "table_pages_peak": "table pages at peak",
}


class Record(NamedTuple):
    """A process: number of the record, its name (at most 15 characters), seconds, and what was counted.

    counts  {kind of kernels.replay.EVENT_KINDS, or "table_pages_peak": number}
    """

    number: int
    pid: int
    comm: str
    seconds: float
    counts: dict[str, int]


def read_history(path: str | PathLike[str]) -> list[Record]:
    """Records of a file in its order; UsageError for a missing file, CaptureError for one that is no history
    or ends within a record."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    if len(text) > MOST_BYTES:
        raise CaptureError(path, "size", f"over {MOST_BYTES}", "no history of a kernel is that long")
    lines = text.decode("utf-8", "replace").split("\n")
    starts = [at for at, line in enumerate(lines) if BEGINS.fullmatch(line)]
    if not starts:
        raise CaptureError(path, "records", 0, "no line 'MM record #N': this is no /proc/hydra/history")
    ends = [*(at - 1 for at in starts[1:]), len(lines)]
    return [read_record(path, lines[a : max(a + 1, b)], a) for a, b in zip(starts, ends, strict=True)]


def read_record(path: Path, lines: Sequence[str], before: int) -> Record:
    """Record of its lines; `before`: lines of the file before them."""
    number = int(BEGINS.fullmatch(lines[0])[1])  # type: ignore[index]
    plain: dict[str, int] = {}
    seconds, section, comm = None, "", ""
    tables: dict[str, list[int]] = {}
    writes: list[int] = []
    for at, line in enumerate(lines[1:], 1):
        if at + 1 < len(lines) and set(lines[at + 1].strip()) == {"-"}:
            section = line.strip()
        elif found := COMM.fullmatch(line):
            comm = found[1]
        elif found := LIFETIME.fullmatch(line):
            seconds = float(found[1])
        elif (found := LEVEL.fullmatch(line)) and section.startswith(TABLES):
            tables[found[1]] = whole(found[2])
        elif found and section.startswith(WRITES) and found[1] == "PTE":
            writes = whole(found[2])[:2]
        elif found := VALUE.fullmatch(line):
            plain.setdefault(found[1], int(found[2]))
    lacks = [said for said in ("pid", *COUNTED.values()) if said not in plain]
    lacks += ["lifetime (s)"] * (seconds is None)
    nodes = {len(row) for row in tables.values()}
    lacks += [TABLES] * (len(tables) < 5 or len(nodes) > 1 or 0 in nodes)
    lacks += [WRITES] * (len(writes) < 2) + ["its last line"] * bool(lines[-1])
    if lacks or seconds is None:
        why = "the file is cut off, or of a kernel whose history this does not read"
        raise CaptureError(path, f"line {before + 1}: record #{number}", f"without {lacks[0]!r}", why)
    counts = {kind: plain[said] for kind, said in COUNTED.items()}
    counts |= {
        "pte_writes": writes[0],
        "pte_fanout": writes[1],
        "table_pages_peak": sum(map(sum, tables.values())),
    }
    return Record(number, plain["pid"], comm, seconds, counts)


def whole(numbers: str) -> list[int]:
    """The whole ones of several numbers."""
    return [int(number) for number in numbers.split() if number.isdecimal() and len(number) <= MOST_DIGITS]


def chosen(path: str, program: str) -> Record:
    """The Record that "FILE" or "FILE#N" names: of several the last of that program.

    program  its name, as in the capture; UsageError lists the records where none is meant.
    """
    file, _, number = path.rpartition("#") if re.search(r"#\d+$", path) else (path, "", "")
    records = read_history(file)
    wanted = [
        one for one in records if str(one.number) == number or (not number and one.comm == program[:15])
    ]
    if not wanted and not number and len(records) == 1:
        wanted = records
    if not wanted:
        there = ", ".join(f"#{one.number} {printable(one.comm)}" for one in records[-8:])
        raise UsageError(f"{path}: which record? write {file}#N; there are: {there}")
    return wanted[-1]


def beside(record: Record, results: Sequence) -> list[dict]:
    """A row for each of NAMES, with a column for the kernel and one for each Result."""
    counts = {"kernel": record.counts}
    for result in results:
        counted = {kind: result.count(kind) for kind in NAMES if kind != "table_pages_peak"}
        counts[label_of(result, results)] = counted | {"table_pages_peak": result.table_pages_peak}
    return [{"": name} | {who: of[kind] for who, of in counts.items()} for kind, name in NAMES.items()]


def main(history: str, capture: str, *policies: str) -> None:
    opened = load(capture)
    command = str(program(opened).get("program", "")).split()
    record = chosen(history, command[0].rpartition("/")[2] if command else "")
    title = f"record #{record.number}: {record.comm}, PID {record.pid}, {record.seconds:.1f} s"
    print_rows(title, beside(record, replay(opened, policies or ("hydra",)).results))


if __name__ == "__main__":
    main(*sys.argv[1:])
