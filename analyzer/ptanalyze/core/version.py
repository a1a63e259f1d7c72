"""The version of this package; a file of its own, as it is imported before Ctrl-C is heeded."""

__version__ = "1.0.0"
