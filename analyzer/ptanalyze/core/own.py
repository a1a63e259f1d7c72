"""Directories of the user's own, and which they are where nobody says so."""

import os
import stat
from pathlib import Path


def own_directory(directory: Path) -> bool:
    """Whether this is a directory of the user's that can be written to; made (0700) if it is not there.

    Root makes none in a directory of another user, whose home it may have kept.
    """
    try:
        there = next(path for path in (directory, *directory.parents) if path.exists())
        if os.geteuid() or os.stat(there).st_uid == 0:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return is_own(directory) and os.access(directory, os.W_OK | os.X_OK)
    except OSError:
        return False


def is_own(directory: Path) -> bool:
    """Whether it is a directory of the user's, no link, to which no others can write."""
    about = os.lstat(directory)
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & stat.S_IWOTH


def user_directory(variable: str, in_home: str) -> Path | None:
    """Where a user's files of a kind are: `variable`/ptanalyze, else in the home; None without a home."""
    try:
        root = os.environ.get(variable) or Path.home() / in_home
    except RuntimeError:
        return None
    return Path(root) / "ptanalyze"
