"""One call of the command line, in this process, and what is wrong with how it ended."""

import sys
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import NamedTuple

from hostile import HARM
from ptanalyze.cli import run

CODES = (0, 1, 2, 3)


class Ended(NamedTuple):
    """code: the exit code; wrong: "" or what is wrong and where; detail: of it."""

    code: int | None
    wrong: str = ""
    detail: str = ""


def attempt(arguments):
    """Ended of `ptanalyze` with these arguments: nothing wrong is a documented exit code and clean lines."""
    out, err = (TextIOWrapper(BytesIO(), "utf-8", write_through=True) for _ in range(2))
    err = TextIOWrapper(err.detach(), "utf-8", "backslashreplace", write_through=True)  # as sys.stderr
    with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            code = run(arguments)
        except Exception as error:
            return Ended(None, signature(error), f"{error}"[:200])
    printed, said = (stream.buffer.getvalue().decode() for stream in (out, err))
    if code not in CODES:
        return Ended(code, f"exit code {code}")
    if HARM & set(printed + said) or any(ord(one) < 32 and one not in "\n\t" for one in printed + said):
        return Ended(code, f"control characters from {arguments[0]}", said[:200])
    if "Warning" in said or "Traceback" in said:
        return Ended(code, f"a warning from {arguments[0]}", said[:300])
    return Ended(code)


def signature(error):
    """Type and place of an exception: the last line of ours that it went through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/ptanalyze/" in frame.filename] or frames
    return f"{type(error).__name__} in {Path(ours[-1].filename).name}, {ours[-1].name}"


def shown(arguments):
    return " ".join(map(repr, arguments)).encode(sys.getdefaultencoding(), "backslashreplace").decode()
