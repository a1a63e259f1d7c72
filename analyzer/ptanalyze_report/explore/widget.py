"""The explorer as a widget: draws what is asked, in Jupyter or any other host of anywidget."""

from __future__ import annotations

from base64 import b64encode
from importlib.resources import files
from typing import Any

import anywidget
import numpy as np
import traitlets

import ptanalyze as pt
from ptanalyze.show.plots import extents, page_table_map

PAGE_BITS, SLOT_BITS = 12, 9
COLUMNS = 600  # of a band
NOTHING = -2  # in place of a node: no table, or an entry that is not present


class TableMap:
    """
    The program's tables of a tree side by side, what a view of them shows in columns.

    own         int64[t]: indices into the tree, depth first
    start, end  int64[t]: place of each beside the others: a slot for each that has no child
    slots       number of slots
    """

    def __init__(self, tree: pt.snapshot.Tree) -> None:
        self.tree = tree
        self.own = np.flatnonzero((tree.flags & pt.snapshot.EMULATOR) == 0)
        self.level = tree.level[self.own].astype(np.uint64)
        self.start, self.end = extents(self.level.astype(np.int64))
        self.slots = int(self.end.max(initial=1))

    def bands(self, low: float, high: float, columns: int) -> list[dict[str, Any]]:
        """A band for each level, root first: the node of the table at the middle of each column of low..high
        (slots), NOTHING without a table."""
        edges = np.linspace(low, high, columns + 1)
        middle, bands = (edges[1:] + edges[:-1]) / 2, []
        for level in range(int(self.level.max()), 0, -1):
            mine = np.flatnonzero(self.level == level)
            at = np.searchsorted(self.start[mine], middle, side="right") - 1
            nearest = mine[np.maximum(at, 0)]
            inside = (at >= 0) & (middle < self.end[nearest])
            node = np.where(inside, self.tree.node[self.own[nearest]], NOTHING)
            bands.append({"level": level, "node": node.tolist()})
        return bands

    def place(self, address: int) -> float | None:
        """Where the walk of an address ends, in slots: its reads are above; None where no table has it."""
        shift = PAGE_BITS + SLOT_BITS * self.level
        mine = np.flatnonzero(self.tree.base[self.own] >> shift == np.uint64(address) >> shift)
        if not len(mine):
            return None
        lowest = mine[np.argmin(self.level[mine])]
        table, wide = int(self.own[lowest]), float(self.end[lowest] - self.start[lowest])
        first, last = self.ends(table)
        within = (address - first) / (last + 1 - first) if wide == 1 else 0.5
        return float(self.start[lowest] + within * wide)

    def ends(self, table: int) -> tuple[int, int]:
        """The first and the last address that a table of the tree maps."""
        first = int(self.tree.base[table])
        return first, first + (1 << (PAGE_BITS + SLOT_BITS * int(self.tree.level[table]))) - 1

    def leaf_at(self, slot: float) -> int:
        """Index, in the tree, of the table without children at a slot."""
        childless = np.flatnonzero(self.end - self.start == 1)
        lowest = childless[np.searchsorted(self.start[childless], int(slot), side="right") - 1]
        return int(self.own[lowest])

    def cells(self, table: int, topology: pt.snapshot.Topology) -> dict[str, Any]:
        """The entries of a table page: first address, and node of each frame, NOTHING where not present."""
        raw, level, encoding = (
            np.asarray(self.tree.entries[table]),
            int(self.tree.level[table]),
            self.tree.encoding,
        )
        present = pt.snapshot.present(raw, encoding)
        frames, tables = (pt.snapshot.frame(raw, level, encoding, leaves=leaves) for leaves in (True, False))
        frames = np.where(pt.snapshot.leaf(raw, level, encoding), frames, tables)
        node = np.where(present, topology.node_of_frame(np.where(present, frames, -1)), NOTHING)
        step = 1 << (PAGE_BITS + SLOT_BITS * (level - 1))
        return {"base": int(self.tree.base[table]), "step": step, "level": level, "node": node.tolist()}


class Explorer(anywidget.AnyWidget):  # type: ignore[misc]
    """`asked`: what to show, {dimension, low, high (slots), address}; `shown`: what is drawn."""

    _esm = files(__package__).joinpath("explore.js").read_text("utf-8")
    _css = files(__package__).joinpath("explore.css").read_text("utf-8")
    asked = traitlets.Dict().tag(sync=True)
    shown = traitlets.Dict().tag(sync=True)

    def __init__(self, capture: pt.Capture) -> None:
        if not (capture.has_snapshot or capture.has_vm):
            raise pt.UsageError(f"{capture.directory}: no page tables to explore: record as root, or dump")
        self.capture, self.walked = capture, ""
        self.maps = {name: TableMap(tree) for name, tree in capture.trees.items()}
        super().__init__()
        self.asked = {"dimension": next(iter(self.maps)), "address": ""}
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
        walk = self.walk(str(asked.get("address", "")), name)
        if asked.get("address") != self.walked:
            self.walked = asked.get("address")
            place = next((step["place"] for step in walk["steps"][::-1] if step["place"] is not None), low)
            if not low <= place < high:  # the view moves to where the walk ends
                first = np.floor(place + 0.5 - (high - low) / 2)
                low, high = view({"low": first, "high": first + high - low}, tables.slots)
        nodes = sorted(set(tables.tree.node[tables.own].tolist()) | {-1})
        colours = pt.style.node_colours(nodes)
        shown: dict[str, Any] = {
            "name": self.capture.directory.name,
            "dimension": name,
            "dimensions": list(self.maps),
            "low": low,
            "high": high,
            "slots": tables.slots,
            "from": tables.ends(tables.leaf_at(low))[0],
            "to": tables.ends(tables.leaf_at(min(high, tables.slots) - 1))[1],
            "bands": tables.bands(low, high, COLUMNS),
            "looks": {str(node): (colour, pt.style.node_named(node)) for node, colour in colours.items()},
            **walk,
        }
        if high - low <= 1:
            side = self.capture.snapshot if self.capture.has_snapshot else self.capture.vm
            shown["cells"] = tables.cells(tables.leaf_at(low), side.topology)
            shown["entry"] = entry_of(shown["cells"], walk["steps"])
        self.shown = shown

    def walk(self, text: str, name: str) -> dict[str, Any]:
        """{"steps": [...], "said"}: the walk of an address, each step with its place in the map shown."""
        if not text.strip():
            return {"steps": [], "said": ""}
        try:
            translation = pt.analysis.explain(self.capture.snapshot, int(text.strip(), 16))
        except pt.UsageError as error:
            return {"steps": [], "said": f"{text}: {error}"}
        except ValueError:
            return {"steps": [], "said": f"{text}: not a hexadecimal address"}
        steps = [
            {
                "where": f"{step.dimension} L{step.level}",
                "slot": step.slot,
                "node": step.node,
                "level": step.level,
                "address": step.address,
                "place": self.maps[name].place(step.address) if step.dimension == name else None,
            }
            for step in translation.steps
        ]
        page = f"a page of {translation.page_bytes} bytes on {pt.style.node_named(translation.page_node)}"
        return {"steps": steps, "said": f"{len(steps)} reads: {translation.stopped or page}"}

    def _repr_mimebundle_(self, **how: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The widget, and a picture of the map for where no kernel runs: a forge, a printed page."""
        data, metadata = super()._repr_mimebundle_(**how)
        still = pt.style.png(page_table_map(pt.page_tables(self.capture)))
        return {**data, "image/png": b64encode(still).decode()}, metadata

    def __repr__(self) -> str:
        return f"Explorer({self.capture.directory.name!r}: {', '.join(self.maps)})"


def view(asked: dict[str, Any], slots: int) -> tuple[float, float]:
    """(low, high) in slots: within the map, one slot wide at least."""
    low, high = (float(asked.get(key, default)) for key, default in (("low", 0.0), ("high", slots)))
    wide = min(max(high - low, 1.0), float(slots))
    low = min(max(low if wide > 1 else np.floor(low), 0.0), slots - wide)
    return float(low), float(low + wide)


def entry_of(cells: dict[str, Any], steps: list[dict[str, Any]]) -> int | None:
    """Which of the cells the steps read last."""
    span = len(cells["node"]) * cells["step"]
    slots = [
        step["slot"]
        for step in steps
        if step["place"] is not None
        and step["level"] == cells["level"]
        and 0 <= step["address"] - cells["base"] < span
    ]
    return slots[-1] if slots else None
