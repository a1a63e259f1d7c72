"""Disks that are soon full: needs root."""

import os
import subprocess
from contextlib import contextmanager

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")


@contextmanager
def small_disk(place, size):
    """An empty disk of `size` bytes, mounted on the new directory `place`."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)
