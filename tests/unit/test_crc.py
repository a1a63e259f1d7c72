"""The CRC-32 of a file is zlib's, whatever of it is a hole."""

import os
import time
import zlib

from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.core.safe_files import crc_of, crc_of_zeros
from ptanalyze.formats.manifest import copy_private


@given(st.binary(max_size=50), st.integers(0, 5000))
def test_zeros_behind_a_text(text, count):
    assert crc_of_zeros(count, zlib.crc32(text)) == zlib.crc32(text + bytes(count))


@given(
    st.lists(st.tuples(st.integers(0, 40), st.binary(min_size=1, max_size=9)), max_size=5), st.integers(0, 9)
)
def test_a_file_with_holes(tmp_path_factory, pieces, more):
    path = tmp_path_factory.getbasetemp() / "sparse"
    with open(path, "wb") as file:
        for hole, text in pieces:
            file.seek(hole * 4096, os.SEEK_CUR)
            file.write(text)
        file.truncate(file.tell() + more * 4096)
    with open(path, "rb") as file:
        assert crc_of(file) == zlib.crc32(path.read_bytes())
        for most in (None, 5000, path.stat().st_size):
            copy = path.with_name("copy")
            copy.unlink(missing_ok=True)
            copy_private(file, copy, most)
            assert copy.read_bytes() == path.read_bytes().ljust(most or 0, b"\0")[:most]
            assert copy.stat().st_blocks <= path.stat().st_blocks + 8


def test_a_tebibyte_of_nothing_is_not_read(tmp_path):
    path = tmp_path / "sparse"
    path.write_bytes(b"x")
    os.truncate(path, 1 << 40)
    before = time.process_time()
    with open(path, "rb") as file:
        assert crc_of(file) == crc_of_zeros((1 << 40) - 1, zlib.crc32(b"x"))
    assert time.process_time() - before < 5, "reading it takes minutes"
