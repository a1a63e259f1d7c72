"""What captures look at on the running machine: processes, tables, nodes."""

from ...core.lazy import attach

API, __getattr__ = attach(__name__, __file__)
__all__ = list(API)
