"""Files that may be packed."""

import gzip
import lzma
from os import PathLike
from pathlib import Path
from typing import IO, cast


def open_compressed(source: str | PathLike[str]) -> IO[bytes]:
    """A binary stream of a file, unpacked as the ending of its name says: .xz, .gz or neither."""
    ending = Path(source).suffix
    if ending == ".xz":
        return lzma.open(source)
    return cast("IO[bytes]", gzip.open(source) if ending == ".gz" else open(source, "rb"))
