"""Text that others wrote, as it may be shown: nothing in it steers a terminal or breaks a line."""

import re
import unicodedata
from functools import cache

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # categories of Unicode: controls, formats as bidirectional marks
SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
PLAIN = re.compile(r"[ -~]*")


def printable(text: str) -> str:
    r"""`text` on one line: control characters, line ends and bidirectional marks as escapes such as \x1b.

    A byte that is no UTF-8, which Python keeps as a surrogate, becomes \xNN.
    """
    return text if PLAIN.fullmatch(text) else "".join(map(_shown, text))


@cache
def _shown(character: str) -> str:
    if unicodedata.category(character) not in HIDDEN:
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00
    return SHORT.get(character) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )
