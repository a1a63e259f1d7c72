"""`make bench`: every rate with the machine it was measured on, and as a ratio within the same run.

Usage: python -m analyzer.bench [NAME ...]   (default: every bench_*.py beside this file)
Each bench module has `run() -> [(what, value, unit, note)]`, and `SMALLEST`, its sizes in the suite.
"""

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


def main(names):
    here = Path(__file__).parent
    names = names or sorted(path.stem.removeprefix("bench_") for path in here.glob("bench_*.py"))
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    print(f"{cpu_model()}, {os.cpu_count()} CPUs, {system}")
    for name in names:
        rows = import_module(f".bench_{name}", __package__).run()
        print_rows(
            name,
            [
                {"what": what, "value": float(value), "unit": unit, "note": note}
                for what, value, unit, note in sorted(rows, key=lambda row: row[2] != RATIO)
            ],
        )


if __name__ == "__main__":
    main(sys.argv[1:])
