"""What a Hydra kernel counted: records as its hydra_stats_print writes them, beside a replay."""

import pytest

from ptanalyze.core.errors import CaptureError, UsageError

from .history import chosen, main, read_history

RULE = "=" * 72
NODES = 4


def section(name, *lines):
    return ["", f"  {name}", "  " + "-" * 66, *lines]


def value(indent, name, number):
    return f"{'':{indent}}{name:<{44 - indent}} {number:>12}"


def record(number, comm="gups", *, faults=77, copied=512, tables=3):
    """A record by the format strings of arch/x86/mm/hydra_stats.c, with a few of its sections."""
    header = f"{'':8}" + "".join(f" {f'n{n}':>7}" for n in range(NODES))
    levels = [f"    {level:<4}" + f" {tables:>7}" * NODES for level in ("PGD", "P4D", "PUD", "PMD", "PTE")]
    writes = [f"    {level:<6} {9:>14} {2:>14} {'0.22':>16}" for level in ("PGD", "P4D", "PUD", "PMD")]
    lines = [RULE, f"  MM record #{number}", RULE]
    lines += [f"    {'pid':<40} {4000 + number}", f"    {'comm':<40} {comm}"]
    lines += [f"    {'mm':<40} 00000000deadbeef", f"    {'master node':<40} 0"]
    lines += [f"    {'lifetime (s)':<40} 12.345"]
    lines += section("THP / page-table events", value(4, "THP splits", 1))
    lines += section("Replication faults", value(4, "Master faults", 5), value(8, "write", 2))
    lines += [value(4, "Replica faults", faults), value(8, "write", 3)]
    lines += [f"      {'serviced on master':<38} {4:>12}   (5.2%)", "      by handling node:", header]
    copy = value(4, "PTE entries copied (4KB)", copied), value(6, "of which prefetched", 9)
    lines += section("Master -> replica entry copying", *copy)
    title = "Page-table entry modifications + replica fan-out (all ops)  [rows = level]"
    lines += section(title, *writes, f"    {'PTE':<6} {100:>14} {250:>14} {'2.50':>16}")
    saved = value(4, "Shootdowns saved by node-scoping", 40)
    lines += section(
        "TLB shootdowns (remote-CPU IPIs)", value(4, "Total shootdowns (with optimization)", 60), saved
    )
    lines += section("Page tables: MAX watermark  [rows = level, cols = node]", header, *levels)
    return "\n".join([*lines, "", ""])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "history"
    path.write_text(record(1, "make") + record(2, faults=1) + record(3) + record(4, "cc1"))
    return path


def test_every_record_has_what_its_kernel_counted(file):
    records = read_history(file)
    assert [(one.number, one.comm, one.pid, one.seconds) for one in records] == [
        (1, "make", 4001, 12.345),
        (2, "gups", 4002, 12.345),
        (3, "gups", 4003, 12.345),
        (4, "cc1", 4004, 12.345),
    ]
    assert records[2].counts == {
        "replica_faults": 77,
        "pte_copies": 512,
        "ipis": 60,
        "ipis_saved": 40,
        "pte_writes": 100,
        "pte_fanout": 250,
        "table_pages_peak": 5 * NODES * 3,
    }


def test_of_several_records_the_programs_last_one_or_the_one_that_is_named_is_meant(file, tmp_path):
    assert chosen(str(file), "gups").number == 3 and chosen(f"{file}#2", "gups").number == 2
    for name, program in ((str(file), "java"), (f"{file}#9", "gups")):
        with pytest.raises(UsageError, match=r"which record\? write .*#N; there are: #1 make, #2 gups"):
            chosen(name, program)
    (tmp_path / "one").write_text(record(7))
    assert chosen(str(tmp_path / "one"), "java").number == 7


def test_a_history_cut_anywhere_has_whole_records_or_is_refused_with_the_line(tmp_path):
    text = record(1) + record(2, tables=12)
    (tmp_path / "cut").write_text(text)
    whole = [one.counts for one in read_history(tmp_path / "cut")]
    for end in [*range(0, len(text), 41), *range(len(text) - 60, len(text))]:
        (tmp_path / "cut").write_text(text[:end])
        try:
            counted = [one.counts for one in read_history(tmp_path / "cut")]
            assert counted in (whole[:1], whole)
        except CaptureError as error:
            assert "\n" not in str(error) and ("record" in str(error))


@pytest.mark.parametrize(
    "text", ["", "\0" * 99, "MM record #1", record(1).replace("Replica faults", "Faults")]
)
def test_what_is_no_history_is_named(tmp_path, text):
    (tmp_path / "no").write_text(text)
    with pytest.raises(CaptureError, match=r"no line 'MM record|record #1 = without 'Replica faults'"):
        read_history(tmp_path / "no")


def test_a_record_of_nothing_but_its_head_is_cut_off(tmp_path):
    (tmp_path / "heads").write_text("  MM record #1\n" + record(2).removeprefix(f"{RULE}\n"))
    with pytest.raises(CaptureError, match="record #1 = without"):
        read_history(tmp_path / "heads")


def test_a_pid_with_words_before_it_is_none(tmp_path):
    (tmp_path / "history").write_text(record(1).replace("4001", "of 4001"))
    with pytest.raises(CaptureError, match=r"record #1 = without 'pid'"):
        read_history(tmp_path / "history")


@pytest.mark.parametrize("of", ["pid", "tables"])
def test_a_number_of_thousands_of_digits_is_none(tmp_path, of):
    long = "9" * 5000
    texts = {"pid": record(1).replace("4001", long), "tables": record(1, tables=long)}
    (tmp_path / "long").write_text(texts[of])
    with pytest.raises(CaptureError, match=r"record #1 = without '(pid|Page tables: MAX watermark)'"):
        read_history(tmp_path / "long")


def test_the_kernels_counts_stand_beside_the_replays(file, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    main(f"{file}#3", "sysbench-memory", "hydra")
    out = capsys.readouterr().out
    assert "record #3: gups, PID 4003, 12.3 s" in out
    (row,) = (line for line in out.splitlines() if "further copies written" in line)
    assert row.split()[-3:] == ["250", "0", "0"]
