"""The recorded VMs of tests/data/vm_small, unpacked and joined."""

import tarfile
from pathlib import Path

from ptanalyze.capture.vm.join import join

DATA = Path(__file__).parent / "data" / "vm_small"
NAMES = ("visible-bound", "visible-interleaved", "oblivious-interleaved-thp")


def unpack(name, directory):
    """Directory with host/, guest/ and touch.log of a recorded VM."""
    with tarfile.open(DATA / f"{name}.tar.xz") as archive:
        archive.extractall(directory / name, filter="data")
    return directory / name


def joined(name, directory):
    """(capture directory, Fit) of a recorded VM."""
    place = unpack(name, directory)
    return place / "vm", join(place / "host", place / "guest", place / "vm")
