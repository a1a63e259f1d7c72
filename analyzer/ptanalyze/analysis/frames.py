"""Results and page tables as tidy pandas tables with units, findings and provenance in their attrs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.columns import CACHED, Column, Finding, described, numbers, table_of, units_of
from ..core.errors import lines
from ..core.machine import Machine
from ..core.snapshot import EMULATOR, Tree
from ..core.trace import GUEST_BIT
from ..cost.counts import FROM, CallCost
from ..cost.result import COLUMNS, Result, owned
from ..cost.throughput import WINDOW_COLUMNS, window_rows
from ..formats.capture import CaptureLike, load
from .verdict import Verdict

if TYPE_CHECKING:
    from pandas import DataFrame

CLASSES = ("Local-Local", "Local-Remote", "Remote-Local", "Remote-Remote")
NATIVE_CLASSES = {"Local-Local": "Local", "Remote-Local": "Remote"}


def classes_frame(classifications: Sequence[Any], provenance: Mapping[str, str]) -> DataFrame:
    """Rows of leaf_classes.Classifications below each other: group, socket, class, count, share, weight."""
    from pandas import concat

    parts = [classes.frame().assign(weight=classes.weight) for classes in classifications]
    table = concat(parts, ignore_index=True)
    findings = [
        Finding("without-a-class", f"{n} without a class: {why}", numbers={"walks": n})
        for classes in classifications
        for why, n in classes.unresolved.items()
        if n
    ]
    unresolved = {classes.weight: dict(classes.unresolved) for classes in classifications}
    return described(table, findings, provenance, unresolved=unresolved)


def fragmentation_frame(states: Mapping[str, Any], provenance: Mapping[str, str]) -> DataFrame:
    """Rows of {state: reservations.Fragmentation}: group, lines, ept_lines, count, share, state.

    attrs["means"]: {state: {lines: mean}}, None where there is no line.
    """
    from pandas import concat

    table = concat([lines.frame().assign(state=state) for state, lines in states.items()], ignore_index=True)
    means = {state: {"all": lines.mean(), "full": lines.mean(full=True)} for state, lines in states.items()}
    return described(table, provenance=provenance, means=means)


def whatif_frame(results: Sequence[Result], machine: Machine | None = None, refused: Any = ()) -> DataFrame:
    """One row per Result: cost.result.COLUMNS; printed few of them, and `refused`, {policy: why}."""
    rows = numbers(table_of([result.row() for result in results]), COLUMNS)
    about = {"machine": machine_limits(machine) if machine else {}, "refused": dict(refused)}
    return described(answers()(rows), owned(results), provenance_of(results), COLUMNS, **about)


@cache
def answers() -> type[DataFrame]:
    """The class of a table that shows few of its columns; what is taken from one is a plain DataFrame."""
    from pandas import DataFrame

    class Answers(DataFrame):  # type: ignore[misc]
        _constructor = property(lambda self: DataFrame)

        def _repr_html_(self) -> str:
            return f"{shown(self)._repr_html_()}{lines(refusals(self))}"

        def __reduce_ex__(self, protocol: Any) -> Any:
            return DataFrame.copy, (self.copy(deep=False),)

        def __repr__(self) -> str:
            models = ", ".join(self["machine"].unique())
            about = f"machine {models} (machine= asks about another); {len(self.columns)} columns: .columns"
            told = {"one-node", *(("bound", CACHED) if self["speedup"].isna().all() else ())}
            said = [one["text"] for one in self.attrs.get("findings", ()) if one["code"] in told]
            return "\n".join([shown(self).to_string(), about, *said, *refusals(self)])

    return Answers


def refusals(table: DataFrame) -> list[str]:
    return [f"{name}: {why}" for name, why in table.attrs.get("refused", {}).items()]


def shown(table: DataFrame) -> DataFrame:
    """Policies, their speed-ups, and MiB at their peak beyond the baseline's at that point of a sweep."""
    total = peak_bytes(table)
    own = table.loc[table["policy"] == table["baseline"], "params"]
    base = total[own[own.isin(own.head(1))].index]  # of each point of a sweep the first
    more = (total - base.reindex(table.index).ffill().bfill()) / 2**20
    swept = table.attrs.get("swept", [])
    named = [*swept, "policy"] if swept or not table["policy"].duplicated().any() else ["policy", "params"]
    ends = ["speedup", "speedup_low", "speedup_high"] if table["speedup"].notna().any() else ["walk_cycles"]
    return table[[*named, *ends, *table.columns.intersection(["over"])]].assign(memory_mib=more).round(3)


def peak_bytes(table: DataFrame) -> Any:
    """Result.peak_bytes of each row of whatif_frame."""
    return table[["pt_bytes_peak", "ept_bytes", "aside_bytes", "held_bytes"]].sum(axis=1)


def machine_limits(machine: Machine) -> dict[str, Any]:
    """Latencies of page-table reads: {"name", "ghz", *_ns of DRAM reads}.

    Local is the mean over nodes of their own memory, remote the mean over pairs of nodes, contended the same
    under load; None where the machine has one node, or its file no contended latencies.
    """
    limits: dict[str, Any] = {"name": machine.name, "ghz": machine.ghz}
    idle = machine.table_cycles() / machine.ghz
    loaded = None if machine.latency.contended is None else machine.table_cycles(contended=True) / machine.ghz
    limits["local_ns"] = float(np.diagonal(idle).mean())
    for name, matrix in (("remote_ns", idle), ("contended_ns", loaded)):
        apart = None if matrix is None else np.array(matrix)[~np.eye(len(matrix), dtype=bool)]
        limits[name] = float(apart.mean()) if apart is not None and len(apart) else None
    return limits


def by_level(result: Result) -> dict[tuple[bool, int], np.ndarray]:
    """{(host's table?, its level): int64[nodes, nodes, 2]} of all levels that were read."""
    reads: dict[tuple[bool, int], np.ndarray] = {}
    for bit in np.flatnonzero(result.reads.any(axis=(1, 2, 3))).tolist():
        guest, host = divmod(bit, GUEST_BIT)
        key = (True, host) if host else (False, guest)
        reads[key] = reads.get(key, 0) + result.reads[bit]
    return reads


def on_axis(key: str, point: Mapping[str, Any], result: Result) -> Any:
    """Value on a sweep's axis KEY or POLICY.KEY, of policies joined by "+", too; None: not the policy's."""
    if key in point:
        return point[key]
    owner, _, name = key.rpartition(".")
    of_short = (v for k, v in result.params.items() if k.rpartition(".")[2] == name)
    return result.params.get(key, next(of_short, None) if owner in ("", result.policy) else None)


def sweep_frame(
    points: Sequence[tuple[dict[str, Any], Result]], swept: Sequence[str], refused: Any = ()
) -> DataFrame:
    """A row per point and policy: swept keys (None: not the policy's), Result.row. refused: {policy: why}"""
    rows = []
    for point, result in points:
        keys = {key: on_axis(key, point, result) for key in swept}
        rows.append({**keys, **{name: v for name, v in result.row().items() if name not in keys}})
    results = [result for _, result in points]
    table = answers()(numbers(table_of(rows), COLUMNS))
    about = {"swept": list(swept), "refused": dict(refused)}
    return described(table, owned(results), provenance_of(results), COLUMNS, **about)


def provenance_of(results: Sequence[Result]) -> dict[str, str]:
    """Common provenance of all results: machine, placement, baseline, and their own provenance."""
    sources = [
        {**each.provenance, "machine": each.machine, "placement": each.placement, "baseline": each.baseline}
        for each in results
    ]
    common = sources[0].items() if sources else ()
    return {key: str(value) for key, value in common if all(other.get(key) == value for other in sources)}


# All tables of a run of replays.


@dataclass(frozen=True)
class Replayed:
    """Results of replays; each table is made, and pandas imported, when first asked for.

    results      [result.Result], the baseline's first: integer arrays behind the tables
    refused      {policy: why the capture does not allow it}
    fits_caches  Scenario.fits_caches: nothing is said of larger runs
    verdict      what limits the run and what to type, where that was asked for
    """

    results: list[Result]
    machine: Machine
    refused: Mapping[str, str] = field(default_factory=dict)
    fits_caches: bool = False
    verdict: Verdict | None = None

    def __repr__(self) -> str:
        names = ", ".join(result.policy for result in self.results)
        return f"<replayed: {names}; .frame, .reads, .leaves, .calls, .timeline>"

    def _repr_html_(self) -> str:
        """For a notebook: a row per policy, and where the other tables are."""
        return f"{self.frame._repr_html_()}{lines(['.frame; .reads, .leaves, .calls, .timeline'])}"

    @property
    def _nested(self) -> bool:
        """Whether walks have two dimensions under some policy."""
        return any(result.pages["host"] for result in self.results)

    @cached_property
    def frame(self) -> DataFrame:
        """whatif_frame: one row per policy."""
        return whatif_frame(self.results, self.machine, self.refused)

    def _table(
        self,
        rows: Iterable[tuple[Result, Mapping[str, Any]]],
        names: Sequence[str] = (),
        columns: Sequence[Column] = (),
        **attrs: Any,
    ) -> DataFrame:
        """Table of rows of Results behind policy and params; names: its columns, even without a row."""
        all_rows = [{"policy": result.policy, "params": result.settings, **row} for result, row in rows]
        table = table_of(all_rows, ["policy", "params", *names] if names else None)
        return described(table, owned(self.results), provenance_of(self.results), columns, **attrs)

    @cached_property
    def reads(self) -> DataFrame:
        """Reads of page-table entries: policy, params, dimension, level, reader, server, from, count.

        dimension is PT (native), gPT or ePT; level that of the table read; reader and server NUMA nodes;
        from is "L1D", "L2", "LLC" or "DRAM". Every combination of a level that any policy reads has a row.
        """
        levels = sorted({key for result in self.results for key in by_level(result)})
        names = ("dimension", "level", "reader", "server", "from", "count")
        rows = (
            (result, dict(zip(names, (dimension, level, *at, FROM[source], int(count)), strict=True)))
            for result in self.results
            for counts in [by_level(result)]
            for host, level in sorted(levels, key=lambda key: (key[0], -key[1]))
            for dimension in ["ePT" if host else "gPT" if self._nested else "PT"]
            for (*at, source), count in np.ndenumerate(
                counts.get((host, level), np.zeros(result.reads.shape[1:], np.int64))
            )
        )
        return self._table(rows, names, walks=int(self.results[0].walks))

    @cached_property
    def leaves(self) -> DataFrame:
        """Walks by location of leaf entries: policy, params, socket, class, count, share (of its socket).

        The classes are vMitosis' (section 2.2, Figure 2), guest first; native: Local and Remote. A socket
        that did not walk has no rows. attrs["run"]: whose walks, result.Result.run.
        """
        names = dict.fromkeys(CLASSES) if self._nested else NATIVE_CLASSES
        rows = (
            (result, {"socket": socket, "class": names[kind] or kind, "count": count, "share": count / total})
            for result in self.results
            for socket, counts in enumerate(result.classes.tolist())
            if (total := sum(counts))
            for kind, count in zip(CLASSES, counts, strict=True)
            if kind in names
        )
        run = self.results[0].run if self.results else None
        return self._table(rows, ("socket", "class", "count", "share"), run=run)

    @cached_property
    def calls(self) -> DataFrame:
        """System calls by kind: policy, params, and counts.CallCost's columns; no rows without a trace."""
        rows = ((result, call._asdict()) for result in self.results for call in result.system_calls)
        return self._table(rows, CallCost._fields)

    @cached_property
    def timeline(self) -> DataFrame:
        """One row per policy and window of time: throughput.window_rows; no rows without series."""
        rows = ((result, row) for result in self.results for row in window_rows(result.series))
        table = self._table(rows, columns=WINDOW_COLUMNS, nested=self._nested)
        typed = table.astype({name: float for name in table.columns if str(name).endswith("_share")})
        typed.attrs["units"] = units_of(typed, WINDOW_COLUMNS)
        return typed


# Location of each table page of a capture.


def page_tables(capture: CaptureLike = None) -> DataFrame:
    """Every table page: dimension, level, base, span_bytes, node, tracers; see tables_frame."""
    opened = load(capture)
    snapshot = opened.snapshot
    return tables_frame(snapshot.trees, len(snapshot.topology), opened.source)


def tables_frame(trees: Mapping[str, Tree], nodes: int, provenance: Mapping[str, str]) -> DataFrame:
    """One row per table page, in the trees' order: dimension, level, base, span_bytes, node, tracers.

    base is the first (guest-)virtual or, for ePT, guest-physical address that the table maps; node is -1
    where unknown; tracers marks tables that map only the tracer's memory. Contains no physical addresses.
    attrs["nodes"]: NUMA nodes of the captured machine.
    """
    from pandas import concat

    parts = [
        table_of(
            {
                "dimension": name,
                "level": tree.level,
                "base": tree.base,
                "span_bytes": np.uint64(1) << (np.uint64(12) + np.uint64(9) * tree.level.astype(np.uint64)),
                "node": tree.node,
                "tracers": (tree.flags & EMULATOR) != 0,
            }
        )
        for name, tree in trees.items()
    ]
    table = concat(parts, ignore_index=True).astype({"dimension": "category"})
    return described(table, provenance=provenance, nodes=nodes)
