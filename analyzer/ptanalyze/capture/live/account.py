"""Whom a recorded program runs as (`--user`), and the room in which its tracer may write."""

import os
import pwd
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import UsageError, is_whole
from ...formats.atomic import take_over

ROOM = ".traced"
CAN_READ = 'for f do test -r "$f" || { printf %s "$f"; exit 1; }; done'


@dataclass(frozen=True)
class Account:
    """A user: uid, gid, supplementary groups, name and home directory."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    def popen(self) -> dict[str, Any]:
        """Arguments of Popen that start a program as this user, in its own HOME."""
        mine = {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}
        return {
            "user": self.uid,
            "group": self.gid,
            "extra_groups": self.groups,
            "env": os.environ | mine,
        }

    def must_read(self, paths: Iterable[Path | str]) -> None:
        """UsageError that names the first path which this user cannot reach or read."""
        names = [os.path.abspath(path) for path in paths]
        how = {key: value for key, value in self.popen().items() if key != "env"}
        done = subprocess.run(
            ["/bin/sh", "-c", CAN_READ, "sh", *names], **how, cwd="/", capture_output=True, check=False
        )
        if done.returncode:
            name = os.fsdecode(done.stdout) or names[0]
            raise UsageError(
                f"--user {self.name}: {name} is out of this user's reach; give it and its directories "
                "read permission, or work in a directory where the user may"
            )


def account(name: str) -> Account | None:
    """Account of a user by name or number; None for ourselves. UsageError without such a user, or root."""
    try:
        entry = pwd.getpwuid(int(name)) if is_whole(name) else pwd.getpwnam(name)
    except (KeyError, OverflowError):
        raise UsageError(f"--user {name}: no such user") from None
    if entry.pw_uid == os.geteuid():
        return None
    if os.geteuid():
        raise UsageError(f"--user {name}: only root can run a program as somebody else; use sudo")
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir)


def room(directory: Path, user: Account | None) -> Path:
    """Where the tracer writes: `directory`, or a room in it that is `user`'s, who may write nowhere else."""
    if user is None:
        return directory
    inside = directory / ROOM
    inside.mkdir(mode=0o700)
    os.chown(inside, user.uid, user.gid)
    directory.chmod(0o711)
    user.must_read([inside])
    return inside


def leave_room(directory: Path, user: Account | None) -> None:
    """Move the traces that `user`'s tracer wrote to `directory`, ours again."""
    if user is None:
        return
    inside = directory / ROOM
    directory.chmod(0o700)
    os.chown(inside, os.geteuid(), os.getegid())
    for path in inside.glob("*.ptt"):
        take_over(path, user.uid)
        path.rename(directory / path.name)
    for path in inside.iterdir():
        path.unlink()
    inside.rmdir()
