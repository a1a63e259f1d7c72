"""Members of a .zip that was cut off, so that its directory, which comes last, is gone.

Each member has a header of its own, and what is deflated says where it ends. Source: PKWARE, .ZIP File Format
Specification (APPNOTE.TXT), 4.3 and 4.4.
"""

import struct
import zipfile
import zlib
from collections.abc import Iterator
from io import RawIOBase
from os import PathLike
from typing import IO, cast

LOCAL = struct.Struct("<4s5H3I2H")
MEMBER, DIRECTORY = b"PK\3\4", b"PK\1\2"
ENCRYPTED, STREAMED = 1, 8  # flags; streamed: checksum and sizes follow the member
AFTER = (0, 12, 16, 20, 24)  # bytes that they can take
UNKNOWN_SIZE = 0xFFFFFFFF
BLOCK = 1 << 16


def members(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    """Iterate the members, each of which is to be read to its end before the next.

    Ends with EOFError where the file does. A member's `read` raises it, too, once there is nothing to return.
    BadZipFile for other files.
    """
    with open(path, "rb") as file:
        while True:
            header = file.read(LOCAL.size)
            if header[:4] == DIRECTORY:
                raise EOFError("its directory is cut off")
            if header[:4] != MEMBER[: len(header)]:
                raise zipfile.BadZipFile("File is not a zip file")
            if len(header) < LOCAL.size:
                raise EOFError("cut off before the header of a member ends")
            _, _, flags, packing, _, _, _, size, _, name, extra = LOCAL.unpack(header)
            file.seek(name + extra, 1)
            member = unpacked(file, flags, packing, size)
            yield cast("IO[bytes]", member)
            to_next(file, member, flags)


def unpacked(file: IO[bytes], flags: int, packing: int, size: int) -> "Deflated | Stored":
    if flags & ENCRYPTED:
        raise zipfile.BadZipFile("it is encrypted")
    if packing == zipfile.ZIP_DEFLATED:
        return Deflated(file)
    if packing != zipfile.ZIP_STORED:
        raise NotImplementedError("packed in another way than deflated")
    if flags & STREAMED or size == UNKNOWN_SIZE:
        raise zipfile.BadZipFile("a member that is not packed says not how long it is")
    return Stored(file, size)


def to_next(file: IO[bytes], member: "Deflated | Stored", flags: int) -> None:
    """From the end of a member to the next header."""
    end = file.tell() - len(member.unused())
    file.seek(end)
    following = file.read(AFTER[-1] + 4)
    for length in AFTER if flags & STREAMED else AFTER[:1]:
        if following[length : length + 4] in (MEMBER, DIRECTORY):
            file.seek(end + length)
            return
    raise EOFError("cut off between two members")


class Deflated(RawIOBase):
    """What is deflated from a file's position on."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.unpack = file, zlib.decompressobj(-zlib.MAX_WBITS)

    def read(self, size: int = -1) -> bytes:
        """The next `size` bytes; fewer at the end."""
        found = bytearray()
        while len(found) < size and not self.unpack.eof:
            packed = self.unpack.unconsumed_tail or self.file.read(BLOCK)
            more = self.unpack.decompress(packed, size - len(found))
            found += more
            if not packed and not more:
                if found:
                    break
                raise EOFError("cut off within a member")
        return bytes(found)

    def unused(self) -> bytes:
        return self.unpack.unused_data


class Stored(RawIOBase):
    """`size` bytes from a file's position on."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file, self.left = file, size

    def read(self, size: int = -1) -> bytes:
        """The next `size` bytes; fewer at the end."""
        found = self.file.read(min(size, self.left))
        if not found and self.left:
            raise EOFError("cut off within a member")
        self.left -= len(found)
        return found

    def unused(self) -> bytes:
        return b""
