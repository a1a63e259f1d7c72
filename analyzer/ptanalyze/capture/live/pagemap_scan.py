"""Present ranges and huge pages by the PAGEMAP_SCAN ioctl (Linux 6.7, admin-guide/mm/pagemap.rst)."""

import ctypes
import errno
import fcntl
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

PAGEMAP_SCAN = 3 << 30 | 96 << 16 | ord("f") << 8 | 16  # _IOWR('f', 16, struct pm_scan_arg)
PAGE_IS_PRESENT = 1 << 3
PAGE_IS_HUGE = 1 << 6
REGION_DTYPE = np.dtype([("start", np.uint64), ("end", np.uint64), ("categories", np.uint64)])
REGIONS = 4096  # the most ranges per call
Range: TypeAlias = tuple[int, int, bool | None]


class Arguments(ctypes.Structure):
    """struct pm_scan_arg of include/uapi/linux/fs.h."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            *("size", "flags", "start", "end", "walk_end", "vec", "vec_len", "max_pages"),
            *("category_inverted", "category_mask", "category_anyof_mask", "return_mask"),
        )
    ]


def present_ranges(pagemap: int, start: int, end: int) -> Iterator[Range]:
    """Yield (start, end, huge) of the ranges with pages in [start, end), addresses in bytes, page aligned.

    `huge`: mapped by entries of 2 MiB or more; None where the kernel cannot tell, the range then has holes.
    Raises EOFError when the address space is gone.
    """
    regions = np.zeros(REGIONS, REGION_DTYPE)
    while start < end:
        arguments = Arguments(
            size=ctypes.sizeof(Arguments),
            start=start,
            end=end,
            vec=regions.ctypes.data,
            vec_len=REGIONS,
            category_mask=PAGE_IS_PRESENT,
            return_mask=PAGE_IS_PRESENT | PAGE_IS_HUGE,
        )
        try:
            count = fcntl.ioctl(pagemap, PAGEMAP_SCAN, arguments)
        except OSError as error:
            if error.errno == errno.ESRCH:
                raise EOFError("the address space is gone") from None
            if error.errno not in (errno.ENOTTY, errno.EINVAL):
                raise
            yield start, end, None
            return
        for region in regions[:count]:
            yield int(region["start"]), int(region["end"]), bool(int(region["categories"]) & PAGE_IS_HUGE)
        if count < REGIONS:
            return
        start = int(regions[-1]["end"])  # walk_end has been seen to lie before it (Linux 6.18)
