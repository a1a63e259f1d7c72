"""Parameters turned into numbers; contradictions are refused."""

from dataclasses import dataclass, replace

import numpy as np

from ...core.errors import is_whole
from ...kernels.synth import FIRST_TOUCH, INTERLEAVE
from .parameters import PAGE, Parameters, check_ranges, refused
from .shapes import KINDS, Shape, shape_of, size_of
from .threads import Threads, threads_of

TRACED_INIT = 4 << 20  # pages: an init phase of more is not traced unless asked for
ACCESSES = 1 << 20
RANGE = 16  # pages that an mprotect or munmap of the access phase covers
PLACEMENTS = "first-touch, interleave, or bind:NODE"
PATTERNS = f"uniform, zipf:S (S above 0, at most 8), sequential, once, once:THREAD, {KINDS}"
WRITES = 0.3


@dataclass(frozen=True)
class Plan:
    """pages of 4 KiB in `regions` of 2 MiB, the last of which may be a remainder of small pages.

    huge      bool[regions]  the (guest) kernel maps the region by one 2 MiB page
    policy, host_policy      FIRST_TOUCH, INTERLEAVE or a node (kernels/synth.py)
    anywhere  share of accesses that do not keep to the thread's own part
    pattern   its name; exponent  of zipf, else 0; shape  of patterns that say what the dataset holds
    writes    share of accesses that write, but for shapes
    active    threads that take part in the access phase
    move      (number of accesses before it, source, target) or None
    data      (number of accesses before it, pages per million accesses) or None
    """

    asked: Parameters
    pages: int
    huge: np.ndarray
    threads: Threads
    policy: int
    host_policy: int
    anywhere: float
    pattern: str
    exponent: float
    active: tuple[int, ...]
    accesses: int
    init_traced: bool
    move: tuple[int, int, int] | None
    data: tuple[int, float] | None
    shape: Shape | None
    writes: float

    @property
    def regions(self) -> int:
        return len(self.huge)

    @property
    def nested(self) -> bool:
        return self.asked.guest != "native"

    def rng(self, *stream: int) -> np.random.Generator:
        """A NumPy generator of its own for each purpose, so that no option shifts the others."""
        return np.random.default_rng([self.asked.seed, *stream])


def plan(asked: Parameters) -> Plan:
    """Plan of Parameters; UsageError naming option, value and the allowed values."""
    shape = shape_of(asked.pattern)
    size = size_of(shape, asked.pattern, asked.size)
    asked = replace(asked, size=size)
    check_ranges(asked)
    pages = size // PAGE
    count = asked.nodes if asked.threads is None else asked.threads
    move = moved_threads(asked)
    threads = threads_of(asked, count, pages, move)
    if asked.guest == "oblivious" and asked.placement not in ("first-touch", "bind:0"):
        allowed = "the guest sees one node; say where the host puts its memory with --host-placement"
        raise refused("placement", asked.placement, allowed)
    pattern, exponent, only = (shape.kind, 0.0, None) if shape else pattern_of(asked, count)
    active = tuple(range(count)) if only is None else (only,)
    anywhere = sharing_of(asked, pattern, only)
    if shape:
        check_shape(asked)
    accesses = accesses_of(asked, pattern, only, threads, anywhere)
    policy = policy_of("placement", asked.placement, asked.nodes)
    traced = pages <= TRACED_INIT if asked.init_trace is None else asked.init_trace
    host_policy = policy_of("host_placement", asked.host_placement or "first-touch", asked.nodes)
    made = Plan(
        asked, pages, huge_regions(asked, pages), threads, 0 if asked.guest == "oblivious" else policy,
        host_policy, anywhere, pattern, exponent, active, accesses, traced,
        move and (int(move[2] * accesses), *move[:2]), moved_data(asked, accesses), shape,
        WRITES if asked.writes is None else asked.writes,
    )  # fmt: skip
    if asked.munmap_every is not None and made.huge[: pages >> 9].all():
        raise refused("munmap_every", asked.munmap_every, "--thp leaves no 4 KiB pages to unmap")
    return made


def huge_regions(asked: Parameters, pages: int) -> np.ndarray:
    """bool[R]: each whole 2 MiB region with probability --thp; a remainder stays small."""
    draws = np.random.default_rng([asked.seed, 1]).random((pages + 511) >> 9)
    draws[pages >> 9 :] = 1
    return draws < asked.thp


def policy_of(name: str, text: str, nodes: int) -> int:
    if text == "first-touch":
        return FIRST_TOUCH
    if text == "interleave":
        return INTERLEAVE
    bind, _, node = text.partition(":")
    if bind != "bind" or not is_whole(node) or int(node) >= nodes:
        raise refused(name, text, f"{PLACEMENTS}, NODE of 0..{nodes - 1}")
    return int(node)


def pattern_of(asked: Parameters, threads: int) -> tuple[str, float, int | None]:
    """(name, zipf's exponent or 0, the only thread of once or None: every thread)."""
    name, _, argument = asked.pattern.partition(":")
    try:
        if asked.pattern in ("uniform", "sequential", "once"):
            return name, 0.0, None
        if name == "zipf" and 0 < float(argument) <= 8:
            return name, float(argument), None
        if name == "once" and 0 <= int(argument) < threads:
            return name, 0.0, int(argument)
    except ValueError:
        pass
    raise refused("pattern", asked.pattern, f"{PATTERNS}, THREAD of 0..{threads - 1}")


def check_shape(asked: Parameters) -> None:
    """UsageError for what a shape says itself."""
    if asked.sharing != "shared":
        raise refused(
            "sharing", asked.sharing, f"shared with --pattern {asked.pattern}, which shares its data"
        )
    if asked.writes is not None:
        raise refused(
            "writes", asked.writes, f"leave it out: --pattern {asked.pattern} has writes of its own"
        )


def sharing_of(asked: Parameters, pattern: str, thread: int | None) -> float:
    """Share of accesses that go anywhere. A lone thread of `once` goes everywhere."""
    if asked.sharing in ("shared", "private"):
        if asked.sharing == "private" and thread is not None:
            raise refused("sharing", asked.sharing, "one thread is to touch every page once: shared")
        return float(asked.sharing == "shared")
    if pattern in ("sequential", "once"):
        raise refused("sharing", asked.sharing, f"shared or private with --pattern {pattern}")
    try:
        share = float(asked.sharing)
    except ValueError:
        share = -1
    if not 0 <= share <= 1:
        raise refused("sharing", asked.sharing, "shared, private, or a share, 0 to 1")
    return share


def accesses_of(
    asked: Parameters, pattern: str, thread: int | None, threads: Threads, anywhere: float
) -> int:
    """Number of accesses; `once` fixes it: all pages per thread, or each thread's own."""
    if pattern != "once":
        return ACCESSES if asked.accesses is None else asked.accesses
    if asked.accesses is not None:
        raise refused("accesses", asked.accesses, "--pattern once makes as many as there are pages")
    pages = int(threads.part[-1])
    return pages * len(threads) if anywhere and thread is None else pages


def moved_threads(asked: Parameters) -> tuple[int, int, float] | None:
    """(source, target, fraction) of --move T:A:B, or None."""
    if asked.move is None:
        return None
    fraction, source, target = fields("move", asked.move, "T:A:B", 3)
    if source not in range(asked.nodes) or target not in range(asked.nodes) or source == target:
        raise refused("move", asked.move, f"two different nodes of 0..{asked.nodes - 1}")
    return int(source), int(target), fraction


def moved_data(asked: Parameters, accesses: int) -> tuple[int, float] | None:
    """(accesses before, pages per million accesses) of --move-data T:RATE, or None."""
    if asked.move_data is None:
        return None
    if asked.move is None:
        raise refused("move_data", asked.move_data, "data follow threads: give --move as well")
    if asked.guest == "oblivious" and asked.host_thp:
        raise refused("move_data", asked.move_data, "not with --host-thp in an oblivious guest")
    fraction, rate = fields("move_data", asked.move_data, "T:RATE", 2)
    if not 0 < rate <= 1e6:
        raise refused("move_data", asked.move_data, "RATE above 0, at most 1e6 pages per million accesses")
    return int(fraction * accesses), rate


def fields(name: str, text: str, form: str, count: int) -> list[float]:
    """The numbers of a text like 0.5:0:1; the first is a fraction of the access phase."""
    try:
        numbers = [float(part) for part in text.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) != count or not 0 <= numbers[0] <= 1:
        raise refused(name, text, f"{form}, T a fraction of the access phase, 0 to 1")
    return numbers
