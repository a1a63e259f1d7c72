"""A question at many points: every combination of machine sizes, placements and policy parameters."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from ..core.errors import PtanalyzeError, UsageError, is_whole
from ..core.machine import at_latency_ratio
from ..core.options import Keywords
from ..core.version import __version__
from ..formats.capture import Capture, CaptureLike
from ..policies import Policy, has_parameter, members, parameters
from .frames import sweep_frame
from .replay import label, with_refusals
from .setup import Policies, Setup, asked_or_usual, open_replay_capture, policies_of, setup_of
from .whatif import chosen, replay_scenario

if TYPE_CHECKING:
    from distributed import Client
    from pandas import DataFrame

    from ..core.process import Progress
    from ..cost.result import Result


# A sweep in units: a point of the grid and some of its policies. Workers of a cluster replay units apart.


@dataclass(frozen=True)
class Unit:
    """A point of the grid: asked are all its policies, of which plans first to last - 1 are replayed, and
    the baseline."""

    capture: Capture
    provenance: Mapping[str, str]
    setup: Setup
    asked: Sequence[tuple[str | Policy, Mapping[str, Any]]]
    first: int
    last: int


def replayed(unit: Unit) -> tuple[list[Result], dict[str, str], int]:
    """(Results, the baseline's first, as a replay of the whole point gives them; {refused policy: why}; the
    number of the point's plans); UsageError at a worker that does not see the capture."""
    if not unit.capture.directory.is_dir():
        raise UsageError(
            f"{unit.capture.directory}: worker on {socket.gethostname()} does not see it; put the capture "
            "where all workers have it under the same name"
        )
    known = open_replay_capture(unit.capture)
    scenario = known.scenario(unit.setup)
    plans = chosen(unit.asked, scenario, unit.setup)
    mine, refused = [plans[0], *plans[unit.first : unit.last]], dict[str, str]()
    results = replay_scenario(scenario, mine, unit.setup, unit.provenance, refused, known.others(unit.setup))
    names = {label(plan, mine): label(plan, plans) for plan in mine}
    return results, {names[name]: why for name, why in refused.items()}, len(plans)


# Workers of a Dask cluster.

Work = TypeVar("Work")
Done = TypeVar("Done")
DASK = "dask:"
ANSWERS_WITHIN = 10  # seconds
PATIENCE = 2  # seconds without a unit done before one asks whether there are workers
START = "start one with `dask scheduler`, and workers with `dask worker ADDRESS --nthreads 1`"
LOST = {  # errors of futures, by name: distributed's are not imported here
    "CancelledError": "the scheduler was lost; ask again",
    "KilledWorker": "a unit was given up: each worker that had it was lost; give workers more memory, or "
    "look at their logs",
}


@contextmanager
def workers_on(on: str) -> Iterator[Client]:
    """The cluster that --on names: "dask:HOST:PORT".

    UsageError where it names nothing known, where Dask is not installed, and where no scheduler or no worker
    answers within ANSWERS_WITHIN seconds. Data go to workers as pickles, and code: only a scheduler that one
    trusts may be named.
    """
    address = on.removeprefix(DASK)
    if address == on or not address:
        raise UsageError(f"--on {on}: write dask:HOST:PORT, the address of a Dask scheduler")
    try:
        from distributed import Client
        from distributed.comm.addressing import get_address_host_port
    except ImportError:
        raise UsageError(f"--on {on}: needs Dask; pip install 'ptanalyze[dask]'") from None
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # what matters is said in one line
    address = address if "://" in address else f"tcp://{address}"
    try:
        socket.create_connection(get_address_host_port(address, strict=True), ANSWERS_WITHIN).close()
        client = Client(address, timeout=ANSWERS_WITHIN, set_as_default=False)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UsageError(f"--on {on}: no scheduler answers ({why}); {START}") from None
    try:
        if not client.nthreads():
            raise UsageError(f"--on {on}: the scheduler has no workers; {START}")
        yield client
    finally:
        client.close(timeout=ANSWERS_WITHIN)


def carried_out(
    client: Client,
    work: Callable[[Work], Done],
    units: Sequence[Work],
    progress: Progress = None,
    what: str = "units",
) -> list[Done]:
    """[work(unit)] in the order of the units; `progress` is called as they end, in whatever order.

    A unit whose worker is lost is done again by another. UsageError where the cluster is lost, where a unit
    is given up because each of its workers was lost, and where a worker lacks this version of the package.
    What `work` itself raises is raised here.
    """
    executor, done = client.get_executor(pure=False), dict[int, Done]()
    waiting = {executor.submit(done_there, work, unit, __version__): k for k, unit in enumerate(units)}
    try:
        while waiting:
            ended, _ = wait(waiting, PATIENCE, FIRST_COMPLETED)
            if not ended and not client.nthreads():
                raise UsageError(f"--on: all workers were lost; {START}")
            for future in ended:
                done[waiting.pop(future)] = future.result()  # kept, it is done again if its worker is lost
                if progress:
                    progress(len(done), len(units), what)
        return [done[k] for k in range(len(units))]
    except PtanalyzeError:
        raise
    except ModuleNotFoundError as error:
        why = f"a worker has no {error.name}; install ptanalyze {__version__} where workers run"
        raise UsageError(f"--on: {why}") from None
    except Exception as error:
        if type(error).__name__ not in LOST:
            raise
        raise UsageError(f"--on: {LOST[type(error).__name__]}") from None
    finally:
        for future in waiting:
            future.cancel()


def done_there(work: Callable[[Work], Done], unit: Work, version: str) -> Done:
    """What a worker runs; UsageError for a worker with another version of the package."""
    if version != __version__:
        raise UsageError(
            f"worker on {socket.gethostname()}: has ptanalyze {__version__}, you have {version}; numbers of "
            "two versions do not go together: install the same"
        )
    return work(unit)


# The grid.

AXES: dict[str, tuple[Any, str]] = {  # of the machine: type of the values, and what they are
    "nodes": (int, "must be a whole number"),
    "placement": (str, ""),
    "contended": (bool, "true or false"),
    "latency_ratio": (float, "must be a number, remote over local latency, such as 1.9"),
}
UNITS_PER_WORKER = 2  # so that the last unit of one is not waited for by all others


def sweep(
    capture: CaptureLike = None,
    policies: Policies = (),
    grid: Mapping[str, Iterable[Any]] | None = None,
    setup: Setup | None = None,
    *,
    on: str = "",
    **options: Unpack[Keywords],
) -> DataFrame:
    """`whatif` at every combination of a grid: a column for each of its keys, then whatif's.

    grid  {"prefetch": range(10), "nodes": [2, 4]}: nodes (the machine's), placement, contended, latency_ratio
          (remote over local DRAM latency, core.machine), or a parameter of a policy, "prefetch"
          or "hydra.prefetch"; default: Hydra's prefetch degrees, 0 to 9. A key that a policy lacks is None
          in its rows.
    on    "dask:HOST:PORT": points are replayed by the workers of that cluster, with the same results
    Other arguments as in `replay`; windows are ignored.
    """
    points = {key: list(values) for key, values in (grid or {"prefetch": range(10)}).items()}
    return sweep_frame(swept(capture, policies, points, setup_of(setup, options), on=on), list(points))


def swept(
    capture: CaptureLike,
    policies: Policies,
    grid: Mapping[str, Sequence[Any]],
    setup: Setup,
    refused: dict[str, str] | None = None,
    on: str = "",
) -> list[tuple[dict[str, Any], Result]]:
    """[({key: value}, Result)] behind `sweep`; refused: {} gets policies that the capture does not allow."""
    known = open_replay_capture(capture)
    wanted, points = points_of(asked_or_usual(policies, known.snapshot), grid, setup)
    refused = {} if refused is None else refused
    if not on:  # the walks are filtered once for all policies of a point
        cuts = [(1, 1 + len(wanted))]
        each = [Unit(known.capture, known.provenance, there, wanted, *cuts[0]) for _, there in points]
        parts = [replayed(unit) for unit in each]
    else:
        capture = Capture(known.capture.directory.resolve(), known.capture.manifest)  # nothing read of it
        with workers_on(on) as workers:
            cuts = _cuts(len(wanted), len(points), sum(workers.nthreads().values()))
            each = [
                Unit(capture, known.provenance, replace(there, progress=None), wanted, *cut)
                for _, there in points
                for cut in cuts
            ]
            parts = carried_out(workers, replayed, each, setup.progress, "units of a sweep")
    rows = []
    for k, (point, _) in enumerate(points):
        of_point = parts[k * len(cuts) : (k + 1) * len(cuts)]
        (base, *_), _, plans = of_point[0]
        results = [base, *(result for part, *_ in of_point for result in part[1:])]
        not_here = {name: why for _, part, _ in of_point for name, why in part.items()}
        refused |= not_here
        asked = len(results) - plans + len(wanted)
        rows += [(point, result) for result in with_refusals(results, not_here, asked)]
    return rows


def _cuts(policies: int, points: int, workers: int) -> list[tuple[int, int]]:
    """[(first, last)] of plans, the baseline being 0: as few pieces as keep all workers busy.

    A piece of a point filters and caches the walks of that point again, so that fewer are cheaper.
    """
    pieces = max(1, min(policies, -(-UNITS_PER_WORKER * workers // max(points, 1))))
    return list(pairwise(1 + policies * k // pieces for k in range(pieces + 1)))


def points_of(
    asked: Policies, grid: Mapping[str, Sequence[Any]], setup: Setup
) -> tuple[list[tuple[str | Policy, dict[str, Any]]], list[tuple[dict[str, Any], Setup]]]:
    """([(policy, settings)], [(machine and placement, their Setup)]) of a grid.

    grid  as of `sweep`; UsageError for a key that belongs neither to the machine nor to any policy
    """
    outer = {key: grid[key] for key in AXES if key in grid}
    inner = {key: values for key, values in grid.items() if key not in outer}
    pairs = policies_of(asked)
    wanted = [(name, {**own, **at}) for name, own in pairs for at in _points(name, inner)]
    _all_used(inner, [name for name, _ in pairs])
    points = [dict(zip(outer, values, strict=True)) for values in product(*outer.values())]
    return wanted, [(point, _there(setup, point)) for point in points]


def _there(setup: Setup, point: Mapping[str, Any]) -> Setup:
    """The Setup at a point of the grid's machine keys; UsageError for a value of another type."""
    machine, at = setup.machine, dict[str, Any]()
    for key, value in point.items():
        kind, what = AXES[key]
        try:
            at[key] = msgspec.convert(str(value), kind, strict=False)  # NumPy's numbers, too
        except msgspec.ValidationError:
            raise UsageError(f"{key} = {value}: {what}") from None
    if "nodes" in at:
        machine = machine.resized(at["nodes"])
    if "latency_ratio" in at:
        machine = at_latency_ratio(machine, at["latency_ratio"])
    contended, threads_on = at.get("contended", setup.contended), at.get("placement", setup.threads_on)
    return replace(setup, machine=machine, contended=contended, threads_on=threads_on, windows=0)


def _points(name: str | Policy, inner: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """[settings]: every combination of values of the policy's parameters."""
    own = {key: values for key, values in inner.items() if _has(name, key)}
    return [dict(zip(own, values, strict=True)) for values in product(*own.values())]


def _has(name: str | Policy, key: str) -> bool:
    return any(has_parameter(policy, key) for policy in members(name))


def _all_used(inner: Mapping[str, Sequence[Any]], names: Sequence[str | Policy]) -> None:
    for key, values in inner.items():
        if not any(_has(name, key) for name in names):
            has = sorted({p[0] for name in names for policy in members(name) for p in parameters(policy)})
            raise UsageError(
                f"--set {key}={','.join(map(str, values))}: neither {', '.join(AXES)} nor a "
                f"parameter of the policies asked for; they have: {', '.join(has) or 'none'}"
            )


def values(text: str) -> list[str]:
    """["0", "1", ...] from "0:9" (both ends), "0:8:2", "2,4,8"; values with commas: "0,1;2,3"."""
    if ";" in text:
        return [part.strip() for part in text.split(";") if part.strip()]
    texts: list[str] = []
    for part in text.split(","):
        bounds = part.strip().split(":")
        if len(bounds) in (2, 3) and all(is_whole(bound.removeprefix("-")) for bound in bounds):
            first, last, step = (*map(int, bounds), 1)[:3]
            if step < 1 or last < first:
                raise UsageError(
                    f"{part}: a range is FIRST:LAST or FIRST:LAST:STEP, upward, both ends included"
                )
            texts += map(str, range(first, last + 1, step))
        elif part.strip():
            texts.append(part.strip())
    if not texts:
        raise UsageError(f"{text!r}: no value; write 0:9, 2,4,8 or 0,1;2,3")
    return texts
