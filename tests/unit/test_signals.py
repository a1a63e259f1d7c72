"""A signal that asks us to end is heard, whatever code it comes in."""

import ctypes
import signal
import time

import pytest

from ptanalyze.core.process import ASKED, seen_signals


class Ended(KeyboardInterrupt):
    pass


@pytest.fixture(autouse=True)
def handlers():
    def end(number, frame):
        raise Ended

    before = {number: signal.signal(number, end) for number in ASKED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ASKED)
def test_a_signal_within_a_callback_of_c_code_ends_what_runs_after_it(number, capfd):
    with seen_signals() as seen, pytest.raises(Ended):
        ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(number))()
        time.sleep(60)
    assert set(seen) == {number} and not capfd.readouterr().err


def fails():
    raise ValueError("shown")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_other_errors_in_callbacks_are_shown_as_before(monkeypatch):
    shown = []
    monkeypatch.setattr("sys.unraisablehook", lambda what: shown.append(str(what.exc_value)))
    with seen_signals():
        ctypes.CFUNCTYPE(None)(fails)()
    assert shown == ["shown"]
