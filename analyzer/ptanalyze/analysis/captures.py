"""What is in a capture: classes of leaf entries, fragmentation, table pages, one walk; captures made up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..core.bundled import DEFAULT_MACHINE
from ..core.progress import Progress
from ..formats.capture import CaptureLike, load
from .arguments import MachineLike, Settings, machine_of, provenance_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..formats.capture import Capture
    from ..world.fragmentation import Fragmentation
    from ..world.world import World
    from .classify import Classification


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
    from .answers import classes_frame

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
    from .locality import mapped_locality, walk_locality

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
    from .answers import fragmentation_frame

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

    from ..policies import plan_for
    from ..world.address_space import address_space
    from ..world.captured_world import captured_world
    from ..world.fragmentation import fragmentation as run

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
    from .answers import walk_frame
    from .walk import explain

    opened = load(capture)
    snapshot = opened.snapshot
    table = walk_frame(explain(snapshot, address), [node.id for node in snapshot.topology.nodes])
    table.attrs["provenance"] = provenance_of(opened)
    return table


def page_tables(capture: CaptureLike = None) -> DataFrame:
    """Every table page: dimension, level, base, span_bytes, node, tracers; see frames.page_tables_frame."""
    from .answers import page_tables_frame

    opened = load(capture)
    table = page_tables_frame(opened.snapshot)
    table.attrs["provenance"] = provenance_of(opened)
    return table
