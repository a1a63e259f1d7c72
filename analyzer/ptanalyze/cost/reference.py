"""Published measurements that come with the package (models/reference/), as a table with citations."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pandas as pd

from ..core.bundled import bundled
from ..core.errors import UsageError
from .closed_forms import Run

FILES = ("vmitosis-runs.csv", "mitosis-runs.csv")
COLUMNS = ("paper", "figure", "family", "workload", "config", "quantity", "value", "unit", "use", "note")
PORTS, FIRST_TOUCH = "ports-xeon", "ports-xeon, first touch"  # families of the runs of ports()
FAMILIES = ("thin-2D-4K", "thin-1D-4K", "native-thin")  # tables in one place
LOCAL_RUN = {"thin-2D-4K": "LL", "thin-1D-4K": "L", "native-thin": "LP-LD"}
# tables on several nodes: (run before, run with replicas)
WIDE_FAMILIES = {
    "wide-NV-4K": (("F", "FM"), ("FA", "FAM"), ("I", "IM")),
    "wide-NO-4K": (("OF", "OFMP"), ("OF", "OFMF")),
    "native-wide": (("F", "F+M"), ("F-A", "F-A+M"), ("I", "I+M")),
}
PER_CORE = {  # page walkers
    "thin-2D-4K": 2,
    "thin-1D-4K": 2,
    "wide-NV-4K": 2,
    "wide-NO-4K": 2,
    "native-thin": 1,
    "native-wide": 1,
    PORTS: 1,
    FIRST_TOUCH: 1,
}
# Remote over local latency where the runs were made: vMitosis, see its machine file; Mitosis (Achermann et
# al., ASPLOS 2020), 580 over 280 cycles. A scale only: the runs determine f (k - 1).
STRETCH = {family: 580 / 280 if family.startswith("native") else 1.9 for family in PER_CORE}
# Threads of programs whose tables are in one place: one, but for these (models/reference/README.md); two of
# theirs share each core. Programs with tables on several nodes have a thread for each CPU.
MANY_THREADS = frozenset({"graph500", "pagerank", "liblinear"})
DURATION = "dtlb_load_misses.walk_duration"
GPT = ("dtlb_load_misses.walk_pending", "dtlb_store_misses.walk_pending")


@cache
def reference() -> pd.DataFrame:
    """DataFrame of all rows: paper, figure, family, workload, config, quantity, value, unit, use, note.

    `use` of a row: fit (the law is calibrated on it), check (only compared with it) or no; `note` says why
    not. UsageError where a file is missing or has other columns.
    """
    return pd.concat([_read(bundled("models") / "reference" / name) for name in FILES], ignore_index=True)


def _read(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_csv(path, keep_default_na=False, dtype={"value": float})
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    if tuple(table.columns) != COLUMNS:
        raise UsageError(f"{path}: columns = {', '.join(table.columns)}: expected {', '.join(COLUMNS)}")
    return table


def runs(family: str, use: Iterable[str] = ("fit", "check")) -> dict[str, dict[str, Run]]:
    """{workload: {config: Run}}: the measured runs of a family, including the all-local run."""
    rows = reference()
    rows = rows[(rows.family == family) & rows.use.isin(use)]
    by_workload: dict[str, dict[str, Run]] = {}
    for (workload, config), part in rows.groupby(["workload", "config"], sort=False):
        values = dict(zip(part.quantity, part.value, strict=True))
        by_workload.setdefault(workload, {})[config] = run_from(values, many_threads(family, workload))
    return by_workload


def many_threads(family: str, workload: str) -> bool:
    """Whether a workload of a family has more than one thread."""
    return family in (*WIDE_FAMILIES, PORTS, FIRST_TOUCH) or workload.casefold() in MANY_THREADS


def threads_of(family: str, workload: str) -> float | None:
    """Busy hardware threads per core of a workload of a family; None where cycles and run time tell them."""
    if PER_CORE[family] > 1:
        return None
    return 2.0 if many_threads(family, workload) else 1.0


def run_from(values: Mapping[str, float], many: bool) -> Run:
    """Run of a configuration's {quantity: value}, of one thread or `many`; what it lacks is None."""
    cpus = None if many else 1.0
    if "walk_cycles" in values:
        return Run(values["cycles"], values["walk_cycles"], 0.0, cpus=cpus)
    gpt = sum(values[name] for name in GPT) if values.keys() >= {*GPT} else None
    return Run(values.get("cycles"), gpt, values.get("ept.walk_pending"), values.get("run_time"), cpus)


WHOLE = 0.75  # repeats that were counted whole differ by less: at most a tenth, others by a third and more
PORTS_POLICIES = ("linux", "mitosis", "hydra", "wasp")


@cache
def ports(family: str = PORTS) -> dict[str, dict[str, tuple[Run, ...]]]:
    """{workload: {policy: (Run of each repeat)}}: native, on all CPUs of 4-socket Xeons; data interleaved,
    or by first touch.

    With interleaved data `linux` has three of four table reads remote, the other policies have replicas.
    Walks of stores were not counted in all runs (0.1 % of the walk cycles where they were), so those of loads
    are taken. Repeats of which perf saw a part (cycles per second below WHOLE of the median) and workloads
    without a run under each of PORTS_POLICIES are left out.
    """
    path = bundled("models") / "reference" / "ports-xeon-runs.csv"
    try:
        table = pd.read_csv(path)
        table = table[table.interleaved_data == (family == PORTS)]
        speed = table.cycles / table.seconds
        kinds = [table.benchmark, table.policy]
        table = table[speed > WHOLE * speed.groupby(kinds).transform("median")]
        found: dict[str, dict[str, tuple[Run, ...]]] = {}
        for (workload, policy), part in table.groupby(["benchmark", "policy"], sort=False):
            found.setdefault(str(workload), {})[str(policy)] = tuple(
                Run(row["cycles"], row[DURATION], 0.0, row["seconds"]) for row in part.to_dict("records")
            )
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    return {workload: of for workload, of in found.items() if {*of} >= {*PORTS_POLICIES}}


def mean_run(repeats: Iterable[Run]) -> Run:
    """Run of the mean cycles, walk cycles and seconds of native repeats."""
    rows = [(run.cycles, run.gpt, run.seconds) for run in repeats]
    cycles, gpt, seconds = (sum(row[k] or 0.0 for row in rows) / len(rows) for k in range(3))
    return Run(cycles, gpt, 0.0, seconds)
