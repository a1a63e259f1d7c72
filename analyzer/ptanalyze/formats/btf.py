"""BTF, a Linux kernel's description of its own types (Documentation/bpf/btf.rst): where members are.

It may come out of a guest's memory: lengths and references are checked, no type is visited twice, and what
would take long is no BTF.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

MAGIC = struct.pack("<HBB", 0xEB9F, 1, 0)  # version 1, no flags
HEADER_BYTES = range(24, 129, 4)  # later kernels may have more after what is known
HEADER = struct.Struct("<HBBIIIII")
MOST_BYTES = 1 << 25  # Debian's kernel has 6 MiB
MOST_UNNAMED = 200  # structs without a name in one that has one; task_struct has a dozen
LONGEST_NAME = 512  # KSYM_NAME_LEN
STRUCT, UNION = 4, 5
FIXED = {1: 4, 2: 0, 3: 12, 7: 0, 8: 0, 9: 0, 10: 0, 11: 0, 12: 0, 14: 4, 16: 0, 17: 4, 18: 0}  # by kind
PER_MEMBER = {STRUCT: 12, UNION: 12, 6: 8, 13: 8, 15: 12, 19: 12}


class NoBtf(Exception):
    """What is damaged, or not there."""


@dataclass(frozen=True)
class Btf:
    """Types of a kernel.

    types  {number of a struct or union: (where its members begin, how many, whether they may be bit fields)},
           without those that have no members
    named  {name: number} of structs; of several with one name the first
    """

    blob: bytes
    strings: int
    types: dict[int, tuple[int, int, bool]]
    named: dict[bytes, int]

    def offset(self, structure: str, member: str) -> int:
        """Bytes from the beginning of a struct to a member, also one of an unnamed struct or union in it.

        NoBtf if there is no such member.
        """
        number = self.named.get(structure.encode())
        found = None if number is None else self.find(number, member.encode(), set())
        if found is None or found % 8:
            raise NoBtf(f"no {structure}.{member}")
        return found // 8

    def find(self, number: int, member: bytes, above: set[int]) -> int | None:
        """Bits to `member`."""
        if number not in self.types or number in above:
            return None
        if len(above) >= MOST_UNNAMED:
            raise NoBtf(f"type {number}: over {MOST_UNNAMED} structs without a name in one")
        above.add(number)
        for name, kind, bits in self.members(number):
            if name == member:
                return bits
            if not name and (inside := self.find(kind, member, above)) is not None:
                return bits + inside
        return None

    def members(self, number: int) -> Iterator[tuple[bytes, int, int]]:
        """Yield (name, type, offset in bits)."""
        at, count, fields = self.types[number]
        for k in range(count):
            name, kind, bits = struct.unpack_from("<III", self.blob, at + 12 * k)
            yield text(self.blob, self.strings + name), kind, bits & 0xFFFFFF if fields else bits


def text(blob: bytes, at: int) -> bytes:
    return blob[at : at + LONGEST_NAME].partition(b"\0")[0]


def size_of(head: bytes) -> int:
    """Bytes of the BTF that begins with `head`, at least 24 bytes; NoBtf if it is none."""
    magic, version, flags, length, types, types_bytes, strings, strings_bytes = HEADER.unpack_from(head)
    whole: int = length + max(types + types_bytes, strings + strings_bytes)
    known = head[: len(MAGIC)] == MAGIC and length in HEADER_BYTES
    if not known or not types_bytes or not strings_bytes or whole > MOST_BYTES:
        raise NoBtf(f"no header of BTF: {(magic, version, flags, length, whole)}")
    return whole


def read_btf(blob: bytes) -> Btf:
    """The types of a whole BTF; NoBtf if it is cut off, damaged, or of a kind that this does not know."""
    try:
        whole = size_of(blob)
        _, _, _, length, types, types_bytes, strings, _ = HEADER.unpack_from(blob)
        if whole > len(blob):
            raise NoBtf(f"cut off: {len(blob)} bytes of {whole}")
        return listed(blob[:whole], length + types, length + types + types_bytes, length + strings)
    except struct.error as error:
        raise NoBtf(f"cut off: {error}") from None


def listed(blob: bytes, at: int, end: int, strings: int) -> Btf:
    found: dict[int, tuple[int, int, bool]] = {}
    named: dict[bytes, int] = {}
    number = 0
    while at < end:
        number += 1
        name, info, _ = struct.unpack_from("<III", blob, at)
        kind, count = info >> 24 & 31, info & 0xFFFF
        at += 12
        if kind in (STRUCT, UNION) and count:
            found[number] = at, count, bool(info >> 31)
            if kind == STRUCT and name:
                named.setdefault(text(blob, strings + name), number)
        if kind not in FIXED and kind not in PER_MEMBER:
            raise NoBtf(f"type {number}: kind {kind} is not known")
        at += FIXED[kind] if kind in FIXED else PER_MEMBER[kind] * count
    if at != end:
        raise NoBtf("the last type is cut off")
    return Btf(blob, strings, found, named)
