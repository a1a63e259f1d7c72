"""Disks that are soon full: needs root."""

import subprocess
from contextlib import contextmanager


@contextmanager
def small_disk(place, size):
    """An empty disk of `size` bytes, mounted on the new directory `place`."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)
