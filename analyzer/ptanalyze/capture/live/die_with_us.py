"""Children that must not outlive us, even if we are killed."""

import ctypes
import signal
from collections.abc import Callable

PR_SET_PDEATHSIG = 1


def die_with_us() -> Callable[[], None]:
    """For subprocess's preexec_fn: the kernel kills the child when we end, however that happens. prctl(2)."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    return prepare
