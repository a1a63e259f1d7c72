"""Readers of files into nouns, and writers of nouns to files."""

from ..core.lazy import attach

API, __getattr__ = attach(__name__, __file__)
__all__ = list(API)
