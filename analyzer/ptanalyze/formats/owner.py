"""Whose the files are that root makes: under sudo, of the user who typed it."""

import os
import stat
from pathlib import Path

from ..core.errors import UsageError, is_whole


def caller() -> tuple[int, int] | None:
    """(uid, gid) of the user behind sudo; None without sudo, or where that user is root."""
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() or not is_whole(uid) or not is_whole(gid) or uid == "0":
        return None
    return int(uid), int(gid)


def give_to_caller(directory: Path) -> None:
    """Under sudo, make a directory and the files in it the caller's; else change nothing."""
    if (to := caller()) is None:
        return
    for path in directory.rglob("*"):
        os.chown(path, *to, follow_symlinks=False)
    os.chown(directory, *to)


def take_over(path: Path, user: int) -> None:
    """Make a file ours that `user` wrote. UsageError if it is a link, or no file of that user's alone."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{path.name}: {error.strerror}; the program put something else there") from None
    try:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1 or facts.st_uid != user:
            raise UsageError(
                f"{path.name}: no plain file of user {user}; the program put something else there"
            )
        os.fchown(file, os.geteuid(), os.getegid())
    finally:
        os.close(file)
