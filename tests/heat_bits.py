"""Files of samples of accessed bits, written from plain lists."""

import numpy as np

from ptanalyze.core.snapshot import BATCHES, Heat
from ptanalyze.formats.heat import BYTE_ORDER, HEADER_DTYPE, MAGIC, RECORD_DTYPE, VERSION


def write_bits(path, samples, handling=(10**5, 10**5), within=lambda base: 0.5):
    """samples: [(ms, {(first byte of a page, its level)})], in the order of time.

    handling  ns to clear and to read, each sample
    within    the part of these that is within the window of the table at `base`
    """
    header = np.array([(MAGIC, VERSION, BYTE_ORDER, 512, RECORD_DTYPE.itemsize, b"")], HEADER_DTYPE)
    records = []
    for ms, pages in samples:
        tables = {}
        for address, level in sorted(pages):
            slot = address >> (3 + 9 * level) & 511
            table = address >> (12 + 9 * level) << (12 + 9 * level), level
            tables[table] = tables.get(table, 0) | 1 << slot
        for (base, level), bits in tables.items():
            window = ms * 10**6 + round(sum(handling) * within(base))
            records.append((base, level, window, [bits >> 64 * k & (1 << 64) - 1 for k in range(8)]))
        records.append((0, 0, 0, [ms * 10**6, *handling, 9, ms * 10**6, 0, 0, 0]))
    path.write_bytes(header.tobytes() + np.array(records, RECORD_DTYPE).tobytes())
    return path


def evenly(pages, samples=40):
    """Heat by {(address, level): share of the samples of 100 ms that found it used}, alike all the time."""
    at = sorted(pages)
    each = samples // BATCHES
    seen = np.array([[[round(pages[one] * each)]] * BATCHES for one in at], np.uint8)
    address, level = (np.array(column) for column in zip(*at, strict=True))
    return Heat(
        address.astype(np.uint64), level.astype(np.uint8), seen.reshape(-1, BATCHES, 1),
        np.full((BATCHES, 1), each), np.array([0.1]), np.zeros(1), np.zeros(len(at)),
    )  # fmt: skip
