"""Whether files of captures are compared with their checksums when they are opened."""

from contextvars import ContextVar

TRUST: ContextVar[bool] = ContextVar("TRUST", default=False)  # True: they are not
