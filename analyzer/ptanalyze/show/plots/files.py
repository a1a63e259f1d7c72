"""A figure as a file: PNG, SVG or PDF by its name, the same bytes for the same figure."""

import os
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from ...formats.atomic import atomic_write, must_be_writable

ENDINGS = ("png", "svg", "pdf")
SETTINGS: dict[Any, Any] = {"svg.hashsalt": "ptanalyze", "svg.fonttype": "none", "pdf.fonttype": 42}
NO_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
DPI = 160


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write FILE.png, FILE.svg or FILE.pdf, whole or not at all, with the permissions of the umask.

    A plot shows no physical address, so unlike a capture it need not be its owner's alone.
    """
    must_be_writable(path, *ENDINGS)
    ending = Path(path).suffix.removeprefix(".").lower()
    with matplotlib.rc_context(SETTINGS), atomic_write(Path(path), given=True) as file:
        figure.savefig(file, format=ending, dpi=DPI, metadata=NO_DATE[ending])
        os.fchmod(file.fileno(), 0o666 & ~umask())


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
