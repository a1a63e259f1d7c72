"""A figure as a file: PNG, SVG or PDF by its name, the same bytes for the same figure."""

import os
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from ...core.errors import UsageError
from ...formats.atomic import atomic_write

ENDINGS = ("png", "svg", "pdf")
SETTINGS: dict[Any, Any] = {"svg.hashsalt": "ptanalyze", "svg.fonttype": "none", "pdf.fonttype": 42}
NO_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
DPI = 160


def ending_of(path: str | os.PathLike[str]) -> str:
    """ "png", "svg" or "pdf"; UsageError for a name that ends otherwise."""
    ending = Path(path).suffix.removeprefix(".").lower()
    if ending not in ENDINGS:
        raise UsageError(f"{path}: plots are written as {', '.join(f'FILE.{one}' for one in ENDINGS)}")
    return ending


def must_be_writable(path: str | os.PathLike[str]) -> None:
    """UsageError for another ending, or a directory that is not there: to be asked before long work."""
    ending_of(path)
    if not Path(path).parent.is_dir():
        raise UsageError(f"{path}: there is no directory {Path(path).parent}; make it first")


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write FILE.png, FILE.svg or FILE.pdf, whole or not at all, with the permissions of the umask.

    A plot shows no physical address, so unlike a capture it need not be its owner's alone.
    """
    ending = ending_of(path)
    with matplotlib.rc_context(SETTINGS), atomic_write(Path(path)) as file:
        figure.savefig(file, format=ending, dpi=DPI, metadata=NO_DATE[ending])
        os.fchmod(file.fileno(), 0o666 & ~umask())


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
