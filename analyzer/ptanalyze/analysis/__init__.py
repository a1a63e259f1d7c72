"""The records behind the questions: what a package beside the core takes beyond the tables of the API."""

from ..core.lazy import attach

API, __getattr__ = attach(__name__, __file__)
__all__ = list(API)
