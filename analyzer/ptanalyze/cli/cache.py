"""`ptanalyze cache`: list what answers keep on disk, and clear it."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import click

from ..core.errors import UsageError, program
from ..core.safe_files import NAME
from . import echo


class Kept(NamedTuple):
    """path: a file or directory that may be deleted at any time; what: for people; bytes: on disk."""

    path: Path
    what: str
    bytes: int


@click.command("cache")
@click.argument(
    "directories", nargs=-1, metavar="[DIRECTORY]...", type=click.Path(exists=True, file_okay=False)
)
@click.option("--clear", is_flag=True, help="Delete the listed caches.")
@click.option("--compile", "compiles", is_flag=True, help="Only compile the kernels of all policies.")
def command(directories: tuple[str, ...], clear: bool, compiles: bool) -> None:
    """List the caches on disk: walk streams of captures, compiled kernels. --clear deletes them.

    --compile compiles the kernels ahead of the first answer; `make` calls it.

    Each DIRECTORY is a capture or is searched for captures. Default: the current directory. The streams of a
    capture take up to three times the size of its trace. Deleted data are recomputed when next needed;
    recorded data are never touched.

    \b
    Examples:
      ptanalyze cache
      ptanalyze cache --clear captures/
    """
    from ..show.terminal import size

    if compiles:
        return compile_now()
    found = [*of_captures(map(Path, directories or (".",))), *of_user(), *compiled()]
    for one in found:
        echo(f"{size(one.bytes):>9}  {one.path}  ({one.what})")
    total = size(sum(one.bytes for one in found))
    if not found:
        echo("nothing is kept")
    elif not clear:
        where = "".join(f" {shlex.quote(one)}" for one in directories)
        echo(f"{total:>9}  in all; {program()} cache --clear{where} deletes it")
    else:
        left = [str(one.path) for one in found if not deleted(one.path)]
        if left:
            raise UsageError(f"{left[0]}: no right to delete it; run the command as the user whose it is")
        echo(f"{total:>9}  deleted")


def compile_now() -> None:
    from ..analysis.whatif import compile_kernels

    begun = time.monotonic()
    if compile_kernels():
        echo(f"compiled kernels, once per machine: {time.monotonic() - begun:.0f} s")


def of_captures(places: Iterable[Path]) -> Iterator[Kept]:
    """What captures keep themselves, those inside captures too."""
    from ..formats.capture import KEPT
    from ..formats.record import MANIFEST

    seen = set[Path]()
    for place in places:
        for pattern in (MANIFEST, f"*/{MANIFEST}", f"*/*/{MANIFEST}"):
            for manifest in sorted(place.glob(pattern)):
                kept = manifest.parent / KEPT
                if kept.is_dir() and not kept.is_symlink() and kept.resolve() not in seen:
                    seen.add(kept.resolve())
                    yield Kept(
                        kept, f"walk streams of {manifest.parent.name or place.resolve().name}", size_of(kept)
                    )


def of_user() -> Iterator[Kept]:
    """What is kept for captures that are read-only, bundled or another user's."""
    from ..core.safe_files import user_directory

    place = user_directory("XDG_CACHE_HOME", ".cache")
    if place and place.is_dir() and not place.is_symlink():
        yield Kept(place, "walk streams of captures elsewhere", size_of(place))


def compiled() -> Iterator[Kept]:
    """Compiled kernels, a line per directory: beside the package's modules, and in Numba's directories."""
    from ..kernels.jit import SUFFIX

    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "numba")
    places = {Path(__file__).parents[1], caches, Path(os.environ.get("NUMBA_CACHE_DIR") or caches)}
    files = [file for place in sorted(places) for file in sorted(place.rglob(f"*{SUFFIX}"))]
    for folder in dict.fromkeys(file.parent for file in files):
        inside = [file for file in files if file.parent == folder]
        yield Kept(folder / f"*{SUFFIX}", "compiled kernels", sum(map(size_of, dict.fromkeys(inside))))


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a directory."""
    files = (
        [path] if path.is_file() else [Path(at) / name for at, _, names in os.walk(path) for name in names]
    )
    total = 0
    for file in files:
        with suppress(OSError):
            total += file.lstat().st_size
    return total


STREAMS = re.compile(r"[0-9a-f]{32}")  # directories of derived data, named by a digest
STREAM = re.compile(r"walks-[0-9a-f]{32}(-again-\d+)?|trace\.index")


def deleted(path: Path) -> bool:
    """Delete what is ours by name and owner below a directory, or the files of a pattern; whether it is gone.

    By handles, never through links: whoever can write to a parent may replace what was listed meanwhile.
    """
    pattern = path.name.startswith("*")
    try:
        with opened(path.parent if pattern else path) as fd:
            for name in os.listdir(fd):
                if pattern and name.endswith(path.suffix):
                    os.unlink(name, dir_fd=fd)
                elif not pattern and NAME.fullmatch(name):
                    remove(name, fd)
                elif not pattern and STREAMS.fullmatch(name):
                    delete_streams(name, fd)
        if not pattern:
            with suppress(OSError):  # something else is in it
                path.rmdir()
    except OSError:
        return False
    return True


@contextmanager
def opened(path: Path | str, parent: int | None = None) -> Iterator[int]:
    """Descriptor of a directory of this user; PermissionError for another's, OSError for a link."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        yield fd
    finally:
        os.close(fd)


def delete_streams(name: str, parent: int) -> None:
    with opened(name, parent) as fd:
        for inside in os.listdir(fd):
            if STREAM.fullmatch(inside) or NAME.fullmatch(inside):
                remove(inside, fd)
    with suppress(OSError):  # something else is in it
        os.rmdir(name, dir_fd=parent)


def remove(name: str, parent: int) -> None:
    """Delete a file, or a directory with all that is in it; a link itself."""
    if stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
        shutil.rmtree(name, dir_fd=parent)
    else:
        os.unlink(name, dir_fd=parent)
