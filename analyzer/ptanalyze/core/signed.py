"""Derived data are believed only where this user made them: a key that only this user can read signs them.

Checksums travel with a capture, and so would anything else that is kept in it.
"""

import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from .errors import CaptureError
from .own import own_directory, user_directory
from .regular import open_inside
from .unfinished import unfinished_directory

KEY, BYTES = "key", 32
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def signed(path: Path, content: bytes) -> bytes:
    """Content of the file `path`, signed for a file of that name in a directory of that name.

    Without a key the signature is empty, and nobody believes it.
    """
    key = own_key()
    return (_signature(key, path, content) if key else b"") + b"\n" + content


def content_of(path: Path, text: bytes) -> bytes | None:
    """The content that this user signed for the file `path`; None for any other text."""
    signature, _, content = text.partition(b"\n")
    key = own_key()
    return content if key and hmac.compare_digest(signature, _signature(key, path, content)) else None


def _signature(key: bytes, path: Path, content: bytes) -> bytes:
    place = os.fsencode("/".join(path.parts[-2:]))
    return hmac.digest(key, place + b"\n" + content, "sha256").hex().encode()


def own_key() -> bytes | None:
    """The user's key, made when first asked for; None without a place for it, or if others can read it."""
    directory = user_directory("XDG_STATE_HOME", ".local/state")
    if directory is None:
        return None
    with suppress(OSError, CaptureError):
        return _read(directory / KEY)
    if not own_directory(directory):
        return None
    with suppress(OSError, CaptureError):
        _make(directory)
        return _read(directory / KEY)
    return None


def _read(path: Path) -> bytes | None:
    with open_inside(path) as file:
        status, key = os.fstat(file.fileno()), file.read(BYTES + 1)
    own = status.st_uid == os.geteuid() and not status.st_mode & OTHERS
    return key if own and len(key) == BYTES else None


def _make(directory: Path) -> None:
    """A new key, whole from the moment it is there; what another process was quicker to make stays."""
    with unfinished_directory(directory, KEY) as inside:
        fd = os.open(inside / KEY, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(fd, "wb") as file:
            file.write(secrets.token_bytes(BYTES))
            file.flush()
            os.fsync(fd)
        with suppress(FileExistsError):
            os.link(inside / KEY, directory / KEY)
