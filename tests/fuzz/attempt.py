"""One call, in this process, and what is wrong with how it ended."""

import sys
import time
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import NamedTuple

from captures import HARM
from ptanalyze.cli import exit_code_of, run

CODES = (0, 1, 2, 3)
BEGINNING = "ptanalyze: "  # of the last line on standard error


class Call(NamedTuple):
    """what: its name, for people; main: returns an exit code, or None for 0."""

    what: str
    main: object


class Ended(NamedTuple):
    """code: the exit code; wrong: "" or what is wrong and where; detail: of it; seconds: of CPU."""

    code: int | None
    wrong: str = ""
    detail: str = ""
    seconds: float = 0.0


def command(arguments):
    """Call of `ptanalyze` with these arguments."""
    return Call(shown(arguments), lambda: run(arguments))


def function(name, called, *arguments):
    """Call of a function whose errors are those of a command."""

    def main():
        called(*arguments)

    return Call(name, lambda: exit_code_of(main))


def attempt(call):
    """Ended of a Call: nothing wrong is a documented exit code, one line for an error, clean lines."""
    began = time.process_time()
    out, err = (TextIOWrapper(BytesIO(), "utf-8", write_through=True) for _ in range(2))
    err = TextIOWrapper(err.detach(), "utf-8", "backslashreplace", write_through=True)  # as sys.stderr
    with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            code = call.main()
        except Exception as error:
            return Ended(None, signature(error), f"{error}"[:200])
    seconds = time.process_time() - began
    written = (stream.buffer.getvalue().decode() for stream in (out, err))
    return Ended(code, *judged(call, code, *written), seconds)


def judged(call, code, printed, said):
    """(what is wrong, detail) of an exit code and what was printed."""
    name = call.what.split()[0]
    if code not in CODES:
        return f"exit code {code}", ""
    if HARM & set(printed + said) or any(ord(one) < 32 and one not in "\n\t" for one in printed + said):
        return f"control characters from {name}", said[:200]
    if "Warning" in said or "Traceback" in said:
        return f"a warning from {name}", said[:300]
    if code and said and not said.rstrip().split("\n")[-1].startswith(BEGINNING):
        return f"an error of several lines from {name}", said[:300]
    return "", ""


def signature(error):
    """Type and place of an exception: the last line of ours that it went through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/ptanalyze/" in frame.filename] or frames
    return f"{type(error).__name__} in {Path(ours[-1].filename).name}, {ours[-1].name}"


def shown(arguments):
    return " ".join(map(repr, arguments)).encode(sys.getdefaultencoding(), "backslashreplace").decode()
