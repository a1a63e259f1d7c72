"""CRC-32 (zlib's) of files, without reading what is not there: a hole of a sparse file is so many zeros."""

import errno
import os
import zlib
from collections.abc import Iterator
from functools import cache
from io import BufferedReader

POLYNOMIAL = 0xEDB88320
ONES = 0xFFFFFFFF
BLOCK = 1 << 22
BIT = -3  # a bit is 2^-3 bytes

Matrix = tuple[int, ...]  # over GF(2): the column for each bit of a register


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
    """CRC-32 of what `crc` is of and `count` zeros behind it; as zlib's crc32_combine, by squaring."""
    register, power = crc ^ ONES, 0
    while count >> power:
        if count >> power & 1:
            register = _times(_zeros(power), register)
        power += 1
    return register ^ ONES


@cache
def _zeros(power: int) -> Matrix:
    """What 2^power bytes of zeros do to the register."""
    if power == BIT:
        return (POLYNOMIAL, *(1 << n for n in range(31)))
    return _squared(_zeros(power - 1))


def _squared(matrix: Matrix) -> Matrix:
    return tuple(_times(matrix, column) for column in matrix)


def _times(matrix: Matrix, register: int) -> int:
    result = 0
    for column in matrix:
        if register & 1:
            result ^= column
        register >>= 1
    return result
