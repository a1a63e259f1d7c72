"""Variables of the environment that other packages read and would end with a traceback."""

import os

from .whole import is_whole

NUMBERS = ("COLUMNS", "LINES", "NUMBA_NUM_THREADS")
DIGITS = 5  # no terminal is wider; Rich fills lines


def forget_what_is_no_number() -> None:
    """What should be a number from 1 to 99,999 and is not counts as not set."""
    for name in NUMBERS:
        value = os.environ.get(name, "")
        if not is_whole(value) or len(value) > DIGITS or not int(value):
            os.environ.pop(name, None)
