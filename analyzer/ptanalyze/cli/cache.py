"""`ptanalyze cache`: what answers keep on disk, and how to clear it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from ..core.errors import UsageError, program
from ..core.safe_files import is_own, user_cache
from . import echo


@click.command("cache")
@click.option("--clear", is_flag=True, help="Delete what is listed.")
@click.option("--compile", "compiles", is_flag=True, help="Only compile the kernels of all policies.")
def command(clear: bool, compiles: bool) -> None:
    """List what answers keep on disk: walk streams of captures, compiled kernels. --clear deletes it.

    --compile compiles the kernels ahead of the first answer; `make` calls it.

    Walk streams take up to three times the size of a trace each, and together at most PTANALYZE_CACHE_SIZE
    (default: 4G); the longest unused are deleted first. What is deleted is computed again when next needed;
    captures are never touched.

    \b
    Examples:
      ptanalyze cache
      ptanalyze cache --clear
    """
    from ..formats.capture import cache_directory
    from ..show.terminal import size
    from ..world.stream_store import bound, kept, trim

    if compiles:
        return compile_now()
    place, most = cache_directory(), bound()
    total = 0
    if place is not None:
        if clear:
            trim(place, -1)
        total = sum(kept(place).values())
        echo(f"{size(total):>9}  {place}  (walk streams, at most {size(most)})")
    for folder, files in compiled().items():
        taken = sum(file.lstat().st_size for file in files)
        if clear:
            delete(folder, files)
            taken = 0
        total += taken
        echo(f"{size(taken):>9}  {folder}  (compiled kernels)")
    echo(f"{size(total):>9}  in all" + ("" if clear else f"; {program()} cache --clear deletes it"))


def compile_now() -> None:
    from ..analysis.whatif import compile_kernels

    begun = time.monotonic()
    if compile_kernels():
        echo(f"compiled kernels, once per machine: {time.monotonic() - begun:.0f} s")


def compiled() -> dict[Path, list[Path]]:
    """{directory: its compiled kernels}: beside the package's modules, and in the user's cache."""
    from ..kernels.jit import SUFFIX

    named, cache = os.environ.get("NUMBA_CACHE_DIR"), user_cache()
    places = {
        Path(__file__).parents[1],
        *([cache / "code"] if cache else []),
        *([Path(named)] if named else []),
    }
    found: dict[Path, list[Path]] = {}
    for file in dict.fromkeys(file for place in sorted(places) for file in sorted(place.rglob(f"*{SUFFIX}"))):
        found.setdefault(file.parent, []).append(file)
    return found


def delete(folder: Path, files: list[Path]) -> None:
    """Delete files of this user from a directory that is this user's alone."""
    if not is_own(folder):
        raise UsageError(f"{folder}: not yours alone; run the command as the user whose it is")
    for file in files:
        file.unlink(missing_ok=True)
