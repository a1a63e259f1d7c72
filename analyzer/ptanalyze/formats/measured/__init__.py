"""Files of what was measured: latencies, counters, calibrations."""

from ...core.lazy import attach

API, __getattr__ = attach(__name__, __file__)
__all__ = list(API)
