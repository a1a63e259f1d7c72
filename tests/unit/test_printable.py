r"""Names are shown as they are, and what is no letter in them as an escape."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.core.errors import CaptureError, UsageError, printable

SHOWN = {
    "/usr/bin/café": "/usr/bin/café",
    "a\x1b]0;title\x07b": r"a\x1b]0;title\x07b",
    "two\nlines\r\tof": r"two\nlines\r\tof",
    "\x9b31m": r"\x9b31m",
    "exe\u202egpj.exe": r"exe\u202egpj.exe",
    "caf\udce9": r"caf\xe9",
    "\ud800": r"\ud800",
    "\u2028\U000e0001": r"\u2028\U000e0001",
}


@pytest.mark.parametrize("text", SHOWN)
def test_what_is_no_letter_is_an_escape(text):
    assert printable(text) == SHOWN[text]


@given(st.text(st.characters()))
def test_shown_text_is_one_line_without_controls_and_shown_again_the_same(text):
    shown = printable(text)
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert len((shown + "x").splitlines()) == 1
    assert printable(shown).encode() == shown.encode()


@pytest.mark.parametrize(
    "error", [UsageError("a\nb\x1b[31m"), CaptureError("a\nb", "f", "\x1b[31m", "not \u202e known")]
)
def test_an_error_is_one_line_whatever_it_names(error):
    assert len(str(error).splitlines()) == 1
    assert not set("\x1b\u202e") & set(str(error))
