"""What a recorder or an importer leaves out of a trace."""

from enum import IntEnum


class Strip(IntEnum):
    """ON: touches that change no TLB (kernels/strip.py); L2: also most that hit in its second level
    (kernels/second.py)."""

    OFF = 0
    ON = 1
    L2 = 2
