"""What policies would change: replayed once, over time, at many points, compared, ranked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.bundled import DEFAULT_MACHINE
from ..core.progress import Progress
from ..core.sizes import NO_LIMIT, budget
from ..formats.capture import CaptureLike, PathLike, load
from .arguments import MachineLike, Policies, Settings, policies_of, rows_of
from .asked import asked

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..core.machine import Costs
    from ..cost.calibration import Calibration
    from ..cost.result import Result
    from ..policies import Policy
    from .replayed import Advised, Replayed

    Several: TypeAlias = str | Policy | Sequence[str | Policy]


def replay(
    capture: CaptureLike = None,
    policies: Policies = ("mitosis", "hydra"),
    *,
    machine: MachineLike = DEFAULT_MACHINE,
    placement: str = "auto",
    baseline: str = "auto",
    costs: PathLike | Costs | None = None,
    calibration: PathLike | Calibration | None = None,
    contended: bool = False,
    windows: int = 0,
    move_threads: str = "",
    autonuma: bool | Settings = False,
    threads: int = 1,
    progress: Progress = None,
) -> Replayed:
    """Replay the capture's walks under policies: all tables of one run, counted once.

    policies   "hydra", "ptemagnet+hydra", ("hydra", {"prefetch": 3}), or a policies.Policy of your own in a
               name's place: one or a list of them
    placement  where threads run, see world.placement.place; baseline: what speed-ups are over, "auto": linux
               when the capture has several nodes or no trace, else first-touch
    costs      file or Costs instead of the machine's own; contended: DRAM latencies under load
    calibration  of a measured run (`calibrate`), or its file: run time in that run's proportions
    windows    of equal time for .timeline; move_threads: threads that go on elsewhere, as "0:1@30%";
               autonuma: whether data follow their walkers, or how ({"delay_ms": 10}), see world.moves
    threads    to compute with; counts do not depend on it. progress: called with (done, of so many, what)
    """
    from .replayed import Replayed
    from .whatif import whatif as run

    about = asked(
        capture,
        machine,
        placement=placement,
        costs=costs,
        calibration=calibration,
        contended=contended,
        move_threads=move_threads,
        autonuma=autonuma,
        threads=threads,
        progress=progress,
    )
    found = run(
        about.snapshot,
        about.trace,
        about.machine,
        policies_of(policies),
        baseline=baseline,
        windows=windows,
        **about.how,
    )
    return Replayed(found, about.machine)


def whatif(capture: CaptureLike = None, policies: Policies = ("mitosis", "hydra"), **how: Any) -> DataFrame:
    """What policies would change and cost: one row each, the baseline's first. Arguments as of `replay`.

    Columns: result.Result.row; shares are of walks. speedup_low, speedup and speedup_high are NaN without a
    trace. attrs["machine"]: latencies, for plots.roofline.
    """
    return replay(capture, policies, **how).frame


def reads(capture: CaptureLike = None, policies: Policies = ("mitosis", "hydra"), **how: Any) -> DataFrame:
    """Which node reads page-table entries from which: policy, params, dimension, level, reader, server, from,
    count. Arguments as of `replay`; details: frames.reads_frame."""
    return replay(capture, policies, **how).reads


def timeline(
    capture: CaptureLike = None,
    policies: Policies = ("mitosis", "hydra"),
    *,
    windows: int = 20,
    move_threads: str = "",
    autonuma: bool | Settings = False,
    **how: Any,
) -> DataFrame:
    """Locality over time: one row a policy and window of equal time; the capture needs a trace.

    Columns: policy, params, time_ns (the window's end), walks, leaf_*_share of its walks, DRAM reads and the
    share of remote ones by dimension, tables and data pages moved so far. Arguments as of `replay`.
    vMitosis, Figure 6.
    """
    opened = load(capture)
    opened.trace  # noqa: B018 - UsageError without one
    moving: dict[str, Any] = {"windows": windows, "move_threads": move_threads, "autonuma": autonuma}
    return replay(opened, policies, **moving, **how).timeline


def sweep(
    capture: CaptureLike = None,
    policies: Several = ("mitosis", "hydra"),
    grid: Mapping[str, Iterable[Any]] | None = None,
    **how: Any,
) -> DataFrame:
    """`whatif` at every combination of a grid: a column for each of its keys, then whatif's.

    grid  {"prefetch": range(10), "nodes": [2, 4]}: nodes (the machine's), placement, contended, or a
          parameter of a policy, "prefetch" or "hydra.prefetch"; default: Hydra's prefetch degrees, 0 to 9. A
          key that a policy does not have is missing (None) in its rows.
    Other arguments as of `replay`, but windows.
    """
    from .answers import sweep_frame

    points = {key: list(values) for key, values in (grid or {"prefetch": range(10)}).items()}
    return sweep_frame(swept(capture, policies, points, **how), list(points))


def swept(
    capture: CaptureLike,
    policies: Several,
    points: Mapping[str, Sequence[Any]],
    *,
    machine: MachineLike = DEFAULT_MACHINE,
    placement: str = "auto",
    baseline: str = "auto",
    costs: PathLike | Costs | None = None,
    calibration: PathLike | Calibration | None = None,
    contended: bool = False,
    move_threads: str = "",
    autonuma: bool | Settings = False,
    threads: int = 1,
    progress: Progress = None,
) -> list[tuple[dict[str, Any], Result]]:
    """[({key: value}, Result)] behind `sweep`."""
    from ..policies import Policy
    from .sweep import sweep as run

    about = asked(
        capture,
        machine,
        placement=placement,
        costs=costs,
        calibration=calibration,
        contended=contended,
        move_threads=move_threads,
        autonuma=autonuma,
        threads=threads,
        progress=progress,
    )
    names: list[Any] = [policies] if isinstance(policies, (str, Policy)) else list(policies)
    return list(
        run(about.snapshot, about.trace, about.machine, names, points, baseline=baseline, **about.how)
    )


def compare(a: DataFrame | PathLike, b: DataFrame | PathLike) -> DataFrame:
    """What differs between two sets of results: policy, quantity, a, b, change (b - a), ratio (b / a).

    a, b  tables of `whatif`, or files that `ptanalyze whatif -o` wrote. Rows are matched by policy and
    parameters; one row each is compared whatever the policies are. attrs: "alike" (how many quantities are
    equal), "only_a", "only_b" (policies), "exact" (nothing differs).
    """
    from .answers import differences_frame
    from .compare import compare as run

    return differences_frame(run(rows_of(a), rows_of(b)))


def advise(
    capture: CaptureLike = None,
    *,
    memory: float | str = NO_LIMIT,
    updates: float | str = NO_LIMIT,
    machine: MachineLike = DEFAULT_MACHINE,
    placement: str = "auto",
    costs: PathLike | Costs | None = None,
    calibration: PathLike | Calibration | None = None,
    contended: bool = False,
    windows: int = 0,
    move_threads: str = "",
    autonuma: bool | Settings = False,
    threads: int = 1,
    progress: Progress = None,
) -> Advised:
    """All policies that the capture allows, ranked by estimated run time within a budget.

    memory   bytes that extra page tables, and memory held unused, may take, or "64M", or "1%" of what the
             capture's tables map
    updates  most extra upkeep of page tables, as a share of the baseline's run, 0.02 or "2%"
    Thin or Wide: vMitosis, section 3.4. Other arguments as of `replay`.
    """
    from .advise import advise as run
    from .replayed import advised
    from .workload import workload

    about = asked(
        capture,
        machine,
        placement=placement,
        costs=costs,
        calibration=calibration,
        contended=contended,
        move_threads=move_threads,
        autonuma=autonuma,
        threads=threads,
        progress=progress,
    )
    world = about.world()
    limits = budget(memory, updates, workload(world).mapped_bytes)
    return advised(run(world, limits, windows=windows, progress=progress, **about.pricing), about.machine)
