"""The explorer as a widget: draws what is asked, in Jupyter or any other host of anywidget."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import anywidget
import numpy as np
import traitlets

from ...analysis.answers import page_tables
from ...analysis.priced import served
from ...analysis.runs import start
from ...analysis.walk import explain
from ...core.errors import UsageError
from ...policies import plan_for
from ..plots.page_table_map import page_table_map
from ..plots.style import node_looks, node_named, png
from .table_map import TableMap, table_map

if TYPE_CHECKING:
    from ...analysis.setup import Opened, Setup
    from ...world.world import World

COLUMNS = 600
ENTRIES = 512


class Explorer(anywidget.AnyWidget):  # type: ignore[misc]
    """`asked`: what to show, {dimension, low, high (slots), colour, address}; `shown`: what is drawn."""

    _esm = files(__package__).joinpath("explore.js").read_text("utf-8")
    _css = files(__package__).joinpath("explore.css").read_text("utf-8")
    asked = traitlets.Dict().tag(sync=True)
    shown = traitlets.Dict().tag(sync=True)

    def __init__(self, known: Opened, policy: str, setup: Setup) -> None:
        if not (known.capture.has_snapshot or known.capture.has_vm):
            raise UsageError(f"{known.capture.directory}: no page tables to explore: record as root, or dump")
        self.known, self.policy, self.walked = known, policy, ""
        self.maps = maps_of(known, policy, setup)
        super().__init__()
        self.asked = {"dimension": next(iter(self.maps)), "colour": "node", "address": ""}
        self.answer()

    @traitlets.observe("asked")  # type: ignore[untyped-decorator]
    def _answer(self, change: Any) -> None:
        if hasattr(self, "maps"):
            self.answer()

    def answer(self) -> None:
        """Draw what is asked: bands of a view, or the entries of one table page; and the walk."""
        asked = self.asked
        name = asked.get("dimension") if asked.get("dimension") in self.maps else next(iter(self.maps))
        one = self.maps[name]
        low, high = view(asked, one.slots)
        walk = self.walk(str(asked.get("address", "")), name, one)
        if asked.get("address") != self.walked:
            self.walked = asked.get("address")
            low, high = followed(low, high, walk["steps"], one.slots)
        shown: dict[str, Any] = {
            "name": self.known.capture.directory.name,
            "dimension": name,
            "dimensions": list(self.maps),
            "low": low,
            "high": high,
            "slots": one.slots,
            "from": one.first(one.leaf_at(low)),
            "to": one.last(one.leaf_at(min(high, one.slots) - 1)),
            "bands": one.bands(low, high, COLUMNS),
            "looks": looks(one),
            "colours": [
                "node",
                *(["walks"] if one.walks is not None else []),
                *([self.policy] if self.policy else []),
            ],
            "colour": asked.get("colour", "node"),
        }
        shown |= walk
        if high - low <= 1:
            shown["cells"] = one.cells(one.leaf_at(low), self.known.snapshot.topology)
            shown["entry"] = entry_of(shown["cells"], shown["steps"])
        self.shown = shown

    def walk(self, text: str, name: str, one: TableMap) -> dict[str, Any]:
        """{"steps": [...], "said"}: the walk of an address, each step with its place in the map shown."""
        if not text.strip():
            return {"steps": [], "said": ""}
        try:
            found = explain(self.known.snapshot, int(text.strip(), 16))
        except (UsageError, ValueError) as error:
            return {
                "steps": [],
                "said": f"{text}: {error}"
                if isinstance(error, UsageError)
                else f"{text}: not a hexadecimal address",
            }
        steps = [
            {
                "where": f"{step.dimension} L{step.level}",
                "slot": step.slot,
                "node": step.node,
                "level": step.level,
                "address": step.address,
                "place": one.place(step.address) if step.dimension == name else None,
            }
            for step in found.steps
        ]
        end = found.stopped or f"a page of {found.page_bytes} bytes on {node_named(found.page_node)}"
        return {"steps": steps, "said": f"{len(steps)} reads: {end}"}

    def _repr_mimebundle_(self, **how: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The widget, and a picture of the map for where no kernel runs: a forge, a printed page."""
        data, metadata = super()._repr_mimebundle_(**how)
        still = png(page_table_map(page_tables(self.known.capture)))
        return {**data, "image/png": b64encode(still).decode()}, metadata

    def __repr__(self) -> str:
        return f"Explorer({self.known.capture.directory.name!r}: {', '.join(self.maps)})"


def view(asked: dict[str, Any], slots: int) -> tuple[float, float]:
    """(low, high) in slots: within the map, one slot wide at least."""
    low, high = (float(asked.get(key, default)) for key, default in (("low", 0.0), ("high", slots)))
    wide = min(max(high - low, 1.0), float(slots))
    low = min(max(low if wide > 1 else np.floor(low), 0.0), slots - wide)
    return float(low), float(low + wide)


def followed(low: float, high: float, steps: Sequence[dict[str, Any]], slots: int) -> tuple[float, float]:
    """The view, moved to where a walk ends if that lies outside."""
    place = next((step["place"] for step in reversed(steps) if step["place"] is not None), low)
    if low <= place < high:
        return low, high
    first = np.floor(place + 0.5 - (high - low) / 2)
    return view({"low": first, "high": first + high - low}, slots)


def entry_of(cells: dict[str, Any], steps: list[dict[str, Any]]) -> int | None:
    """Which of the cells the steps read last."""
    span = ENTRIES * cells["step"]
    found = [
        step["slot"]
        for step in steps
        if step["place"] is not None
        and step["level"] == cells["level"]
        and 0 <= step["address"] - cells["base"] < span
    ]
    return found[-1] if found else None


def looks(one: TableMap) -> dict[str, tuple[str, str]]:
    """{node: (colour, name)}."""
    nodes = sorted(set(one.tree.node[one.own].tolist()) | {-1})
    return {str(node): (look[0], node_named(node)) for node, look in node_looks(nodes).items()}


def maps_of(known: Opened, policy: str, setup: Setup) -> dict[str, TableMap]:
    """{"PT" or "gPT": TableMap, "ePT": TableMap}; RefusedError for a policy that depends on the trace."""
    snapshot = known.snapshot
    world = known.world(setup)
    walks, near = walks_of(world) if known.trace else None, near_of(world, policy) if policy else None
    split = len(snapshot.guest)
    guest = table_map(
        snapshot.guest, None if walks is None else walks[:split], None if near is None else near[:split]
    )
    if snapshot.host is None:
        return {"PT": guest}
    last = split + len(snapshot.nested)
    return {"gPT": guest, "ePT": table_map(snapshot.nested, None, None if near is None else near[split:last])}


def walks_of(world: World) -> np.ndarray:
    """int64 by flat table id: walks of the trace that end in the table."""
    regions = world.space.regions
    page, by_region = world.stream.page, np.zeros(len(regions.va), np.int64)
    for at in range(0, len(page), 1 << 22):
        by_region += np.bincount(page[at : at + (1 << 22)] >> np.uint32(9), minlength=len(by_region))
    counts = np.zeros(len(world.space.tables.level), np.int64)
    np.add.at(counts, regions.leaf, by_region)
    return counts


def near_of(world: World, policy: str) -> np.ndarray:
    """float64 by flat table id: share of nodes whose reads a copy of their own serves, before any walk."""
    plan = plan_for(policy)
    run = start(plan, plan.reshape(world))
    nodes = served(plan, run, world)
    share: np.ndarray = (nodes == np.arange(nodes.shape[1])).mean(axis=1)
    return share
