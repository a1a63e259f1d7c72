"""BTF as the kernel's own tools print it, and BTF that is damaged."""

import os
import re
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_memory import btf, header
from ptanalyze.formats.btf import NoBtf, read_btf

OWN = Path("/sys/kernel/btf/vmlinux")
TYPES = {"list": [("next", 0), ("prev", 64)], "task": [("", 64, [("pid", 32), ("", 64, [("comm", 8)])])]}


def test_members_of_unnamed_structs_count_from_the_outermost():
    types = read_btf(btf(TYPES))
    assert types.offset("list", "prev") == 8
    assert (
        types.offset("task", "pid") == (64 + 32) // 8 and types.offset("task", "comm") == (64 + 64 + 8) // 8
    )


@pytest.mark.parametrize(("structure", "member"), [("task", "mm"), ("mm", "pgd"), ("list", ""), ("", "next")])
def test_what_is_not_there_is_said(structure, member):
    with pytest.raises(NoBtf, match=f"no {structure}.{member}"):
        read_btf(btf(TYPES)).offset(structure, member)


def test_a_member_inside_a_byte_has_no_offset():
    with pytest.raises(NoBtf):
        read_btf(btf({"task": [("bit", 3)]})).offset("task", "bit")


def test_longer_headers_of_later_kernels_are_read():
    blob = btf(TYPES)
    longer = header(blob, extra=8) + bytes(8) + blob[24:]
    assert read_btf(longer).offset("list", "prev") == 8


def one_struct(members, *others, name=b"task\0"):
    """BTF of a struct called `name` with these (name, type) as members, and of structs without a name."""
    strings = b"\0" + name
    body = b""
    for k, rows in enumerate([members, *others]):
        body += struct.pack("<III", k == 0, 4 << 24 | len(rows), 8)
        body += b"".join(struct.pack("<III", *row, 0) for row in rows)
    return struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(body), len(body), len(strings)) + body + strings


@pytest.mark.parametrize("deep", [300, 5000])
def test_structs_within_structs_without_end_are_no_btf(deep):
    blob = one_struct([(0, 2)], *([(0, k + 3)] for k in range(deep)))
    with pytest.raises(NoBtf):
        read_btf(blob).offset("task", "pid")


def test_a_name_without_an_end_is_not_copied_for_each_of_its_members():
    blob = one_struct([(1 + k, 9) for k in range(60_000)], name=b"task\0" + b"x" * (20 << 20))
    began = time.process_time()
    with pytest.raises(NoBtf):
        read_btf(blob).offset("task", "pid")
    assert time.process_time() - began < 5, "copying takes minutes"


@given(st.data())
def test_damaged_btf_is_refused_or_read_in_bounded_time(data):
    blob = bytearray(btf(TYPES))
    for _ in range(data.draw(st.integers(1, 4))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(blob)))
    try:
        types = read_btf(bytes(blob[:cut]))
        for structure in TYPES:
            types.offset(structure, "comm")
    except NoBtf:
        pass


@pytest.mark.skipif(not OWN.exists(), reason="this kernel has no BTF: its own is not compared")
@pytest.mark.parametrize("name", ["task_struct", "list_head", "mm_struct"])
def test_offsets_are_those_that_bpftool_prints(name):
    tool = shutil.which("bpftool", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if tool is None:
        pytest.skip("no bpftool: the kernel's own BTF is not compared")
    text = subprocess.run(
        [tool, "btf", "dump", "file", OWN], capture_output=True, text=True, check=True
    ).stdout
    block = re.search(rf"^\[\d+\] STRUCT '{name}' .*\n((?:\t.*\n)*)", text, re.M)[1]
    members = re.findall(r"'(\w+)' type_id=\d+ bits_offset=(\d+)(?! bitfield_size)$", block, re.M)
    named = [(member, int(bits)) for member, bits in members if member != "(anon)"]
    types = read_btf(OWN.read_bytes())
    assert [types.offset(name, member) * 8 for member, _ in named] == [bits for _, bits in named]
