"""The native writer and the Python package mean the same bytes."""

import ctypes
import re
import subprocess
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import decode as naive
from native import tracing
from native.dumping import make
from native.tracing import ROOT
from ptanalyze.core.trace import Event
from ptanalyze.formats import trace


class Field(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("offset", ctypes.c_size_t), ("bytes", ctypes.c_size_t))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return tracing.encoder(tmp_path_factory.mktemp("encoder"))


@pytest.mark.parametrize(
    ("symbol", "dtype"),
    [
        ("header_fields", trace.HEADER_DTYPE),
        ("frame_fields", trace.FRAME_DTYPE),
        ("event_fields", trace.PAYLOAD_DTYPE),
    ],
)
def test_the_structs_and_the_dtypes_have_the_same_fields_at_the_same_places(library, symbol, dtype):
    fields = (Field * (len(dtype.names) + 1)).in_dll(library, symbol)
    found = {field.name.decode(): (field.offset, field.bytes) for field in fields[:-1]}
    assert found == {name: (offset, kind.itemsize) for name, (kind, offset, *_) in dtype.fields.items()}
    assert fields[-1].name is None and fields[-1].offset == dtype.itemsize


def test_the_numbers_of_events_and_endings_are_the_same():
    text = (ROOT / "pintool/records.h").read_text()
    values = {name: int(value) for name, value in re.findall(r"\bPTT_(\w+) = (\d+)", text)}
    values["ROI_END"] = values.pop("ROI_STOP")
    assert {event.name: values[event.name] for event in Event} == {event.name: event.value for event in Event}
    for number, name in enumerate(trace.ENDED):
        assert values[name.replace(" ", "_").upper()] == number
    assert values["IMPORTED"] == trace.ENDED_IMPORTED


PAGES = st.one_of(
    st.integers(0, 12),
    st.integers(1 << 20, (1 << 20) + 3000),
    st.integers(1 << 34, (1 << 34) + (1 << 26)),
    st.integers(0, (1 << 45) - 1),
)
COUNTS = st.one_of(st.integers(1, 6), st.integers(1, (1 << 18) - 1))


@settings(deadline=None)
@given(touches=st.lists(st.tuples(PAGES, st.booleans(), COUNTS), max_size=60))
def test_the_native_encoder_and_its_naive_twin_write_the_same_bytes(library, touches):
    packed = np.array([page << 19 | count << 1 | write for page, write, count in touches], np.uint64)
    out = (ctypes.c_uint8 * (10 * len(touches) + 1))()
    accesses = ctypes.c_uint64(0)
    library.encode.restype = ctypes.c_size_t
    n = library.encode(
        ctypes.c_void_p(packed.ctypes.data), ctypes.c_size_t(len(touches)), out, ctypes.byref(accesses)
    )
    assert bytes(out[:n]) == naive.encode(touches)
    assert accesses.value == sum(count for _, _, count in touches)


@settings(deadline=None)
@given(data=st.binary(max_size=200))
def test_the_native_checksum_is_zlib_s(library, data):
    library.checksum.restype = ctypes.c_uint32
    assert library.checksum(data, ctypes.c_size_t(len(data))) == zlib.crc32(data)


def test_the_writer_needs_no_library(tmp_path):
    make("pintool")
    parts = ("writer", "session_file", "watcher", "control", "tracer")
    objects = [ROOT / f"pintool/build/{name}.o" for name in parts]
    subprocess.run(["ld", "-r", "-o", tmp_path / "all.o", *objects], check=True)
    undefined = subprocess.run(
        ["nm", "-u", tmp_path / "all.o"], capture_output=True, text=True, check=True
    ).stdout
    assert set(undefined.split()) <= {"U", "_GLOBAL_OFFSET_TABLE_"}
