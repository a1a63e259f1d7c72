"""A guest's physical memory, read through its VMM: memory slots and /proc/PID/mem. Never written."""

import os
from bisect import bisect_right
from collections.abc import Iterable
from typing import Self

from ...core.errors import UsageError
from ...formats.vm_file import Slot
from .process import Process


class GuestMemory:
    """read(gpa, n): bytes, or None where no slot holds all of them or the VMM has nothing there.

    Memory of confidential guests (SEV, TDX) is not mapped in the VMM, or is ciphertext: None, or no tables.
    """

    def __init__(self, process: Process, slots: Iterable[Slot]) -> None:
        """UsageError if the VMM's memory cannot be opened."""
        self.slots = sorted((slot.gpa, slot.gpa + slot.bytes, slot.hva) for slot in slots if slot.space == 0)
        self.starts = [start for start, _, _ in self.slots]
        try:
            self.file = os.open(process.proc / "mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(
                f"/proc/{process.pid}/mem: {error.strerror}; is PID {process.pid} the VMM, are you root, "
                "and is kernel.yama.ptrace_scope below 3?"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.file)

    def read(self, gpa: int, n: int) -> bytes | None:
        at = bisect_right(self.starts, gpa) - 1
        if at < 0:
            return None
        start, end, hva = self.slots[at]
        if gpa + n > end:
            return None
        try:
            content = os.pread(self.file, n, hva + gpa - start)
        except (OSError, OverflowError):
            return None
        return content if len(content) == n else None
