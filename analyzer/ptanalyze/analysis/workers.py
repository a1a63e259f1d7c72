"""Units of work on the workers of a Dask cluster, by the interface of concurrent.futures."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ..core.errors import PtanalyzeError, UsageError
from ..core.progress import __version__

if TYPE_CHECKING:
    from distributed import Client

    from ..core.progress import Progress
    from ..formats.capture import Capture

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
    from ..formats.capture import Capture as Plain

    return Plain(capture.directory.resolve(), capture.manifest, capture.trusted)


def received(capture: Capture) -> Capture:
    """The same at a worker; UsageError where that does not see the directory."""
    if not capture.directory.is_dir():
        raise UsageError(
            f"{capture.directory}: worker on {socket.gethostname()} does not see it; put the capture where "
            "all workers have it under the same name"
        )
    return capture
