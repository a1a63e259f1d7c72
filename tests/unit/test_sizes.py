"""Sizes and durations as people write them, read and shown."""

import pytest

from ptanalyze.cli.options import DURATION
from ptanalyze.core.errors import parse_size, show_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("64M", 64 << 20),
        ("64MB", 64 << 20),
        ("64 mib", 64 << 20),
        ("1.5T", 3 << 39),
        ("0", 0),
    ],
)
def test_a_size_is_a_number_with_a_binary_unit_or_without_one(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1M", "64Q", "1e3", "1%", "0x10", "inf", "nan", "9" * 400])
def test_any_other_text_is_no_size(text):
    assert parse_size(text) is None


def test_a_size_is_shown_in_its_largest_unit():
    assert [show_size(size) for size in (12, 1536, 64 << 20, 3 << 39)] == ["12", "1.5K", "64M", "1.5T"]


@pytest.mark.parametrize("size", [1 << 10, 10 << 20, 7 << 30, 4 << 40])
def test_what_is_shown_is_read_again(size):
    assert parse_size(show_size(size)) == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("2", 2), ("1.5s", 1.5), ("5m", 300), ("1h", 3600)]
)
def test_a_duration_is_a_number_with_a_unit_or_of_seconds(text, seconds):
    assert DURATION.convert(text, None, None) == seconds
