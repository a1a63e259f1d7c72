"""Progress of long work: a function of (done, total, what), or None."""

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias, TypeVar

from .errors import is_whole

Result = TypeVar("Result")
Progress: TypeAlias = "Callable[[int, int, str], None] | None"  # of (done, total, what)


def in_order(
    pool: Executor, function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], ahead: int
) -> Iterator[Result]:
    """Yield function(*arguments) for each, in order; the pool has `ahead` more calls under way meanwhile."""
    window = deque[Future[Result]]()
    for arguments in calls:
        window.append(pool.submit(function, *arguments))
        if len(window) > ahead:
            yield window.popleft().result()
    while window:
        yield window.popleft().result()


# CPUs that this process may use.

CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def usable_cpus(cgroups: Path = CGROUPS, own: Path = OWN_CGROUP) -> int:
    """CPUs of its affinity, or as many as the quotas of its cgroup and of those above it pay for, if fewer.

    A quota (cpu.max, Documentation/admin-guide/cgroup-v2.rst) of one and a half CPUs is two.
    """
    cpus = len(os.sched_getaffinity(0))
    try:
        path = next(line[3:].strip() for line in own.read_text().splitlines() if line.startswith("0::"))
        group = cgroups / path.lstrip("/")
        for above in (group, *group.parents):
            if not above.is_relative_to(cgroups):
                break
            limit = above / "cpu.max"
            quota, _, period = limit.read_text().partition(" ") if limit.exists() else ("max", "", "")
            if quota != "max":
                cpus = min(cpus, max(-(-int(quota) // int(period)), 1))
    except (OSError, StopIteration, ValueError):
        pass  # without cgroups of version 2 there are no quotas to know of
    return cpus


# Signals that ask us to end: code in C may lose the KeyboardInterrupt of one, or make it another error.

ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN = 0.01  # seconds after which a callback will have returned


def heeded() -> dict[int, Any]:
    """{number: handler} of the signals of ASKED that are not ignored; {} but in the main thread, the only one
    in which Python handles them."""
    main = threading.current_thread() is threading.main_thread()
    found = {int(number): signal.getsignal(number) for number in ASKED if main}
    return {number: handler for number, handler in found.items() if handler != signal.SIG_IGN}


@contextmanager
def seen_signals() -> Iterator[list[int]]:
    """Numbers of the signals of ASKED that come within the block; handlers do as before.

    What a handler raises in a callback from C is lost there: the signal then comes again, a little later.
    """
    seen: list[int] = []
    unraisable = sys.unraisablehook
    changed = {number: handler for number, handler in heeded().items() if callable(handler)}
    for number, handler in changed.items():
        signal.signal(number, partial(_noted, seen, handler))
    sys.unraisablehook = _sent_again(seen, unraisable)
    try:
        yield seen
    finally:
        sys.unraisablehook = unraisable
        for number, handler in changed.items():
            signal.signal(number, handler)


def _sent_again(seen: list[int], otherwise: Callable[[Any], Any]) -> Callable[[Any], None]:
    main = threading.main_thread().ident

    def lost(what: Any) -> None:
        if not isinstance(what.exc_value, KeyboardInterrupt) or not seen or main is None:
            otherwise(what)
            return
        later = threading.Timer(AGAIN, signal.pthread_kill, (main, seen[-1]))
        later.daemon = True
        later.start()

    return lost


def _noted(seen: list[int], handler: Callable[..., Any], number: int, frame: FrameType | None) -> None:
    seen.append(number)
    handler(number, frame)


# Variables of the environment that other packages read and would end with a traceback.

NUMBERS = ("COLUMNS", "LINES", "NUMBA_NUM_THREADS")
DIGITS = 5  # no terminal is wider; Rich fills lines


def forget_what_is_no_number() -> None:
    """What should be a number from 1 to 99,999 and is not counts as not set."""
    for name in NUMBERS:
        value = os.environ.get(name, "")
        if not is_whole(value) or len(value) > DIGITS or not int(value):
            os.environ.pop(name, None)
