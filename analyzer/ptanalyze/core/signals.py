"""Signals that ask us to end: code in C may lose the KeyboardInterrupt of one, or make it another error."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN = 0.01  # seconds after which a callback will have returned


@contextmanager
def seen_signals() -> Iterator[list[int]]:
    """Numbers of the signals of ASKED that come within the block; handlers do as before.

    What a handler raises in a callback from C is lost there: the signal then comes again, a little later.
    """
    seen: list[int] = []
    unraisable = sys.unraisablehook
    handlers = {number: signal.getsignal(number) for number in ASKED}
    ours = threading.current_thread() is threading.main_thread()  # only there Python handles them
    changed = {number: handler for number, handler in handlers.items() if ours and callable(handler)}
    for number, handler in changed.items():
        signal.signal(number, _noted(seen, handler))
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


def _noted(seen: list[int], handler: Callable[[int, FrameType | None], Any]) -> Callable[..., None]:
    def noted(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        handler(number, frame)

    return noted
