"""Tests that only root can run; as another user CI fails in them instead of skipping them."""

import os

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0 and not os.environ.get("CI"), reason="needs root")
