"""The explorer as a widget: draws what is asked, in Jupyter or any other host of anywidget."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import anywidget
import numpy as np
import traitlets

import ptanalyze as pt
from ptanalyze.show.plots import extents, page_table_map

# Tables of one dimension side by side: what a view of them shows, in columns.

PAGE_BITS, SLOT_BITS = 12, 9


@dataclass(frozen=True)
class TableMap:
    """
    tree     the tables, depth first
    own      int64[t]: those of the program, as indices into the tree
    start, end  int64[t]: place of each beside the others: a slot for each that has no child
    walks    int64[T] by table of the tree: walks that end in it; None without a trace
    """

    tree: pt.snapshot.Tree
    own: np.ndarray
    start: np.ndarray
    end: np.ndarray
    walks: np.ndarray | None = None

    @property
    def slots(self) -> int:
        return int(self.end.max(initial=1))

    def bands(self, low: float, high: float, columns: int) -> list[dict[str, Any]]:
        """A band for each level, root first: by column of low..high (slots) its table, node, walks.

        A column shows the table at its middle, and the walks of all that begin in it; -1: no table.
        """
        level = self.tree.level[self.own]
        edges = np.linspace(low, high, columns + 1)
        return [
            self._band(np.flatnonzero(level == number), number, edges)
            for number in range(int(level.max()), 0, -1)
        ]

    def _band(self, mine: np.ndarray, level: int, edges: np.ndarray) -> dict[str, Any]:
        at = np.searchsorted(self.start[mine], (edges[1:] + edges[:-1]) / 2, side="right") - 1
        nearest = mine[np.maximum(at, 0)]
        inside = (at >= 0) & ((edges[1:] + edges[:-1]) / 2 < self.end[nearest])
        table = self.own[nearest]
        band: dict[str, Any] = {"level": level, "node": np.where(inside, self.tree.node[table], -2).tolist()}
        if self.walks is not None:
            band["walks"] = np.where(inside, self._walks_within(edges, nearest), -1).tolist()
        return band

    def _walks_within(self, edges: np.ndarray, nearest: np.ndarray) -> np.ndarray:
        """int64[columns]: walks of the slots that a column covers, of its whole table if that is wider."""
        assert self.walks is not None
        by_slot = np.zeros(self.slots, np.int64)
        np.add.at(by_slot, self.start, self.walks[self.own])
        total = np.concatenate([[0], np.cumsum(by_slot)])
        first, last = np.round(edges[:-1]).astype(int), np.round(edges[1:]).astype(int)
        if edges[1] - edges[0] < 1:
            first = np.floor((edges[:-1] + edges[1:]) / 2).astype(int)
            last = first + 1
        whole = (self.start[nearest] <= first) & (self.end[nearest] >= last)
        first, last = np.where(whole, self.start[nearest], first), np.where(whole, self.end[nearest], last)
        counted: np.ndarray = total[np.clip(last, 0, self.slots)] - total[np.clip(first, 0, self.slots)]
        return counted

    def place(self, address: int) -> float | None:
        """Where the walk of an address ends, in slots: its reads are above; None where no table has it."""
        level = self.tree.level[self.own].astype(np.uint64)
        shift = PAGE_BITS + SLOT_BITS * level
        mine = np.flatnonzero(self.tree.base[self.own] >> shift == np.uint64(address) >> shift)
        if not len(mine):
            return None
        lowest = mine[np.argmin(level[mine])]
        table, wide = int(self.own[lowest]), float(self.end[lowest] - self.start[lowest])
        span = self.last(table) + 1 - self.first(table)
        within = (address - self.first(table)) / span if wide == 1 else 0.5
        return float(self.start[lowest] + within * wide)

    def first(self, table: int) -> int:
        """The first address that a table of the tree maps."""
        return int(self.tree.base[table])

    def last(self, table: int) -> int:
        return self.first(table) + (1 << (PAGE_BITS + SLOT_BITS * int(self.tree.level[table]))) - 1

    def leaf_at(self, slot: float) -> int:
        """Index, in the tree, of the table without children at a slot."""
        childless = np.flatnonzero(self.end - self.start == 1)
        lowest = childless[np.searchsorted(self.start[childless], int(slot), side="right") - 1]
        return int(self.own[lowest])

    def cells(self, table: int, topology: pt.snapshot.Topology) -> dict[str, Any]:
        """The entries of one table page: first address, node of each entry's frame, -2 where not present."""
        raw = np.asarray(self.tree.entries[table])
        level = int(self.tree.level[table])
        present = pt.snapshot.present(raw, self.tree.encoding)
        leaf = pt.snapshot.leaf(raw, level, self.tree.encoding)
        frames, tables = (
            pt.snapshot.frame(raw, level, self.tree.encoding, leaves=leaves) for leaves in (True, False)
        )
        frames = np.where(leaf, frames, tables)
        node = np.where(present, topology.node_of_frame(np.where(present, frames, -1)), -2)
        step = 1 << (PAGE_BITS + SLOT_BITS * (level - 1))
        return {"base": int(self.tree.base[table]), "step": step, "level": level, "node": node.tolist()}


def table_map(tree: pt.snapshot.Tree, walks: np.ndarray | None = None) -> TableMap:
    own = np.flatnonzero((tree.flags & pt.snapshot.EMULATOR) == 0)
    start, end = extents(tree.level[own].astype(np.int64))
    return TableMap(tree, own, start, end, walks)


COLUMNS = 600
ENTRIES = 512


class Explorer(anywidget.AnyWidget):  # type: ignore[misc]
    """`asked`: what to show, {dimension, low, high (slots), colour, address}; `shown`: what is drawn."""

    _esm = files(__package__).joinpath("explore.js").read_text("utf-8")
    _css = files(__package__).joinpath("explore.css").read_text("utf-8")
    asked = traitlets.Dict().tag(sync=True)
    shown = traitlets.Dict().tag(sync=True)

    def __init__(self, opened: pt.analysis.ReplayCapture, setup: pt.Setup) -> None:
        capture = opened.capture
        if not (capture.has_snapshot or capture.has_vm):
            raise pt.UsageError(f"{capture.directory}: no page tables to explore: record as root, or dump")
        self.opened, self.walked = opened, ""
        self.maps = maps_of(opened, setup)
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
        tables = self.maps[name]
        low, high = view(asked, tables.slots)
        walk = self.walk(str(asked.get("address", "")), name, tables)
        if asked.get("address") != self.walked:
            self.walked = asked.get("address")
            low, high = followed(low, high, walk["steps"], tables.slots)
        shown: dict[str, Any] = {
            "name": self.opened.capture.directory.name,
            "dimension": name,
            "dimensions": list(self.maps),
            "low": low,
            "high": high,
            "slots": tables.slots,
            "from": tables.first(tables.leaf_at(low)),
            "to": tables.last(tables.leaf_at(min(high, tables.slots) - 1)),
            "bands": tables.bands(low, high, COLUMNS),
            "looks": looks(tables),
            "colours": ["node"] if tables.walks is None else ["node", "walks"],
            "colour": asked.get("colour", "node"),
        }
        shown |= walk
        if high - low <= 1:
            shown["cells"] = tables.cells(tables.leaf_at(low), self.opened.snapshot.topology)
            shown["entry"] = entry_of(shown["cells"], shown["steps"])
        self.shown = shown

    def walk(self, text: str, name: str, tables: TableMap) -> dict[str, Any]:
        """{"steps": [...], "said"}: the walk of an address, each step with its place in the map shown."""
        if not text.strip():
            return {"steps": [], "said": ""}
        try:
            translation = pt.analysis.explain(self.opened.snapshot, int(text.strip(), 16))
        except (pt.UsageError, ValueError) as error:
            return {
                "steps": [],
                "said": f"{text}: {error}"
                if isinstance(error, pt.UsageError)
                else f"{text}: not a hexadecimal address",
            }
        steps = [
            {
                "where": f"{step.dimension} L{step.level}",
                "slot": step.slot,
                "node": step.node,
                "level": step.level,
                "address": step.address,
                "place": tables.place(step.address) if step.dimension == name else None,
            }
            for step in translation.steps
        ]
        page = f"a page of {translation.page_bytes} bytes on {pt.style.node_named(translation.page_node)}"
        end = translation.stopped or page
        return {"steps": steps, "said": f"{len(steps)} reads: {end}"}

    def _repr_mimebundle_(self, **how: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The widget, and a picture of the map for where no kernel runs: a forge, a printed page."""
        data, metadata = super()._repr_mimebundle_(**how)
        still = pt.style.png(page_table_map(pt.page_tables(self.opened.capture)))
        return {**data, "image/png": b64encode(still).decode()}, metadata

    def __repr__(self) -> str:
        return f"Explorer({self.opened.capture.directory.name!r}: {', '.join(self.maps)})"


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
    slots = [
        step["slot"]
        for step in steps
        if step["place"] is not None
        and step["level"] == cells["level"]
        and 0 <= step["address"] - cells["base"] < span
    ]
    return slots[-1] if slots else None


def looks(tables: TableMap) -> dict[str, tuple[str, str]]:
    """{node: (colour, name)}."""
    nodes = sorted(set(tables.tree.node[tables.own].tolist()) | {-1})
    return {
        str(node): (colour, pt.style.node_named(node))
        for node, colour in pt.style.node_colours(nodes).items()
    }


def maps_of(capture: pt.analysis.ReplayCapture, setup: pt.Setup) -> dict[str, TableMap]:
    """{"PT" or "gPT": TableMap, "ePT": TableMap}."""
    snapshot, walks = capture.snapshot, None
    if capture.trace:
        scenario = capture.scenario(pt.analysis.from_the_beginning(setup))
        walks = walks_of(scenario)[: len(snapshot.guest)]
    guest = table_map(snapshot.guest, walks)
    return {"PT": guest} if snapshot.host is None else {"gPT": guest, "ePT": table_map(snapshot.nested)}


def walks_of(scenario: pt.scenario.Scenario) -> np.ndarray:
    """int64 by flat table id: walks of the trace that end in the table."""
    regions = scenario.space.regions
    page, by_region = scenario.stream.page, np.zeros(len(regions.va), np.int64)
    for at in range(0, len(page), 1 << 22):
        by_region += np.bincount(page[at : at + (1 << 22)] >> np.uint32(9), minlength=len(by_region))
    counts = np.zeros(len(scenario.space.tables.level), np.int64)
    np.add.at(counts, regions.leaf, by_region)
    return counts
