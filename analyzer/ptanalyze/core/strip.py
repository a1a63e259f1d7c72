"""What a recorder or an importer leaves out of a trace."""

from enum import IntEnum


class Strip(IntEnum):
    """ON: touches that change no TLB (kernels/strip.py)."""

    OFF = 0
    ON = 1
