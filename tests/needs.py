"""Tests that need root or two CPUs, and disks that are soon full; CI fails where others skip."""

import os
import subprocess
from contextlib import contextmanager

import pytest

CI = bool(os.environ.get("CI"))
needs_root = pytest.mark.skipif(os.geteuid() != 0 and not CI, reason="needs root")


@contextmanager
def small_disk(place, size):
    """An empty disk of `size` bytes, mounted on the new directory `place`: needs root."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
