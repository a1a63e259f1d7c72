"""What is in a capture: classes of leaf entries, fragmentation, table pages, one walk; captures made up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bundled import DEFAULT_MACHINE
from ..progress import Progress
from .arguments import (
    CaptureLike,
    MachineLike,
    PathLike,
    Settings,
    load,
    machine_of,
    provenance_of,
)

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..capture import Capture
    from ..classify import Classification
    from ..fragmentation import Fragmentation
    from ..world.world import World


def classify(
    capture: CaptureLike = None,
    *,
    weight: str = "leaf",
    by: str = "all",
    machine: MachineLike = DEFAULT_MACHINE,
    placement: str = "auto",
    threads: int = 1,
) -> DataFrame:
    """How local leaf entries are, seen from each socket: group, socket, class, count, share, weight.

    weight  "leaf": each leaf entry once, "4k": each 4 KiB page once, "walks": each TLB miss of the trace on
            `machine` with threads placed by `placement`
    by      "all", "vma" or (walks only) "thread"
    class   Local-Local ... Remote-Remote, guest first; native Local and Remote
    vMitosis (ASPLOS '21), section 2.2, Figure 2. attrs["unresolved"]: {weight: {reason: count}}.
    """
    from ..frames import classes_frame

    opened = load(capture)
    seen, how = classified(opened, weight, by, machine, placement, threads)
    return classes_frame([seen], provenance_of(opened) | how)


def classified(
    opened: Capture,
    weight: str,
    by: str,
    machine: MachineLike,
    placement: str,
    threads: int,
    progress: Progress = None,
) -> tuple[Classification, dict[str, str]]:
    """(Classification behind `classify`; of walks also on which machine and how threads were placed)."""
    from ..locality import mapped_locality, walk_locality

    if weight != "walks":
        return mapped_locality(opened, weight=weight, by=by), {}
    target = machine_of(machine)
    seen, how = walk_locality(opened, target, by=by, placement=placement, threads=threads, progress=progress)
    return seen, {"machine": target.name, "placement": how}


def fragmentation(
    capture: CaptureLike = None,
    *,
    by: str = "all",
    after: bool | Settings = False,
    machine: MachineLike = DEFAULT_MACHINE,
) -> DataFrame:
    """gPT cache lines by how many ePT cache lines they lead to: group, lines, ept_lines, count, share, state.

    lines is "all", or "full" for those with all eight pages; ept_lines is 1 to 8; state "before" or "after".
    after  also with PTEMagnet's allocator: True, or its parameters ({"group": 4})
    The metric of PTEMagnet (ASPLOS '21), section 3.2.
    attrs: "means" {state: {lines: mean}}, "facts" of the reservations. The capture is of a VM.
    """
    from ..frames import fragmentation_frame

    opened = load(capture)
    settings = after if isinstance(after, Mapping) else {} if after else None
    found, reshaped = fragmented(opened, by, settings, machine)
    table = fragmentation_frame(found, provenance_of(opened))
    table.attrs["facts"] = dict(reshaped.facts) if reshaped else {}
    return table


def fragmented(
    opened: Capture,
    by: str,
    settings: Settings | None,
    machine: MachineLike,
    progress: Progress = None,
) -> tuple[dict[str, Fragmentation], World | None]:
    """({"before": Fragmentation}, and with settings of ptemagnet "after"; the World it made) of a capture."""
    import numpy as np

    from ..fragmentation import fragmentation as run
    from ..policies import plan_for
    from ..whatif import captured_world
    from ..world.address_space import address_space

    found = {"before": run(address_space(opened.snapshot, np.zeros(0, np.uint64)), by=by)}
    if settings is None:
        return found, None
    trace = opened.trace if opened.has_trace else None
    world = captured_world(
        opened.snapshot, trace, machine_of(machine), cache_dir=opened.cache, progress=progress
    )
    reshaped = plan_for("ptemagnet", dict(settings)).reshape(world)
    return found | {"after": run(reshaped.space, by=by, filled=True)}, reshaped


def walk(capture: CaptureLike, address: int) -> DataFrame:
    """One translation: a row for each table read, in the hardware's order, with walk.Step's columns.

    attrs["page"]: {"frame", "bytes", "node", "stopped"}; where the address is not mapped, frame is None and
    stopped says why. attrs: address, and nodes, the ids of the captured machine's. Shows physical addresses.
    """
    from ..frames import walk_frame
    from ..walk import explain

    opened = load(capture)
    snapshot = opened.snapshot
    table = walk_frame(explain(snapshot, address), [node.id for node in snapshot.topology.nodes])
    table.attrs["provenance"] = provenance_of(opened)
    return table


def page_tables(capture: CaptureLike = None) -> DataFrame:
    """Every table page: dimension, level, base, span_bytes, node, tracers; see frames.page_tables_frame."""
    from ..frames import page_tables_frame

    opened = load(capture)
    table = page_tables_frame(opened.snapshot)
    table.attrs["provenance"] = provenance_of(opened)
    return table


def synth(directory: PathLike, size: int | str, *, trace: bool = True, **parameters: Any) -> Capture:
    """Make the capture of a workload that nobody ran in a new directory, and load it.

    size        of the dataset: bytes, or "64M"
    parameters  of synth.parameters.Parameters (`ptanalyze synth --help` says what they mean)
    """
    from ..synth.capture import synthesize
    from ..synth.parameters import Parameters, parse_size, refused

    known = Parameters.__dataclass_fields__
    for name, value in parameters.items():
        if name not in known:
            raise refused(name, value, f"no such parameter; there are: {', '.join(known)}")
    asked = Parameters(parse_size(size) if isinstance(size, str) else size, **parameters)
    synthesize(asked, Path(directory), trace=trace)
    return load(directory)
