"""Whoever reads our output may stop early: `ptanalyze ... | head` is no error, and says nothing."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "arguments",
    [["policies"], ["machines", "--json"], ["machines", "--csv"], ["--help"], ["whatif", "--help"]],
)
def test_a_reader_that_has_gone_is_no_error(arguments):
    command = [sys.executable, "-m", "ptanalyze", *arguments]
    ours = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ours.stdout.close()  # before the first line
    assert (ours.stderr.read(), ours.wait()) == ("", 0)
    ours.stderr.close()


def test_a_reader_that_stops_after_a_line_is_no_error():
    ours = subprocess.Popen(
        [sys.executable, "-m", "ptanalyze", "machines", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with ours.stdout as out:
        assert out.readline() == b"{\n"
    assert (ours.stderr.read(), ours.wait()) == (b"", 0)
    ours.stderr.close()
