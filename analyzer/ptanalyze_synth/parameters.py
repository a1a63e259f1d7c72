"""Parameters of a synthetic capture, as a user gives them; plan.py turns them into numbers."""

from dataclasses import asdict, dataclass
from typing import Any

import ptanalyze as pt

PAGE = 4096


@dataclass(frozen=True)
class Parameters:
    """Sizes in bytes, shares in 0..1; None: left to the model (`plan` says how).

    placement, host_placement  "first-touch", "interleave" or "bind:NODE"
    size      None: as the pattern's graph has
    pattern   "uniform", "zipf:S", "sequential", "once", "once:THREAD", or a Shape: "pr:kron27"
    writes    share of the accesses; None: 0.3, or as the shape has
    sharing   "shared", "private", or the share of accesses that go anywhere
    move      "T:A:B"; move_data  "T:RATE"
    scale     the capture stands for a program of `scale` times its memory
    """

    size: int | None = None
    nodes: int = 4
    node_memory: int | None = None
    levels: int = 4
    guest: str = "native"
    placement: str = "first-touch"
    host_placement: str | None = None
    fragmentation: float = 0.0
    thp: float = 0.0
    host_thp: float | None = None
    threads: int | None = None
    threads_to_nodes: str = "round-robin"
    mapped_by: str = "main"
    init: str = "parallel"
    init_trace: bool | None = None
    accesses: int | None = None
    pattern: str = "uniform"
    sharing: str = "shared"
    writes: float | None = None
    mprotect_every: int | None = None
    munmap_every: int | None = None
    move: str | None = None
    move_data: str | None = None
    instructions_per_access: float = 3.0
    rate: float = 1e8
    scale: int = 1
    seed: int = 0

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def whole_pages(text: str, option: str = "--size") -> int:
    """Bytes of "64M", "16G", "1.5T": whole 4 KiB pages. UsageError for anything else."""
    size = pt.errors.parse_size(text)
    if not size or size % PAGE:
        raise pt.UsageError(f"{option} {text}: give whole 4 KiB pages as in 64M, 16G or 1.5T")
    return int(size)
