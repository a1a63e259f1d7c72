"""Errors: a line that a person can act on, and an exit code.

Exit codes: 0 all well, 1 a capture failed a check, 2 wrong usage or input, 3 the data is only partial.
"""

import os
import re
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from html import escape
from math import inf
from pathlib import Path
from typing import Final

# A name that somebody may have meant.


def meant(name: str, known: Iterable[str]) -> str:
    """ "did you mean mitosis? " where a known name is near, else ""."""
    near = get_close_matches(name.lower(), [one for one in known if one != name], n=1, cutoff=0.65)
    return f"did you mean {near[0]}? " if near else ""


# Text that others wrote, as it may be shown: nothing in it steers a terminal or breaks a line.

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
    escape = f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return SHORT.get(character) or escape


NO_VALUE: Final = object()  # of a missing field
MOST_CHARACTERS = 400  # of a value in a line
LARGEST_DECIMAL = 1 << 1024  # Python writes no decimal number of over 4,300 digits


class PtanalyzeError(Exception):
    """One line: where, what, and how to fix it. Printed without a traceback."""

    exit_code = 2

    def __str__(self) -> str:
        return printable(super().__str__())


class UsageError(PtanalyzeError):
    """The command, a parameter or a machine file is wrong (exit 2)."""


EXTRAS = {"plots": ("matplotlib", "seaborn"), "report": ("itables", "jinja2", "markupsafe")}  # libraries


def uninstalled(error: ModuleNotFoundError) -> Exception:
    """UsageError with the line that installs a library of an extra; the error itself for any other module."""
    library = str(error.name).partition(".")[0]
    if not (extra := next((name for name, libraries in EXTRAS.items() if library in libraries), "")):
        return error
    python = shlex.quote(_near(Path(sys.executable)))
    if (CHECKOUT / "pyproject.toml").is_file():
        folder = shlex.quote(_near(CHECKOUT))
        make = f"make{'' if folder == '.' else f' -C {folder}'} report"
        what = f"-e {shlex.quote(f'{_near(CHECKOUT)}[{extra}]')}, or `{make}` for the checkout's own .venv"
    else:  # not our own name, which is on no index: anybody could take it there
        what = " ".join(dict.fromkeys((*EXTRAS["plots"], *EXTRAS[extra])))
    return UsageError(f"{error.name} is not installed: {python} -m pip install {what}")


class RefusedError(UsageError):
    """A policy cannot run on this capture; a comparison goes on with the others (exit 2 if none is left).

    why  what the capture lacks, and the way out
    """

    def __init__(self, why: str, policy: str = "") -> None:
        super().__init__(f"policy {policy}: {why}" if policy else why)
        self.why = why


class CaptureError(PtanalyzeError):
    """A capture file is damaged, foreign or contradicts itself (exit 1)."""

    exit_code = 1

    def __init__(self, file: object, field: str, value: object, why: str) -> None:
        super().__init__(f"{file}: {said(field, value, why)}")


class InputError(CaptureError):
    """A file beside captures, such as perf stat's output, cannot be what it was given as (exit 2)."""

    exit_code = 2


class PartialDataError(PtanalyzeError):
    """The data was read, but part of it is missing, e.g. the process ended while it was dumped (exit 3)."""

    exit_code = 3


def said(field: str, value: object, why: str) -> str:
    """ "field = value: why", or "field: why" without a value."""
    return f"{field}: {why}" if value is NO_VALUE else f"{field} = {written(value)}: {why}"


def written(value: object) -> str:
    """Text of a value, cut where it is longer than anyone reads."""
    text = hex(value) if isinstance(value, int) and abs(value) > LARGEST_DECIMAL else str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


# Numbers with their nouns, for people.


def plural(number: int, what: str, many: str = "") -> str:
    """ "1 node", "1,024 nodes"; many: where an s does not make it."""
    return f"{number:,} {what if number == 1 else many or what + 's'}"


# Whole numbers as people type them.

DIGITS = 18  # fit 64 bits; Python refuses to read some thousands


def is_whole(text: str) -> bool:
    """Whether int(text) is a number of at most DIGITS digits, without a sign."""
    return text.isdecimal() and len(text) <= DIGITS


# Settings of policies, as people type them.


def pair_of(setting: str, before: str = "--set ") -> tuple[str, str]:
    """(key, value) of KEY=VALUE or POLICY.KEY=VALUE; before: what stands before it on the command line."""
    key, equals, value = setting.partition("=")
    if not equals:
        raise UsageError(f"{before}{setting}: write KEY=VALUE")
    return key, value


def policy_of(words: str, option: str = "-p") -> tuple[str, dict[str, str]]:
    """(name, settings) of NAME or NAME:KEY=VALUE:KEY=VALUE; option: before it on the command line."""
    name, *own = words.split(":")
    return name, dict(pair_of(setting, f"{option} {name}:") for setting in own)


# Small pieces of HTML for notebooks; what others wrote is text in them, never markup.


def text(value: object) -> str:
    return escape(printable(str(value)))


def listing(title: str, rows: Mapping[str, object]) -> str:
    """A title above {what: value}."""
    cells = "".join(f"<tr><th>{text(what)}</th><td>{text(value)}</td></tr>" for what, value in rows.items())
    return f"<div><strong>{text(title)}</strong><table>{cells}</table></div>"


def lines(several: Iterable[str]) -> str:
    return "".join(f"<p>{text(line)}</p>" for line in several)


# Sizes and durations as people write and read them: "64M".

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


def parse_size(text: str) -> float | None:
    """Bytes of "64M", "64MiB", "1.5 T" or "67108864"; None for any other text, and beyond all numbers."""
    found = SIZE.fullmatch(text.strip())
    size = float(found[1]) * UNITS.get(found[2].upper(), 1) if found else float("inf")
    return None if size == float("inf") else size


def show_size(size: float) -> str:
    """ "64M" of bytes, to four digits."""
    for unit, factor in reversed(UNITS.items()):
        if size >= factor:
            return f"{size / factor:.4g}{unit}"
    return str(size)


def size_in_words(size: int) -> str:
    """Bytes for people, no digit below a hundredth: 76 KiB, 62.4 MiB, 853 MiB, 9.1 GiB."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20)):
        if size >= factor:
            number = size / factor
            return f"{number:,.{0 if number >= 99.95 else 1}f} {unit}"
    return f"{size / 1024:,.0f} KiB"


def size_as_read(size: int) -> float:
    """Bytes of the size that size_in_words writes: what policies are compared by; below 0: saved."""
    number, unit = size_in_words(abs(size)).split()
    bytes_read = float(number.replace(",", "")) * UNITS[unit[0]]
    return -bytes_read if size < 0 else bytes_read


TIMES = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1), ("ms", 1e-3))


def show_duration(seconds: float, most: float | None = None) -> str:
    """Time for people: at once, 35 ms, 2.5 s, 12 min, 3.1 h; a range, 0.35-2.5 s, 35 ms-3 h, 35 ms-never."""
    if not seconds:
        return "at once-never" if most == inf else "at once"
    end = seconds if most is None or most == inf else most
    unit, size = next((one for one in TIMES if end >= 0.9995 * one[1]), TIMES[-1])
    if most is None:
        return f"{seconds / size:.3g} {unit}"
    first, last = about(seconds / size), about(end / size)
    if most == inf:
        return f"{first} {unit}-never"
    if seconds < size / 10:
        first = show_duration(seconds, inf).removesuffix("-never").removesuffix(f" {unit}")
    return f"{last} {unit}" if first == last else f"{first}-{last} {unit}"


def about(number: float) -> str:
    """Two digits of a number for people, without an exponent up to a million: 130, 4.5, 0.06."""
    return f"{float(f'{number:.2g}'):g}"


# Data that travels with the package: machine and cost files, and the sample captures.

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = PACKAGE.parents[1]
DEFAULT_MACHINE = "vmitosis-cascade-lake"
DEFAULT_SAMPLE = "embeddings"  # whose question is placement: dumps/samples/README.md


def bundled(kind: str) -> Path:
    """Directory of `kind` ("models" or "samples"): inside an installed package, else in the checkout."""
    installed = PACKAGE / "data" / kind
    own = {"models": "models", "samples": "dumps/samples"}[kind]
    return installed if installed.is_dir() else CHECKOUT / own


# The node of what lies on none that is known; without NumPy, which a survey of the host does not load.

MOST_CPUS = 8192  # the largest NR_CPUS of x86, arch/x86/Kconfig
MOST_NODES = 1024  # MAX_NUMNODES of it
UNKNOWN_NODE = -1


# What to type for the program that runs: sudo searches no virtual environment, and not every PATH has it.

SHORT_PATH = 32  # characters


def program() -> str:
    """Name of this program as a shell finds it: its name where the PATH has it, else its path."""
    found = shutil.which("ptanalyze")
    is_found = found and os.path.realpath(found) == os.path.realpath(Path(sys.prefix, "bin", "ptanalyze"))
    return "ptanalyze" if is_found else _path()


def this_program(longest: int = SHORT_PATH) -> str:
    """Name as sudo finds it: its path, of at most `longest` characters; a longer one as the shell looks it
    up, so that commands fit 80 columns."""
    shown = _path()
    return '"$(which ptanalyze)"' if len(shown) > longest and program() == "ptanalyze" else shown


def program_of(command: str) -> str:
    """Name of the program that a shell's command starts, "" of one that was cut amid quotes."""
    try:
        return next(iter(shlex.split(command)), "").rpartition("/")[2]
    except ValueError:
        return ""


def as_root(longest: int = SHORT_PATH, *, anywhere: bool = False) -> str:
    """How whoever typed this runs this program as root: with sudo and `this_program`, unless that is root;
    anywhere: in any directory and terminal, by its whole path."""
    is_root = not os.geteuid() and "SUDO_UID" not in os.environ
    name = _path(near=False) if anywhere else program() if is_root else this_program(longest)
    return name if is_root else f"sudo {name}"


def _path(near: bool = True) -> str:
    """The program in its virtual environment, `near`: from below this directory; its name outside of one."""
    path = Path(sys.prefix, "bin", "ptanalyze")
    if sys.prefix == sys.base_prefix:
        return path.name
    return shlex.quote(_near(path) if near else str(path))


def _near(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
