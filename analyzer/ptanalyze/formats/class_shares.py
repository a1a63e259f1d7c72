"""Shares of walks by class, Local-Local to Remote-Remote, from what `ptanalyze classify --json` printed."""

from os import PathLike
from pathlib import Path
from typing import Any

from ..core.decode import Undecodable, plain_json
from ..core.errors import CaptureError

NAMES = {
    "Local": "L",
    "Remote": "R",
    "Local-Local": "LL",
    "Local-Remote": "LR",
    "Remote-Local": "RL",
    "Remote-Remote": "RR",
}
WEIGHTS = ("walks", "4k", "leaf")  # the best first
MOST_BYTES = 1 << 24


def read_class_shares(path: str | PathLike[str]) -> str:
    """Name of a placement (cost.placement) with the shares of all sockets together, weighted by their walks.

    Where the file has no walks, leaf entries are taken. CaptureError names file, field and value.
    """
    with Path(path).open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    try:
        raw = plain_json(content[:MOST_BYTES], "classify")
    except Undecodable as error:
        raise error.of(path) from None
    if not isinstance(raw, dict) or raw.get("what") != "classify" or not isinstance(raw.get("result"), list):
        raise CaptureError(path, "what", _what(raw), "expected the output of ptanalyze classify --json")
    parts = {str(part.get("weight")): part for part in raw["result"] if isinstance(part, dict)}
    found = next((parts[weight] for weight in WEIGHTS if weight in parts), None)
    if found is None:
        raise CaptureError(path, "weight", ", ".join(parts), f"expected one of {', '.join(WEIGHTS)}")
    return _named(path, found.get("rows"))


def _named(path: str | PathLike[str], rows: Any) -> str:
    counts: dict[str, int] = {}
    for row in rows if isinstance(rows, list) else ():
        name, count = (row.get("class"), row.get("count")) if isinstance(row, dict) else (None, None)
        if not isinstance(name, str) or name not in NAMES or type(count) is not int or count < 0:
            raise CaptureError(path, "rows", str(row)[:60], "expected a class and a count")
        if row.get("group", "all") == "all":
            counts[NAMES[name]] = counts.get(NAMES[name], 0) + count
    total = sum(counts.values())
    if not total:
        raise CaptureError(path, "rows", total, "no leaf entry and no walk in it")
    return ",".join(f"{name}:{count / total:.6f}" for name, count in counts.items())


def _what(raw: Any) -> object:
    return raw.get("what") if isinstance(raw, dict) else type(raw).__name__
