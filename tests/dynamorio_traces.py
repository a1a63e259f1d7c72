"""DynamoRIO's own test traces, no part of this project: whether they are read with their known numbers.

    git clone --depth 1 https://github.com/DynamoRIO/dynamorio
    python tests/dynamorio_traces.py dynamorio/clients/drcachesim/tests

Exits with 1 where a number differs.
"""

import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ptanalyze.formats.foreign.drmemtrace import (
    BLOCK,
    READ,
    RECORD,
    WRITE,
    import_drmemtrace,
    streams,
    trace_files,
)
from ptanalyze.formats.trace import read_trace

COLUMNS = ("threads", "records", "loads", "stores", "accesses by page")
KNOWN = {
    "drmemtrace.threadsig.x64.tracedir": (9, 975_332, 172_208, 100_150, 272_517),
    "drmemtrace.threadsig-core-sharded.x64.tracedir": (9, 3_993_517, 172_208, 100_150, 272_517),
    "drmemtrace.as_traced.x64.tracedir": (1, 86_217, 11_178, 4_064, 15_242),
}


def numbers(directory):
    """COLUMNS of a directory: records as they are in its files, threads and accesses as imported."""
    kinds = Counter()
    for path in trace_files(directory):
        for stream in streams(path):
            with stream as file:
                while block := file.read(BLOCK * RECORD.itemsize):
                    kinds.update(np.frombuffer(block, RECORD)["type"].tolist())
    with TemporaryDirectory() as place:
        accesses = import_drmemtrace(directory, Path(place) / "trace.ptt")
        threads = len(read_trace(Path(place) / "trace.ptt").threads)
    return threads, kinds.total(), kinds[READ], kinds[WRITE], accesses


def main(place):
    differ = 0
    for name, known in KNOWN.items():
        found = numbers(Path(place) / name)
        differ += found != known
        said = ", ".join(f"{number:,} {column}" for number, column in zip(found, COLUMNS, strict=True))
        print(f"{name}: {said}{'' if found == known else f'; expected {known}'}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
