"""`make bench` is not part of the suite: that its modules can be imported, and name what they run, is."""

from importlib import import_module
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "analyzer" / "bench"


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCH.glob("bench_*.py")))
def test_benches_are_imported(name, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH.parents[1]))
    module = import_module(f"analyzer.bench.{name}")
    assert callable(module.run) and all(hasattr(module, size) for size in module.SMALLEST)
