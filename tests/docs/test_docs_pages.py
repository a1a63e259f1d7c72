"""What single pages promise: formats, questions, worked examples, the index, a release."""

import re
import tomllib
import zlib

import numpy as np
import pytest
from licences import PROJECT, normal
from pages import DOCS
from worked_examples import FIGURES, rows_of, section

from captures import contents, write_bits
from ptanalyze import __version__
from ptanalyze.cli import entries
from ptanalyze.core import snapshot
from ptanalyze.core.errors import bundled
from ptanalyze.core.safe_files import PACKED
from ptanalyze.core.trace import Event
from ptanalyze.formats.snapshot import read_tree
from ptanalyze.formats.trace import ENDED, read_trace

# The tables of the formats page are the formats: the bundled captures are decoded by them.

PAGE = (DOCS / "explanation" / "formats.md").read_text("utf-8")
FIELD = re.compile(r"\| (\d+) \| (\d+) \| (\w+) \| `(\w+)` \|")
NUMBERED = re.compile(r"^\| (\d+) \| `([A-Z_]+)` \|", re.MULTILINE)
NATIVE, VISIBLE, OBLIVIOUS = TRACES = "sysbench-memory", "vm-numa-visible", "vm-numa-oblivious"
TREES = [(NATIVE, "gpt"), (VISIBLE, "gpt"), (VISIBLE, "ept"), (OBLIVIOUS, "ept")]


def layouts():
    """A dtype for each table of offsets, sizes and types, in the order of the page."""
    found = [[]]
    for line in PAGE.splitlines():
        if row := FIELD.match(line):
            found[-1].append(row.groups())
        elif found[-1]:
            found.append([])
    return [layout(rows) for rows in found if rows]


def layout(rows):
    offsets, sizes = ([int(row[column]) for row in rows] for column in (0, 1))
    formats = [
        f"S{size}" if kind == "char" else f"<{kind[0]}{int(kind[1:]) // 8}"
        for size, (_, _, kind, _) in zip(sizes, rows, strict=True)
    ]
    assert [np.dtype(form).itemsize for form in formats] == sizes
    assert offsets == np.cumsum([0, *sizes[:-1]]).tolist(), "a gap, or an overlap"
    return np.dtype({"names": [row[3] for row in rows], "formats": formats, "offsets": offsets})


TABLES_HEADER, RECORD, TRACE_HEADER, FRAME, EVENT, HEAT_HEADER, HEAT_RECORD = layouts()


@pytest.mark.parametrize(("capture", "name"), TREES)
def test_page_tables_are_decoded_by_the_page(capture, name):
    directory = bundled("samples") / capture
    content, entries = (contents(directory / f"{name}.{part}") for part in ("tables", "entries"))
    header, twin = (np.frombuffer(raw, TABLES_HEADER, 1)[0] for raw in (content, entries))
    assert (header["magic"], twin["magic"]) == (b"PTTABLES", b"PTENTRYS")
    assert (header["version"], header["byte_order"]) == (1, 0x01020304)
    assert (header["header_bytes"], header["record_bytes"]) == (512, 24)
    assert (twin["header_bytes"], twin["record_bytes"]) == (4096, 4096)
    assert all(b"little endian" in head["words"] for head in (header, twin))
    records, tree = np.frombuffer(content, RECORD, offset=512), read_tree(directory, name)
    assert len(records) == header["count"] == twin["count"] == len(tree)
    assert (header["levels"], header["encoding"].decode()) == (tree.levels, tree.encoding)
    for field in RECORD.names:
        assert np.array_equal(records[field], getattr(tree, field)), field
    table, slot = (int(at[-1]) for at in np.nonzero(tree.entries))
    raw = entries[4096 + 4096 * table + 8 * slot :][:8]
    assert int.from_bytes(raw, "little") == tree.entries[table, slot]


def test_samples_of_accessed_bits_are_decoded_by_the_page(tmp_path):
    content = write_bits(tmp_path / "heat.bits", [(10, {(0x201000, 1)}), (10, set())]).read_bytes()
    header, records = np.frombuffer(content, HEAT_HEADER, 1)[0], np.frombuffer(content, HEAT_RECORD, -1, 512)
    assert (header["magic"], header["header_bytes"], header["record_bytes"]) == (b"PTHEATBS", 512, 88)
    assert records["level"].tolist() == [1, 0, 0] and records["base"].tolist() == [0x200000, 9, 9]
    words = [records[f"words_{k}"].tolist() for k in (0, 4, 5)]
    assert words == [[1 << 1, 10**7, 10**7], [0, 10**7, 10**7], [0, 0, 1]]


@pytest.mark.parametrize("capture", TRACES)
def test_a_trace_is_decoded_by_the_page(capture):
    path = bundled("samples") / capture / "trace.ptt"
    content, trace = contents(path), read_trace(path)
    header = np.frombuffer(content, TRACE_HEADER, 1)[0]
    assert (header["magic"], header["byte_order"]) == (b"PTTRACE\n", 0x01020304)
    assert header["version"] in (1, 2)  # the same but for `stripped`
    assert header["crc"] == zlib.crc32(content[:20] + bytes(4) + content[24:4096])
    assert (header["bytes"], ENDED[header["ended"]]) == (len(content), trace.facts["ended"])
    assert (header["arch"].decode(), header["command"].decode()) == ("x86_64", trace.facts["command"])
    assert bool(header["flags"] & 1) == trace.facts["instructions"]
    chunks, events = [], []
    at = 4096
    while at < len(content):
        frame = np.frombuffer(content, FRAME, 1, at)[0]
        payload = content[at + 48 : at + 48 + int(frame["bytes"])]
        assert frame["magic"] == 0x46545450 and frame["zero"] == 0
        fixed = content[at : at + 4] + bytes(4) + content[at + 8 : at + 48]
        assert frame["crc"] == zlib.crc32(fixed + payload)
        if frame["kind"] == 1:
            chunks.append(frame)
        else:
            assert frame["kind"] == 2 and len(payload) == EVENT.itemsize
            events.append(np.frombuffer(payload, EVENT)[0])
        at += 48 + len(payload)
    chunks, events = np.array(chunks, FRAME), np.array(events, EVENT)
    assert chunks["records"].sum() == header["records"] == trace.touches
    assert chunks["accesses"].sum() == header["accesses"] == trace.accesses
    for field in ("time", "thread", "cpu", "instructions"):
        assert sorted(chunks[field]) == sorted(trace.chunks[field]), field
    for field in ("kind", "a", "b", "c", "d", "result"):
        assert sorted(events[field]) == sorted(trace.events[field]), field


def test_every_event_and_every_flag_has_its_number():
    numbers = {name: int(number) for number, name in NUMBERED.findall(PAGE)}
    flags = {name: getattr(snapshot, name) for name in ("CHANGED", "TORN", "FAULT", "BAD_TYPE", "INFERRED")}
    assert numbers == {**flags, **{event.name: event.value for event in Event}}


def test_every_way_to_end_has_its_number():
    said = re.search(r"`ended` \| (.+) \|", PAGE)[1].split(", ")
    assert said == [f"{number} {word}" for number, word in enumerate(["never", *ENDED[1:], "imported"])]


def test_every_file_of_the_bundled_captures_is_on_the_page():
    for capture in TRACES:
        for path in (bundled("samples") / capture).iterdir():
            assert path.is_dir() or f"`{path.name.removesuffix(PACKED)}`" in PAGE, path.name


# The page of questions names every command; worked examples are what validate says now.


def test_every_command_answers_a_question():
    page = (DOCS / "which-command.md").read_text("utf-8")
    assert {*re.findall(r"`(?:sudo .venv/bin/)?ptanalyze (\w+)", page)} == set(entries())


def test_worked_examples_are_what_validate_says():
    """Figures whose numbers need no workload to be made; `make examples` writes the page anew."""
    page = (DOCS / "worked-examples.md").read_text("utf-8")
    headings = [f"## {paper}, {one}" for paper, (_, figures) in FIGURES.items() for one in figures]
    assert headings == re.findall(r"^## .+$", page, re.MULTILINE)
    rows = rows_of("vmitosis", "Figure 1")
    assert len(rows) > 20 and section("vmitosis", "Figure 1", rows) in page


# What a release has to say: licences of all that it needs, and one version everywhere.


def test_every_dependency_and_its_licence_are_on_the_page():
    page = (DOCS / "reference/licences.md").read_text()
    lines = (line.split("|") for line in page.splitlines())
    rows = {words[1].strip(): words[2].strip() for words in lines if len(words) > 3}
    project = tomllib.loads(PROJECT.read_text())["project"]
    wanted = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {normal(text) for texts in wanted for text in texts} - {"ptanalyze", "ptanalyze-native"}
    assert len(names) > 20 and names <= rows.keys() and all(rows.values())


def test_the_citation_and_the_extra_of_native_tools_name_this_version():
    assert f"\nversion: {__version__}\n" in (PROJECT.parent / "CITATION.cff").read_text()
    (native,) = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]["native"]
    assert native.startswith(f"ptanalyze-native>={__version__.rpartition('.')[0]},")
