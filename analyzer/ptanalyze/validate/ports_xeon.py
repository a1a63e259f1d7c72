"""Ports on 4-socket Xeons, all 64 hyperthreads busy: run times by the law, from counters."""

from collections.abc import Iterator

from ..core.interval import Interval
from ..cost.closed_forms import Run, counted
from ..cost.predict import Prediction, predict_placement, predict_walks
from .bench import Bench
from .leave_one_out import of_ports
from .prior import mean_run, ports
from .published import published
from .row import REPLAYED, Row, row

PAPER = published("ports")
NATIVE_LOCAL = "LP"
WHERE = "4-socket Xeons, interleaved data"
SHARED = "law, two hyperthreads share a page walker; nothing is fitted to these machines; "
COUNTED = SHARED + "from linux' counters and the walk cycles of the policy's run"
BOTH = SHARED + "from linux' and mitosis' counters and the walk cycles of the policy's run"
ALONE = SHARED + "from linux' counters alone, 3 of 4 table reads remote, taken"


def policies(bench: Bench) -> Iterator[Row]:
    """Cycles of linux over those of a policy with replicas, means of five runs."""
    for workload, repeats in ports().items():
        run = {policy: mean_run(of) for policy, of in repeats.items()}
        law = of_ports(workload, run["linux"])
        one, two = law(), law(run["mitosis"], NATIVE_LOCAL)
        alone = predict_placement(one, NATIVE_LOCAL)
        yield beside(workload, "mitosis", "linux", run, alone, ALONE)
        for policy in ("mitosis", "hydra", "wasp"):
            walk = counted(run[policy].walk, "run: walk cycles")
            yield beside(workload, policy, "linux, walks", run, predict_walks(one, walk), COUNTED)
            if policy != "mitosis":
                yield beside(workload, policy, "linux, mitosis, walks", run, predict_walks(two, walk), BOTH)


def beside(workload: str, policy: str, known: str, run: dict[str, Run], found: Prediction, note: str) -> Row:
    """Row of a policy's speed-up in cycles."""
    linux = counted(run["linux"].cycles, "run: cycles")
    low, middle, high = counted(found.cycles, "prediction: cycles")
    ours = Interval(linux / high, linux / middle, linux / low)
    title = f"{workload}: speed-up of {policy} in cycles, from {known}"
    name = f"xeon-{workload}-{policy}-{known}".replace(", ", "-")
    value = linux / counted(run[policy].cycles, "run: cycles")
    return row(PAPER.measured(name, WHERE, title, "x", value), ours, REPLAYED, note)
