"""Parameters of a synthetic capture, as a user gives them; plan.py turns them into numbers."""

from dataclasses import asdict, dataclass
from typing import Any

from ...core.errors import UsageError, parse_size, show_size
from ...core.snapshot import MOST_SCALED

PAGE = 4096
LEAST, MOST = 2 << 20, 4 << 40
GUESTS = ("native", "visible", "oblivious")
INITS = ("parallel", "single")
MAPPERS = ("main", "threads")


@dataclass(frozen=True)
class Parameters:
    """Sizes in bytes, shares in 0..1; None: left to the model (plan.py says how).

    placement, host_placement  "first-touch", "interleave" or "bind:NODE"
    size      None: as the pattern's graph has
    pattern   "uniform", "zipf:S", "sequential", "once", "once:THREAD", or a shape of shapes.py: "pr:kron27"
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
    size = parse_size(text)
    if not size or size % PAGE:
        raise UsageError(f"{option} {text}: give whole 4 KiB pages as in 64M, 16G or 1.5T")
    return int(size)


def check_ranges(asked: Parameters) -> None:
    """UsageError, naming the option and what it allows, for the first value out of range."""
    shares = {name: getattr(asked, name) for name in ("fragmentation", "thp", "host_thp", "writes")}
    for name, value in shares.items():
        if value is not None and not 0 <= value <= 1:
            raise refused(name, value, "a share, 0 to 1")
    counts = {
        "nodes": (1, 60),
        "threads": (1, 256),
        "accesses": (1, 1 << 40),
        "mprotect_every": (1, 1 << 40),
        "munmap_every": (1, 1 << 40),
        "seed": (0, (1 << 32) - 1),
        "scale": (1, MOST_SCALED),
    }
    for name, (low, high) in counts.items():
        value = getattr(asked, name)
        if value is not None and not low <= value <= high:
            raise refused(name, value, f"{low} to {high}")
    words = {"levels": (4, 5), "guest": GUESTS, "mapped_by": MAPPERS, "init": INITS}
    for name, choices in words.items():
        if getattr(asked, name) not in choices:
            raise refused(name, getattr(asked, name), f"one of {', '.join(map(str, choices))}")
    size = asked.size or 0
    if not LEAST <= size <= MOST or size % PAGE:
        raise refused("size", show_size(size), f"{show_size(LEAST)} to {show_size(MOST)}, whole pages")
    for name, most in (("instructions_per_access", 1e6), ("rate", 1e12)):
        if not 0 < getattr(asked, name) <= most:
            raise refused(name, getattr(asked, name), f"above 0, at most {most:g}")
    if asked.guest == "native" and (asked.host_placement is not None or asked.host_thp is not None):
        name = "host_placement" if asked.host_placement is not None else "host_thp"
        raise refused(name, getattr(asked, name), "needs a VM: --guest visible or --guest oblivious")


def refused(name: str, value: object, allowed: str) -> UsageError:
    return UsageError(f"--{name.replace('_', '-')} {value}: {allowed}")
