"""`make bench` is not part of the suite: its modules run here with their smallest sizes."""

from importlib import import_module
from pathlib import Path

import pytest

from needs import needs_root

BENCH = Path(__file__).parents[2] / "analyzer" / "bench"


NAMES = sorted(path.stem for path in BENCH.glob("bench_*.py"))


@pytest.fixture
def smallest(monkeypatch):
    """{name: module} of all, as some use the sizes of others."""
    monkeypatch.syspath_prepend(str(BENCH.parents[1]))
    modules = {name: import_module(f"analyzer.bench.{name}") for name in NAMES}
    for module in modules.values():
        for name, value in module.SMALLEST.items():
            monkeypatch.setattr(module, name, value)
    return modules


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs_root if name == "bench_dump" else ()) for name in NAMES]
)
def test_a_bench_runs_with_its_smallest_sizes(name, smallest):
    rows = list(smallest[name].run())
    assert rows
    for what, value, unit, note in rows:
        assert all(isinstance(text, str) for text in (what, unit, note)), what
        float(value)
