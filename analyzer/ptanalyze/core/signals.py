"""Signals that ask us to end: code in C may turn the KeyboardInterrupt of one into any other error."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def seen_signals() -> Iterator[list[int]]:
    """Numbers of the signals of ASKED that come within the block; handlers do as before."""
    seen: list[int] = []
    handlers = {number: signal.getsignal(number) for number in ASKED}
    ours = threading.current_thread() is threading.main_thread()  # only there Python handles them
    changed = {number: handler for number, handler in handlers.items() if ours and callable(handler)}
    for number, handler in changed.items():
        signal.signal(number, _noted(seen, handler))
    try:
        yield seen
    finally:
        for number, handler in changed.items():
            signal.signal(number, handler)


def _noted(seen: list[int], handler: Callable[[int, FrameType | None], Any]) -> Callable[..., None]:
    def noted(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        handler(number, frame)

    return noted
