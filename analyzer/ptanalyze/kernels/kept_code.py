"""Compiled code on disk: a file per key with a checksum, in a directory that nobody else can write to.

Code that is damaged, or that somebody else may have left, is as good as none.
"""

import hashlib
import inspect
import os
import pickle
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from numba.core.caching import CompileResultCacheImpl, UserWideCacheLocator
from numba.core.serialize import dumps

MAGIC = b"ptanalyze code 1"
SUM = 32  # bytes of a SHA-256
SUFFIX = ".ptcode"
OTHERS = stat.S_IWGRP | stat.S_IWOTH


def results_of(function):
    """Numba's own part for a Python function, in the first of Numba's directories that is ours alone.

    None where there is no such directory: it belongs to another user (root does not leave files there
    either), others may write to it, or we cannot.
    """
    try:
        results = CompileResultCacheImpl(function)
    except RuntimeError:
        return None
    source = inspect.getfile(function)
    for kind in CompileResultCacheImpl._locator_classes if not own(results.locator) else ():
        locator = kind.from_function(function, source)
        if locator is not None and own(locator):
            results._locator = locator
            return results
    return results if own(results.locator) else None


def own(locator):
    """Whether a directory is the user's and no other can write to it; that in the user's cache is made so."""
    folder = locator.get_cache_path()
    try:
        if isinstance(locator, UserWideCacheLocator) and os.stat(folder).st_uid == os.geteuid():
            os.chmod(folder, 0o700)
        return private(os.stat(folder))
    except OSError:
        return False


def private(status):
    return status.st_uid == os.geteuid() and not status.st_mode & OTHERS


class KeptCode:
    """The file of a key: MAGIC, the SHA-256 of what follows, the key, pickled code."""

    def __init__(self, folder, name, key):
        self.path, self.key = Path(folder) / f"{name}.{key}{SUFFIX}", key.encode()

    def there(self):
        """True if there is a file of ours; whether it is whole is known when it is loaded."""
        try:
            status = os.lstat(self.path)
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and private(status)

    def load(self):
        """What was saved, or None."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            content = file.read() if stat.S_ISREG(status.st_mode) and private(status) else b""
        head = len(MAGIC) + SUM
        whole = content[:head] == MAGIC + hashlib.sha256(content[head:]).digest()
        if not whole or not content.startswith(self.key, head):
            return None
        return pickle.loads(content[head + len(self.key) :])

    def save(self, code):
        """Keep a picklable value; OSError where there is no room."""
        content = self.key + dumps(code)
        fd, name = tempfile.mkstemp(prefix=".ptcode-", dir=self.path.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(MAGIC + hashlib.sha256(content).digest() + content)
            os.replace(name, self.path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
