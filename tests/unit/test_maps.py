"""/proc/PID/maps as VMAs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.core.errors import CaptureError, PtanalyzeError
from ptanalyze.formats.snapshot import format_maps, parse_maps

LINE = (
    "7f0000000000-7f0000002000 r-xs 00001000 fe:00 42                         /lib/a b\\012c.so (deleted)\n"
)


def test_one_line_gives_addresses_protection_sharing_and_name():
    vmas, names = parse_maps(LINE)
    assert vmas[0].tolist() == (0x7F0000000000, 0x7F0000002000, 5, True, False)
    assert names == ("/lib/a b\\012c.so (deleted)",)


def test_our_own_maps_parse_and_are_in_order():
    vmas, names = parse_maps(Path("/proc/self/maps").read_bytes())
    assert len(vmas) == len(names) and "[stack]" in names
    assert (vmas["end"][:-1] <= vmas["start"][1:]).all()


def test_no_vmas_at_all_is_no_error():
    vmas, names = parse_maps(b"")
    assert len(vmas) == 0 and names == ()


@pytest.mark.parametrize(
    "text",
    [
        LINE[:-1],
        LINE.replace("r-xs", "rwxq"),
        LINE.replace("-7f0000002000", "-7f0000000000"),
        LINE.replace("7f0000002000", "7f0000002001"),
        LINE + LINE,
        "# no maps\n",
        "\n",
    ],
)
def test_what_is_no_maps_file_is_refused_with_its_line(text):
    with pytest.raises(CaptureError, match="maps: line"):
        parse_maps(text)


@given(st.binary(max_size=200))
def test_any_bytes_parse_or_are_refused_in_one_line(data):
    try:
        parse_maps(data)
    except PtanalyzeError as error:
        assert "\n" not in str(error)


@given(
    st.lists(
        st.tuples(st.integers(1, 1 << 20), st.integers(1, 50), st.integers(0, 7), st.booleans()), max_size=8
    )
)
def test_formatted_vmas_parse_as_they_were(rows):
    at, lines = 0, []
    for gap, pages, prot, shared in rows:
        start = at + gap * 4096
        at = start + pages * 4096
        flags = "".join(c if prot >> i & 1 else "-" for i, c in enumerate("rwx")) + ("s" if shared else "p")
        lines.append(f"{start:x}-{at:x} {flags} 00000000 00:00 0\n")
    vmas, names = parse_maps("".join(lines))
    assert format_maps(vmas, names) == "".join(lines)
