"""Untrusted files: opened only if regular, reads bounded, JSON and TOML decoded; errors are one line."""

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import tomllib
import zlib
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from io import BufferedReader, FileIO
from os import PathLike
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import msgspec

from .errors import NO_VALUE, CaptureError, UsageError, meant, said, written

KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
PACKED = ".xz"
MOST_UNPACKED = 1 << 30  # bytes, as they are held in memory
MANY = 1 << 24  # bytes: more than any file of settings, of facts or of a table has
NO_LINK = "a capture holds its files itself, not links to others"


def open_inside(path: str | PathLike[str]) -> BufferedReader:
    """A file of a capture, open for reading: a regular file, no link, so that no pipe or device is read.

    Or what FILE.xz holds, in memory, if only that is there; FileNotFoundError for nothing, else CaptureError.
    """
    try:
        fd = _open(path)
    except FileNotFoundError:
        if not os.path.exists(packed := f"{path}{PACKED}"):
            raise
        held = _unpacking(packed, os.stat(packed).st_mtime_ns).result()
        fd = os.open(f"/proc/self/fd/{held.fileno()}", os.O_RDONLY | os.O_CLOEXEC)  # with a place of its own
    return open(path, "rb", opener=lambda *_: fd)  # by its name, which a memory map of it keeps


def unpack_ahead(*paths: Path) -> None:
    """Begin to unpack those that are only there as FILE.xz: on another CPU than the one that imports."""
    for path in paths:
        if not os.path.exists(path) and os.path.exists(packed := f"{path}{PACKED}"):
            _unpacking(packed, os.stat(packed).st_mtime_ns)


@lru_cache(maxsize=8)
def _unpacking(packed: str, _: int) -> "Future[FileIO]":
    """The bytes that a file packed by xz holds; a command opens each of its files several times."""
    held = Future[FileIO]()
    Thread(target=_unpack, args=(packed, held), daemon=True).start()  # no end of the process waits for it
    return held


def _unpack(packed: str, held: "Future[FileIO]") -> None:
    import lzma

    try:
        with open(packed, "rb", opener=lambda *_: _open(packed)) as file:
            stream = lzma.LZMADecompressor()
            content = stream.decompress(file.read(MOST_UNPACKED), MOST_UNPACKED + 1)
        if len(content) > MOST_UNPACKED:
            raise CaptureError(packed, "bytes", f"over {MOST_UNPACKED:,}", "unpack it first: unxz")
        if not stream.eof or stream.unused_data:
            raise lzma.LZMAError("ends early, or more follows")
        memory = os.fdopen(os.memfd_create(packed[-200:], os.MFD_CLOEXEC), "w+b", 0)
        memory.write(content)
        held.set_result(memory)
    except BaseException as error:
        damaged = CaptureError(packed, "contents", "damaged", str(error))
        held.set_exception(damaged if isinstance(error, lzma.LZMAError) else error)


def _open(path: str | PathLike[str]) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CaptureError(path, "file", "a link", NO_LINK) from None
        if error.errno == errno.ENXIO:
            raise CaptureError(path, "file", "a socket", "expected a regular file") from None
        raise
    kind = stat.S_IFMT(os.fstat(fd).st_mode)
    if kind != stat.S_IFREG:
        os.close(fd)
        raise CaptureError(path, "file", KINDS.get(kind, "no file"), "expected a regular file")
    return fd


@contextmanager
def descriptor(file: int) -> Iterator[int]:
    """An open file's number, which is closed when the block ends."""
    try:
        yield file
    finally:
        os.close(file)


def read_inside(path: str | PathLike[str], most: int = MANY) -> bytes:
    """The bytes of a file of a capture; CaptureError for more than `most`."""
    with open_inside(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise CaptureError(path, "bytes", f"{size:,}", f"more than such a file may have: {most:,}")
        return file.read(size)


def read_given(path: str | PathLike[str], most: int = MANY) -> bytes:
    """The bytes of a file, or of a pipe until its end, that a user named.

    UsageError where it cannot be read, CaptureError for more than `most` bytes.
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            os.set_blocking(file.fileno(), True)
            content = file.read(most + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}{_instead(Path(path))}") from None
    if not content and Path(path).is_fifo():  # a writer that had come before us would be waited for
        raise UsageError(f"{path}: a pipe that nobody writes to; start its writer first, or name a file")
    if len(content) > most:
        raise CaptureError(path, "bytes", f"over {most:,}", "more than such a file may have")
    return content


def _instead(path: Path) -> str:
    """What may have been meant by a file that cannot be read: standard input, or a file beside it."""
    beside = [] if path.exists() else [one.name for one in path.parent.glob(f"*{path.suffix}")]
    there = f"there are: {written(', '.join(sorted(beside)))}" * bool(beside)
    near = "/dev/stdin is standard input" if path.name == "-" else meant(path.name, beside).strip() or there
    return f"; {near}" if near else ""


# User-owned directories, with XDG defaults.


def own_directory(directory: Path) -> bool:
    """Whether this is a directory of the user, no link, to which no others can write; made (0700) if absent.

    Root makes none in a directory of another user, whose home it may have kept.
    """
    try:
        there = next(path for path in (directory, *directory.parents) if path.exists())
        if os.geteuid() or os.stat(there).st_uid == 0:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        about, ours = os.lstat(directory), os.access(directory, os.W_OK | os.X_OK)
        others = about.st_uid != os.geteuid() or about.st_mode & stat.S_IWOTH
        return stat.S_ISDIR(about.st_mode) and not others and ours
    except OSError:
        return False


def user_cache() -> Path | None:
    """$XDG_CACHE_HOME/ptanalyze, by default ~/.cache/ptanalyze; None without a home."""
    with suppress(RuntimeError):
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ptanalyze"
    return None


# Directories being filled: under a name that cannot be guessed, locked while their process lives. What killed
# ones left is not locked: the next removes it, of this boot, as locks may be a machine's, or a week old.

NAME = re.compile(r"\..*ptanalyze-[0-9a-f]{16}\.tmp", re.DOTALL)
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LONGEST = 100  # characters of the final name that an unfinished one shows


def unfinished_name(final: str) -> str:
    """A new name for what is to become `final`, hidden, as NAME."""
    return f".{final[:LONGEST]}.ptanalyze-{_boot()}{secrets.token_hex(4)}.tmp"


@cache
def _boot() -> str:
    """Eight hexadecimal digits of this boot of this machine; zeros where /proc does not tell."""
    return f"{zlib.crc32(BOOT_ID.read_bytes()):08x}" if BOOT_ID.exists() else "0" * 8


@contextmanager
def unfinished_directory(place: Path, final: str) -> Iterator[Path]:
    """A new private directory (0700) in `place`, which is gone when the block ends unless it was renamed.

    final  the name that it is to get, shown in its own
    """
    remove_unfinished(place)
    directory, lock = _new_directory(place, final)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """A private directory among temporary files, which is gone when the block ends."""
    with unfinished_directory(Path(tempfile.gettempdir()), "run") as directory:
        yield directory


def _new_directory(place: Path, final: str) -> tuple[Path, int]:
    while True:
        directory = place / unfinished_name(final)
        directory.mkdir(mode=0o700)
        with suppress(FileNotFoundError):
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if lock_unfinished(lock, directory):
                return directory, lock
            os.close(lock)


def lock_unfinished(fd: int, path: Path) -> bool:
    """Lock what was made under `path`, so that no cleanup removes it; False: already locked.

    Where a file system has no locks, nothing is ever removed.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return os.path.lexists(path)


def remove_unfinished(place: Path) -> None:
    """Remove what killed processes of this user left unfinished in a directory."""
    with suppress(OSError):
        for name in os.listdir(place):
            if NAME.fullmatch(name):
                _remove(place / name)


def _remove(path: Path) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(OSError), descriptor(os.open(path, flags)) as fd:  # somebody fills it, or removes it, too
        about = os.fstat(fd)
        gone = path.name[-20:-12] == _boot() or time.time() - about.st_mtime > 7 * 86400
        if gone and about.st_uid == os.geteuid():
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path) if path.is_dir() else path.unlink()


# CRC-32 (zlib's) of files; holes of sparse files are hashed as zeros without reading them.

POLYNOMIAL = 0xEDB88320
ONES = 0xFFFFFFFF
ONE, BYTE = 1 << 31, 1 << 23  # x^0 and x^8: the highest bit of a register is the lowest power
BLOCK = 1 << 22


def crc_of(file: BufferedReader) -> int:
    """CRC-32 of an open file, from its start."""
    fd = file.fileno()
    crc, at, size = 0, 0, os.fstat(fd).st_size
    for start, end in pieces(fd, size):
        crc = crc_of_zeros(start - at, crc)
        while start < end and (block := os.pread(fd, min(BLOCK, end - start), start)):
            crc = zlib.crc32(block, crc)
            start += len(block)
        at = start
    return crc_of_zeros(size - at, crc)


def pieces(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """(start, end) of what a file system keeps of a file; all of it where holes are not known.

    Moves the file's position: read with os.pread.
    """
    at = 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
            end = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # that is: nothing but a hole is left
                yield at, size
            return
        if start >= size:
            return
        yield start, min(end, size)
        at = end


def crc_of_zeros(count: int, crc: int = 0) -> int:
    """CRC-32 of what `crc` is of and `count` zeros behind it: times x^(8 count), by squaring."""
    power, square = ONE, BYTE
    while count:
        if count & 1:
            power = _times(power, square)
        square, count = _times(square, square), count >> 1
    return _times(power, crc ^ ONES) ^ ONES


def _times(a: int, b: int) -> int:
    """The product of two polynomials over GF(2), modulo that of CRC-32."""
    product = 0
    while a:
        if a & ONE:
            product ^= b
        a = a << 1 & ONES
        b = b >> 1 ^ (POLYNOMIAL if b & 1 else 0)
    return product


# JSON and TOML to plain values and msgspec structs.

Struct = TypeVar("Struct")

LEAST, MOST = -(1 << 63), (1 << 64) - 1  # range of signed and unsigned 64-bit integers
LONG = re.compile(rb"\d{19}")  # may be beyond that range
SHOWN = 80  # characters of a value
DEEPEST = 100  # tables within tables
WRONG = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)  # ValueErrors: TOML's, Unicode's
NAMED = (("unknown field `", "no such field"), ("missing required field `", "missing"))

BOUND = re.compile(r"Expected `(?:int|float)` ([<>]=?) (\S+)")  # of msgspec.Meta
BOUNDS = {">=": "at least", ">": "above", "<=": "at most", "<": "below"}


class Undecodable(ValueError):
    """An error in a text: the `field`, its `value` (NO_VALUE: it has none) and `why`, on one line."""

    def __init__(self, field: str, value: object, why: str) -> None:
        self.field, self.value, self.why = " ".join(field.split()), value, " ".join(why.split())
        super().__init__(said(self.field, value, self.why))


def plain_json(text: bytes, form: str = "JSON") -> Any:
    """Plain values of a JSON text; Undecodable for other text, or an integer of more than 64 bits."""
    try:
        plain = msgspec.json.decode(text)
    except WRONG as error:
        raise _not_a(form, text, error) from None
    if LONG.search(text):
        _must_fit(plain)
    return plain


def plain_toml(text: bytes) -> dict[str, Any]:
    """Plain values of a TOML text; Undecodable for other text, or an integer of more than 64 bits."""
    try:
        plain = tomllib.loads(text.decode("utf-8"))
    except WRONG as error:
        raise _not_a("TOML", text, error) from None
    _must_fit(plain)
    return plain


def json_struct(text: bytes, kind: type[Struct], form: str = "JSON") -> Struct:
    """A struct from a JSON text; Undecodable names field and value, or says it is not a `form` file."""
    try:
        struct = msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise _wrong_field(plain_json(text, form), error, text, form) from None
    except WRONG as error:
        raise _not_a(form, text, error) from None
    if LONG.search(text):
        plain_json(text, form)
    return struct


def struct_of(plain: dict[str, Any], kind: type[Struct]) -> Struct:
    """A struct from plain values; Undecodable names the field and its value."""
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise _wrong_field(plain, error, b"", "TOML") from None
    except WRONG as error:
        raise _not_a("TOML", b"", error) from None


def _not_a(form: str, text: bytes, error: Exception) -> Undecodable:
    odd = {RecursionError: "nested too deeply", UnicodeDecodeError: "its bytes are not text"}
    return Undecodable("contents", _first_line(text), f"not a {form} file: {odd.get(type(error), error)}")


def _first_line(text: bytes) -> object:
    """What a text begins with; NO_VALUE of other bytes."""
    line = text.partition(b"\n")[0][:30].decode("ascii", "replace")
    return repr(line) if line.isprintable() and line.isascii() and line else NO_VALUE


def field_and_why(error: msgspec.ValidationError) -> tuple[str, str]:
    """What msgspec says of a value: its field, "" for all of it, and what is wrong with it."""
    why, _, where = str(error).rpartition(" - at `")
    if not why:
        return "", where
    if bound := BOUND.fullmatch(why):
        why = f"must be {BOUNDS[bound[1]]} {float(bound[2]):,.13g}"
    return where.rstrip("`").removeprefix("$").lstrip("."), why


def _wrong_field(plain: object, error: msgspec.ValidationError, text: bytes, form: str) -> Undecodable:
    field, why = field_and_why(error)
    for words, instead in NAMED:
        if words in why:
            key = why.partition(words)[2].rstrip("`")
            return Undecodable(f"{field}.{key}" if field else key, NO_VALUE, instead)
    if not field:
        return Undecodable("contents", _first_line(text), f"not a {form} file: {why}")
    return Undecodable(field, _value_at(plain, field), why)


def _value_at(plain: object, field: str) -> object:
    """The value of "a.b[0]" as a text that fits on a line, NO_VALUE where there is no such place."""
    value: Any = plain
    for step in field.replace("[", ".").replace("]", "").split("."):
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (KeyError, ValueError, IndexError, TypeError):
            return NO_VALUE
    return _shown(value)


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def _must_fit(plain: object, field: str = "", depth: int = 0) -> None:
    """Undecodable for the first integer of more than 64 bits, and for tables more than DEEPEST deep."""
    if depth > DEEPEST:
        raise Undecodable("contents", NO_VALUE, "nested too deeply")
    if isinstance(plain, dict):
        for key, value in plain.items():
            _must_fit(value, f"{field}.{key}" if field else key, depth + 1)
    elif isinstance(plain, list):
        for k, value in enumerate(plain):
            _must_fit(value, f"{field}[{k}]", depth + 1)
    elif isinstance(plain, int) and not LEAST <= plain <= MOST:
        raise Undecodable(field or "contents", _shown(plain), "an integer of more than 64 bits")
