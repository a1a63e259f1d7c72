"""A question at many points: every combination of machine sizes, placements and policy parameters."""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from ..core.errors import PtanalyzeError, UsageError, is_whole
from ..core.machine import at_latency_ratio
from ..core.options import Keywords
from ..core.version import __version__
from ..formats.capture import Capture, CaptureLike
from ..policies import Policy, has_parameter, members, parameters
from .frames import sweep_frame
from .replay import label, with_refusals
from .setup import Policies, Setup, asked_or_usual, open_replay_capture, policies_of, setup_of
from .whatif import chosen, replay, replay_scenario

if TYPE_CHECKING:
    from distributed import Client
    from pandas import DataFrame

    from ..core.process import Progress
    from ..cost.result import Result
    from .setup import ReplayCapture


# Units of work on the workers of a Dask cluster, by the interface of concurrent.futures.

UnitOfWork = TypeVar("UnitOfWork")
Found = TypeVar("Found")
DASK = "dask:"
ANSWERS_WITHIN = 10  # seconds
PATIENCE = 2  # seconds without a unit done before one asks whether there are workers
START = "start one with `dask scheduler`, and workers with `dask worker ADDRESS --nthreads 1`"


@dataclass(frozen=True)
class Workers:
    """Who does the work.

    executor  concurrent.futures' interface; count: units that it does at a time
    left      returns how many of these there are by now
    name      as the user gave it
    """

    executor: Executor
    count: int
    left: Callable[[], int]
    name: str


@contextmanager
def workers_on(on: str) -> Iterator[Workers]:
    """The Workers that --on names: "dask:HOST:PORT".

    UsageError where it names nothing known, where Dask is not installed, and where no scheduler or no worker
    answers within ANSWERS_WITHIN seconds. Data go to workers as pickles, and code: only a scheduler that one
    trusts may be named.
    """
    address = on.removeprefix(DASK)
    if address == on or not address:
        raise UsageError(f"--on {on}: write dask:HOST:PORT, the address of a Dask scheduler")
    address = address if "://" in address else f"tcp://{address}"
    client = _client(address, on)

    def left() -> int:
        return sum(client.nthreads().values())

    try:
        if not left():
            raise UsageError(f"--on {on}: the scheduler has no workers; {START}")
        yield Workers(client.get_executor(pure=False), left(), left, on)
    finally:
        client.close(timeout=ANSWERS_WITHIN)


def _client(address: str, on: str) -> Client:
    try:
        from distributed import Client
        from distributed.comm.addressing import get_address_host_port
    except ImportError:
        raise UsageError(f"--on {on}: needs Dask; pip install 'ptanalyze[dask]'") from None
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # what matters is said in one line
    try:
        socket.create_connection(get_address_host_port(address, strict=True), ANSWERS_WITHIN).close()
        return Client(address, timeout=ANSWERS_WITHIN, set_as_default=False)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UsageError(f"--on {on}: no scheduler answers ({why}); {START}") from None


def carried_out(
    workers: Workers,
    work: Callable[[UnitOfWork], Found],
    units: Sequence[UnitOfWork],
    progress: Progress = None,
    what: str = "units",
) -> list[Found]:
    """[work(unit)] in the order of the units; `progress` is called as they end, in whatever order.

    A unit whose worker is lost is done again by another. UsageError where the cluster is lost, where a unit
    is given up because each of its workers was lost, and where a worker lacks this version of the package.
    What `work` itself raises is raised here.
    """
    waiting = {
        workers.executor.submit(done_there, work, unit, __version__): k for k, unit in enumerate(units)
    }
    found: dict[int, Found] = {}
    try:
        while waiting:
            done, _ = wait(waiting, PATIENCE, FIRST_COMPLETED)
            if not done and not workers.left():
                raise UsageError(f"--on {workers.name}: all workers were lost; {START}")
            for future in done:
                found[waiting.pop(future)] = future.result()  # kept, it is done again if its worker is lost
                if progress:
                    progress(len(found), len(units), what)
        return [found[k] for k in range(len(units))]
    except PtanalyzeError:
        raise
    except CancelledError:
        raise UsageError(f"--on {workers.name}: the scheduler was lost; ask again") from None
    except ModuleNotFoundError as error:
        why = f"a worker has no {error.name}; install ptanalyze {__version__} where workers run"
        raise UsageError(f"--on {workers.name}: {why}") from None
    except Exception as error:
        if type(error).__name__ != "KilledWorker":  # distributed's, which is not imported here
            raise
        why = "each worker that had it was lost; give workers more memory, or look at their logs"
        raise UsageError(f"--on {workers.name}: a unit was given up: {why}") from None
    finally:
        for future in waiting:
            future.cancel()


def done_there(work: Callable[[UnitOfWork], Found], unit: UnitOfWork, version: str) -> Found:
    """What a worker runs; UsageError for a worker with another version of the package."""
    if version != __version__:
        raise UsageError(
            f"worker on {socket.gethostname()}: has ptanalyze {__version__}, you have {version}; numbers of "
            "two versions do not go together: install the same"
        )
    return work(unit)


def sent(capture: Capture) -> Capture:
    """The Capture as it goes to workers: where it is and how it was sealed, nothing that was read of it.

    A worker that sees other files under that name finds that their checksums differ.
    """
    return Capture(capture.directory.resolve(), capture.manifest)


def received(capture: Capture) -> Capture:
    """Capture at a worker; UsageError where that does not see the directory."""
    if not capture.directory.is_dir():
        raise UsageError(
            f"{capture.directory}: worker on {socket.gethostname()} does not see it; put the capture where "
            "all workers have it under the same name"
        )
    return capture


# A sweep in units that workers replay apart: a point of the grid, and some of its policies.

Asked = Sequence["tuple[str | Policy, Mapping[str, Any]]"]
UNITS_PER_WORKER = 2  # so that the last unit of one is not waited for by all others


@dataclass(frozen=True)
class SweepUnit:
    """asked: all policies of the point, of which plans first to last - 1 are replayed, and the baseline."""

    capture: Capture
    provenance: Mapping[str, str]
    setup: Setup
    asked: Asked
    first: int
    last: int


@dataclass(frozen=True)
class UnitResult:
    """Results of a unit, the baseline's first; refused: {policy: why}; plans: number of the whole point's."""

    results: list[Result]
    refused: dict[str, str]
    plans: int


def swept_apart(
    known: ReplayCapture,
    points: Sequence[tuple[dict[str, Any], Setup]],
    asked: Asked,
    refused: dict[str, str],
    workers: Workers,
) -> Iterator[tuple[dict[str, Any], Result]]:
    """Yield ({key: value}, Result) as `swept` does, in the same order, replayed by workers.

    points  [(point, its Setup)]; refused: gets {policy: why}
    """
    cuts = _cuts(len(asked), len(points), workers.count)
    progress = points[0][1].progress if points else None
    capture = sent(known.capture)
    units = [
        SweepUnit(capture, known.provenance, replace(setup, progress=None), asked, first, last)
        for _, setup in points
        for first, last in cuts
    ]
    parts = carried_out(workers, replayed_unit, units, progress, "units of a sweep")
    for k, (point, _) in enumerate(points):
        of_point = parts[k * len(cuts) : (k + 1) * len(cuts)]
        for part in of_point:
            refused |= part.refused
        base, plans = of_point[0].results[0], of_point[0].plans
        results = [base, *(result for part in of_point for result in part.results[1:])]
        for result in with_refusals(results, refused, len(results) - plans + len(asked)):
            yield point, result


def _cuts(policies: int, points: int, workers: int) -> list[tuple[int, int]]:
    """[(first, last)] of plans, the baseline being 0: as few pieces as keep all workers busy.

    A piece of a point filters and caches the walks of that point again, so that fewer are cheaper.
    """
    pieces = max(1, min(policies, -(-UNITS_PER_WORKER * workers // max(points, 1))))
    bounds = [1 + policies * k // pieces for k in range(pieces + 1)]
    return list(pairwise(bounds))


def replayed_unit(unit: SweepUnit) -> UnitResult:
    """Replay a SweepUnit; each of its Results is what a replay of the whole point would give."""
    known = open_replay_capture(received(unit.capture))
    scenario = known.scenario(unit.setup)
    plans = chosen(unit.asked, scenario, unit.setup)
    mine = [plans[0], *plans[unit.first : unit.last]]
    refused: dict[str, str] = {}
    results = replay_scenario(scenario, mine, unit.setup, unit.provenance, refused, known.others(unit.setup))
    whole = {label(plan, mine): label(plan, plans) for plan in mine}
    return UnitResult(results, {whole[name]: why for name, why in refused.items()}, len(plans))


MACHINE_KEYS = ("nodes", "placement", "contended", "latency_ratio")


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
    asked = asked_or_usual(policies, known.snapshot)
    refused = {} if refused is None else refused
    wanted, points = points_of(asked, grid, setup)
    if on:
        with workers_on(on) as workers:
            return list(swept_apart(known, points, wanted, refused, workers))
    found = []
    for point, there in points:  # the walks are filtered once for all policies of a point
        replayed = replay(known.capture, wanted, there)
        refused |= replayed.refused
        found += [(point, result) for result in replayed.results]
    return found


def points_of(
    asked: Policies, grid: Mapping[str, Sequence[Any]], setup: Setup
) -> tuple[list[tuple[str | Policy, dict[str, Any]]], list[tuple[dict[str, Any], Setup]]]:
    """([(policy, settings)], [(machine and placement, their Setup)]) of a grid.

    grid  as of `sweep`; UsageError for a key that belongs neither to the machine nor to any policy
    """
    outer = {key: grid[key] for key in MACHINE_KEYS if key in grid}
    inner = {key: values for key, values in grid.items() if key not in outer}
    pairs = policies_of(asked)
    wanted = [(name, {**own, **at}) for name, own in pairs for at in _points(name, inner)]
    _all_used(inner, [name for name, _ in pairs])
    points = [dict(zip(outer, values, strict=True)) for values in product(*outer.values())]
    return wanted, [(point, _there(setup, point)) for point in points]


def _there(setup: Setup, point: Mapping[str, Any]) -> Setup:
    """The Setup at a point of the grid's machine keys."""
    machine = setup.machine
    if "nodes" in point:
        machine = machine.resized(_number("nodes", point["nodes"]))
    if "latency_ratio" in point:
        machine = at_latency_ratio(machine, _ratio(point["latency_ratio"]))
    contended = _truth("contended", point["contended"]) if "contended" in point else setup.contended
    threads_on = point.get("placement", setup.threads_on)
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
                f"--set {key}={','.join(map(str, values))}: neither {', '.join(MACHINE_KEYS)} nor a "
                f"parameter of the policies asked for; they have: {', '.join(has) or 'none'}"
            )


def values(text: str) -> list[str]:
    """["0", "1", ...] from "0:9" (both ends), "0:8:2", "2,4,8"; values with commas: "0,1;2,3"."""
    if ";" in text:
        return [part.strip() for part in text.split(";") if part.strip()]
    texts: list[str] = []
    for part in text.split(","):
        bounds = part.strip().split(":")
        if len(bounds) in (2, 3) and all(_is_whole(bound) for bound in bounds):
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


def _is_whole(text: str) -> bool:
    return is_whole(text.removeprefix("-"))


def _number(key: str, text: str | int) -> int:
    if not _is_whole(str(text)):
        raise UsageError(f"{key} = {text}: must be a whole number")
    return int(text)


def _ratio(text: str | float) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = math.nan
    if not math.isfinite(ratio):
        raise UsageError(f"latency_ratio = {text}: must be a number, remote over local latency, such as 1.9")
    return ratio


def _truth(key: str, text: str | int) -> bool:
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if str(text).lower() not in known:
        raise UsageError(f"{key} = {text}: true or false")
    return known[str(text).lower()]
