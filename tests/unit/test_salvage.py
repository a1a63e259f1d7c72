"""What comes before damage in a foreign trace is kept where one asks for it, and how much that is is said."""

import gzip
import io
import lzma
import shutil
import zipfile

import numpy as np
import pytest
from test_drmemtrace import at, begin, end, store, write
from test_drmemtrace import load as load_from
from test_other_traces import instructions

from ptanalyze.capture.check import check_capture, exit_code
from ptanalyze.capture.import_ import import_capture
from ptanalyze.cli import run
from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.formats.capture import load
from ptanalyze.formats.foreign import champsim as champsim_trace
from ptanalyze.formats.foreign.drmemtrace import RECORD
from ptanalyze.formats.trace_writer import salvaging

ROWS = 5000


def touched(capture):
    """[page] of each touch, in order."""
    trace, found = capture.trace, []
    for batch in trace.batches(1):
        found += ((trace.regions[batch.page >> 9].astype(np.int64) << 9) | (batch.page & 511)).tolist()
    return found


def lackey(rows):
    return "".join(f" L {(k + 1) << 12:x},8\n" for k in range(rows)).encode()


def pinatrace(rows):
    return "".join(f"0x7f12: R {(k + 1) << 12:#x}\n" for k in range(rows)).encode()


def champsim(rows):
    return instructions(*(([(k + 1) << 12], []) for k in range(rows))).tobytes()


WHOLE = {"lackey": lackey, "pinatrace": pinatrace, "champsim": champsim}


def salvaged(tmp_path, form, file):
    with salvaging() as damage:
        import_capture(form, file, tmp_path / "made", strip=False)
    return load(tmp_path / "made"), damage


@pytest.mark.parametrize("form", WHOLE)
@pytest.mark.parametrize("kept", [4, 700, ROWS - 1])
def test_everything_before_the_damage_is_kept_and_nothing_else(tmp_path, form, kept):
    before = WHOLE[form](kept)
    (tmp_path / "trace").write_bytes(before + b"\xff\xfe?" * 40 + WHOLE[form](5))
    with pytest.raises(CaptureError):
        import_capture(form, tmp_path / "trace", tmp_path / "no", strip=False)
    assert not (tmp_path / "no").exists()
    capture, damage = salvaged(tmp_path, form, tmp_path / "trace")
    assert touched(capture) == [k + 1 for k in range(kept)]
    assert len(damage) == 1 and "\n" not in damage[0] and capture.manifest.provenance["salvaged"] == damage
    assert capture.trace.facts["ended"] == "unfinished"
    assert exit_code(list(check_capture(capture))) == 3


def test_champsims_records_for_other_machines_are_refused_and_nothing_of_them_is_kept(tmp_path):
    """Its CloudSuite format: four destinations in memory and an address space, 88 bytes."""
    rows = np.zeros(50, [("head", champsim_trace.RECORD), ("rest", "u1", 24)])
    rows["head"]["ip"], rows["head"]["store"] = 0x400000, 0x7000
    rows["rest"] = 7
    (tmp_path / "a.champsimtrace").write_bytes(rows.tobytes())
    for wanted in (False, True):
        with pytest.raises(CaptureError, match="record = 1: no ChampSim trace"), salvaging(wanted):
            import_capture(None, tmp_path / "a.champsimtrace", tmp_path / "no")
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_of_a_packed_trace_that_is_cut_the_beginning_is_kept(tmp_path, ending, pack):
    pages = np.random.default_rng(1).integers(1, 1 << 30, ROWS) << 12  # random: it packs badly
    packed = pack(instructions(*(([int(page)], []) for page in pages)).tobytes())
    file = tmp_path / f"a.champsimtrace{ending}"
    file.write_bytes(packed[: len(packed) // 2])
    capture, damage = salvaged(tmp_path, "champsim", file)
    found = touched(capture)
    assert found == (pages[: len(found)] >> 12).tolist() and ROWS // 4 < len(found) < ROWS
    assert "compressed data" in damage[0]


def test_a_damaged_thread_of_a_drmemtrace_leaves_the_others_whole(tmp_path):
    traces = tmp_path / "traces"
    traces.mkdir()
    write(traces / "a.trace.gz", [*begin(7), *at(10), load_from(5), store(6), (77, 0, 0), load_from(8)])
    write(traces / "b.trace.gz", [*begin(8), *at(20), load_from(9), *at(30), load_from(11), *end(8)])
    capture, damage = salvaged(tmp_path, "drmemtrace", traces)
    assert touched(capture) == [5, 6, 9, 11] and len(damage) == 1
    assert "a.trace.gz: record 8: type = 77" in damage[0]


MEMBERS = 6


def packed_members(path, kind=zipfile.ZIP_DEFLATED, streamed=False):
    """A trace in members of 500 loads of random pages: (file of its bytes, pages, ends of members)."""
    pages = np.random.default_rng(2).integers(0, 1 << 30, (MEMBERS, 500))
    ends, sink = [], io.BytesIO()
    target = Unseekable(sink) if streamed else sink
    with zipfile.ZipFile(target, "w", kind) as archive:
        for k, member in enumerate(pages.tolist()):
            records = [*(begin(7) if k == 0 else []), *at(5 + k), *map(load_from, member)]
            archive.writestr(f"chunk.{k:04}", np.array(records, RECORD).tobytes())
            ends.append(sink.tell())
    path.write_bytes(sink.getvalue())
    return path, pages, ends


class Unseekable:
    """A pipe: sizes of members follow them."""

    def __init__(self, sink):
        self.write, self.flush = sink.write, sink.flush


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
@pytest.mark.parametrize("streamed", [False, True])
def test_of_an_archive_without_its_directory_whole_members_and_the_beginning_of_the_next_are_kept(
    tmp_path, kind, streamed
):
    file, pages, ends = packed_members(tmp_path / "a.trace.zip", kind, streamed)
    whole = file.read_bytes()
    file.write_bytes(whole[: (ends[2] + ends[3]) // 2])
    with pytest.raises(CaptureError, match="compressed data = damaged"):
        import_capture("drmemtrace", file, tmp_path / "no", strip=False)
    if streamed and kind == zipfile.ZIP_STORED:
        with pytest.raises(CaptureError, match="says not how long it is"):
            salvaged(tmp_path, "drmemtrace", file)
        return
    capture, damage = salvaged(tmp_path, "drmemtrace", file)
    found = touched(capture)
    assert found == pages.ravel()[: len(found)].tolist() and 3 * 500 < len(found) < 4 * 500
    assert len(damage) == 1 and "a.trace.zip" in damage[0]


def test_an_archive_can_be_cut_anywhere(tmp_path):
    file, pages, ends = packed_members(tmp_path / "a.trace.zip")
    whole, first = file.read_bytes(), ends[0]
    for cut in (*range(first - 3, first + 60, 4), ends[-1], ends[-1] + 9, len(whole) - 1):
        file.write_bytes(whole[:cut])
        capture, damage = salvaged(tmp_path, "drmemtrace", file)
        found = touched(capture)
        assert found == pages.ravel()[: len(found)].tolist() and len(damage) == 1
        sure = 500 * sum(end <= cut for end in ends)
        assert sure <= len(found) <= sure + 500
        shutil.rmtree(tmp_path / "made")


def test_where_nothing_is_sound_the_damage_is_said(tmp_path):
    write(tmp_path / "a.trace.zip", [*begin(7, version=99), load_from(1)])
    with pytest.raises(CaptureError, match=r"accesses = 0: none before the damage: .*version = 99"):
        salvaged(tmp_path, "drmemtrace", tmp_path / "a.trace.zip")
    (tmp_path / "b.trace.zip").write_bytes(b"PK\x03\x04")
    with pytest.raises(CaptureError, match=r"none before the damage: .*cut off before the header"):
        salvaged(tmp_path, "drmemtrace", tmp_path / "b.trace.zip")
    assert not (tmp_path / "made").exists()


def test_what_comes_before_a_time_that_goes_backwards_is_kept(tmp_path):
    records = [*begin(7), *at(50), load_from(5), *at(50), load_from(6), *at(49), load_from(7), *end(7)]
    file = write(tmp_path / "a.trace.gz", records)
    with pytest.raises(CaptureError, match=r"record 10: timestamp = 49: before the last, 50"):
        import_capture("drmemtrace", file, tmp_path / "no", strip=False)
    capture, damage = salvaged(tmp_path, "drmemtrace", file)
    assert touched(capture) == [5, 6] and len(damage) == 1


def test_the_command_says_how_much_is_left_and_exits_with_3(tmp_path, capsys):
    (tmp_path / "t").write_bytes(lackey(9) + b"==1== Process terminating\nnonsense\n")
    assert run(["import", "lackey", str(tmp_path / "t"), "-o", str(tmp_path / "made"), "--salvage"]) == 3
    said = capsys.readouterr().err
    assert "nonsense" in said and "kept 9 accesses of 1 thread\n" in said
    (tmp_path / "whole").write_bytes(lackey(9))
    assert run(["import", str(tmp_path / "whole"), "-o", str(tmp_path / "two"), "--salvage"]) == 0


CUT = {
    "lackey": (lackey(9), b" L 7f,1"),
    "pinatrace": (pinatrace(9), b"0x7f12: R 0x7f"),
    "perf-script": (b"7 [000] 1.500000: tlb-miss: 5000\n" * 9, b"7 [000] 1.600000: tlb-miss: 70"),
}


@pytest.mark.parametrize("form", CUT)
def test_half_a_line_at_the_end_is_no_line_though_it_could_be_one(tmp_path, form):
    whole, half = CUT[form]
    (tmp_path / "t").write_bytes(whole + half)
    with pytest.raises(CaptureError, match=f"line at byte {len(whole)} = .*: cut off: no newline"):
        import_capture(None, tmp_path / "t", tmp_path / "no")
    assert not (tmp_path / "no").exists()
    with salvaging() as damage:
        assert import_capture(None, tmp_path / "t", tmp_path / "made") == form
    assert load(tmp_path / "made").trace.accesses == 9 and len(damage) == 1


def test_of_perf_samples_all_before_the_first_bad_line_are_kept_as_walks(tmp_path):
    (tmp_path / "t").write_bytes(CUT["perf-script"][0] + b"lost 3 chunks!\n" + CUT["perf-script"][0])
    with salvaging() as damage:
        import_capture("perf-script", tmp_path / "t", tmp_path / "made")
    facts = load(tmp_path / "made").trace.facts
    assert facts["walks"] and facts["ended"] == "unfinished" and "lost 3 chunks!" in damage[0]
    assert load(tmp_path / "made").trace.accesses == 9


HELPED = {
    "lackey": lackey(9) + b"nonsense\n",
    "pinatrace": pinatrace(9) + b"0x7f12: R",
    "perf-script": CUT["perf-script"][0] + b"nonsense\n",
    "champsim": champsim(9)[:-1],
}


@pytest.mark.parametrize("form", HELPED)
def test_an_error_names_salvage_where_it_helps_and_only_there(tmp_path, form, capsys):
    (tmp_path / "t").write_bytes(HELPED[form])
    assert run(["import", form, str(tmp_path / "t"), "-o", str(tmp_path / "no")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("; --salvage keeps what comes before")
    (tmp_path / "t").write_bytes(b"nonsense" * 20 + b"\n")
    for option in ([], ["--salvage"]):
        assert run(["import", form, str(tmp_path / "t"), "-o", str(tmp_path / "no"), *option]) == 1
        assert "--salvage" not in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("records", "helps"),
    [
        ([*begin(7), load_from(5), (77, 0, 0)], True),
        ([*begin(7), *at(50), load_from(5), *at(49)], True),
        ([*begin(7, version=99), load_from(1)], False),
        ([*begin(7, kind=0x20), load_from(1)], False),
    ],
)
def test_an_error_about_a_drmemtrace_names_salvage_where_it_helps(tmp_path, records, helps):
    file = write(tmp_path / "a.trace.gz", records)
    with pytest.raises(CaptureError) as error:
        import_capture("drmemtrace", file, tmp_path / "no")
    assert ("; --salvage keeps what comes before" in str(error.value)) == helps


def test_where_nothing_is_sound_nothing_is_made(tmp_path):
    (tmp_path / "t").write_bytes(b"nonsense\n")
    with pytest.raises(CaptureError):
        salvaged(tmp_path, "lackey", tmp_path / "t")
    with pytest.raises(UsageError, match="--salvage: not for vmitosis"):
        salvaged(tmp_path, "vmitosis", tmp_path / "t")
    assert not (tmp_path / "made").exists()
