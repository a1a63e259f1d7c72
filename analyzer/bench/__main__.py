"""`make bench`: every rate with the machine it was measured on, and as a ratio within the same run.

Usage: python -m analyzer.bench [--keep FILE] [--before FILE] [NAME ...]   (default: every bench_*.py here)
Each bench module has `run() -> [(what, value, unit, note)]`, and `SMALLEST`, its sizes in the suite.
"""

import argparse
import json
import os
import platform
import sys
from importlib import import_module
from pathlib import Path

from ptanalyze.show.terminal import print_rows

RATIO = "x"  # unit of what is a ratio within the run: these rows come first


def cpu_model():
    named = (line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines())
    return next((value[0].strip() for key, *value in named if key.startswith("model name")), "unknown CPU")


def main(words):
    """words: names of benches; `--keep FILE` keeps all values, `--before FILE` shows those that it kept."""
    parser = argparse.ArgumentParser(prog="python -m analyzer.bench")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--before", type=Path)
    asked, here = parser.parse_args(words), Path(__file__).parent
    before = json.loads(asked.before.read_text()) if asked.before else {}
    names = asked.names or sorted(path.stem.removeprefix("bench_") for path in here.glob("bench_*.py"))
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    print(f"{cpu_model()}, {os.cpu_count()} CPUs, {system}")
    kept = {}
    for name in names:
        rows = list(import_module(f".bench_{name}", __package__).run())
        kept |= {f"{name}: {what}": float(value) for what, value, _, _ in rows}
        print_rows(name, [shown(name, row, before) for row in sorted(rows, key=lambda row: row[2] != RATIO)])
    if asked.keep:
        asked.keep.write_text(json.dumps(kept, indent=1))


def shown(name, row, before):
    """A row as it is printed, with its value before where that was kept."""
    what, value, unit, note = row
    then = before.get(f"{name}: {what}")
    return {
        "what": what,
        **({} if then is None else {"before": then}),
        "value": float(value),
        "unit": unit,
        "note": note,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
