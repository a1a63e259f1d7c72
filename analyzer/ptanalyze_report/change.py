"""Effects and costs of each policy: a table of all, and pictures."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from pandas import DataFrame, concat

import ptanalyze as pt
from ptanalyze.show.plots.speedup import priced
from ptanalyze.show.whatif import earned

from .cautions import listed
from .picture import (
    Column,
    Grid,
    Picture,
    count,
    grid,
    interval,
    memory,
    millions,
    percent,
    picture,
    plain,
    ratio,
    word,
)
from .study import Study, remote_share

WRITES = ("pte_writes", "pte_fanout", "ept_pte_writes", "ept_pte_fanout")
COPIES = ("pte_copies", "ept_pte_copies")
PANELS = 4  # a row of pictures
ALIKE = 0.005  # shares of walks that are the same in percent
MOVES = ("tables_moved", "ept_tables_moved")


def lead(study: Study) -> str:
    over = [row["label"] for row in study.rows if row["over"]]
    rest = f" Over the budget, and so no advice: {', '.join(over)}." if over else ""
    alike = (
        "; a change of page sizes also changes the number of walks"
        if several_walks(study)
        else ", the walks are the same"
    )
    what = (
        f"Speed-ups are over {study.baseline}, in steady state."
        if study.timed
        else f"Walk cycles of {study.baseline} over a policy's are a bound, reached {pt.interval.FROM_DRAM}."
    )
    return (
        f"Policies differ in where tables are and in the cost of keeping them there{alike}. "
        f"{what} One-time costs have a column of their own. Memory is a policy's extra memory at its peak; "
        f"upkeep is its extra work as a share of the run.{rest}"
    )


def several_walks(study: Study) -> bool:
    return len({row["walks"] for row in study.rows}) > 1


def everything(study: Study) -> Grid:
    """The full table: a row per policy, in the order of the advice."""
    rows = [
        {
            **row,
            "speedup": study.ratio(row),
            "interval": (row["speedup_low"], row["speedup_high"]),
            "remote": remote_share(row),
            "writes": sum(row[key] for key in WRITES),
            "copies": sum(row[key] for key in COPIES),
            "moved": sum(row[key] for key in MOVES),
            "earned": earned(row),
            "budget": f"over: {row['over']}" if row["over"] else "within",
        }
        for row in study.rows
    ]
    bound = ("Walk cycles", f"of {study.baseline} / its own, at most")
    faster = ("Speed-up", "middle") if study.timed else bound
    columns = {"label": Column("Policy", "", word), "speedup": Column(*faster, ratio)}
    if study.timed:
        columns["interval"] = Column("Interval", "low to high", interval)
    columns |= {
        "leaf_LL_share": Column(study.local, "share of walks", percent),
        "remote": Column("Remote", "share of DRAM reads", percent),
        "walks": Column("Walks", study.counted, count),
        "reads_per_walk": Column("Reads", "per walk", plain),
        "cycles_per_walk": Column("Cycles", "per walk", plain),
        "extra_bytes": Column("Memory", "more at its peak", memory),
        "extra_updates": Column("Upkeep", "of the run", percent),
        "writes": Column("Writes", "entries", count),
        "copies": Column("Copies", "entries", count),
        "moved": Column("Moved", "tables", count),
        "ipis": Column("IPIs", "CPUs interrupted", count),
        "once_cycles": Column("Once", "million cycles", millions),
        "earned": Column("Break-even", "after", word),
        "budget": Column("Budget", "", word),
    }
    used = {key: column for key, column in columns.items() if wanted(key, rows)}
    if not several_walks(study):
        del used["walks"]
    marked = {
        k: mark
        for k, row in enumerate(study.rows)
        for mark in [
            "baseline" if row is study.base else "advised" if row is study.best and study.timed else ""
        ]
        if mark
    }
    caption = f"Every policy that the capture allows, fastest first; compared with {study.baseline}"
    return grid("policies", caption, used, rows, interactive=True, marked=marked)


def wanted(key: str, rows: list[dict[str, object]]) -> bool:
    """Whether a column is informative: not if counts are 0 everywhere, nor without a budget."""
    if key == "earned":
        return any(row[key] != "-" for row in rows)
    if key in ("copies", "moved", "ipis", "writes", "once_cycles"):
        return any(row[key] for row in rows)
    return key != "budget" or any(row["over"] for row in rows)


def pictures(study: Study) -> Iterator[Callable[[], Picture]]:
    walked = bool(study.ranked["walks"].max())
    if study.curve is not None and study.curve.best:
        yield partial(sizes, study.curve)
    if walked:
        yield partial(speedup, study)
        yield partial(pareto, study)
    yield partial(footprint, study)
    if study.leaves["count"].sum():
        yield partial(locality, study)


def sizes(curve: pt.analysis.SizeCurve) -> Picture:
    """Speed-ups of larger runs, and their numbers."""
    how = (
        "To the right, runs as many times as large as the captured one; up, run time under the baseline over "
        "run time under the policy. Bands span the assumptions, and what one size leaves open of another."
    )
    table = curve.frame
    columns = {
        "stands_for": Column("Size", "of the captured", count),
        "bytes": Column("Memory", "", memory),
        "policy": Column("Policy", "", word),
        "speedup": Column("Speed-up", "", ratio),
        "range": Column("Range", "", interval),
    }
    others = table[table["policy"] != table["baseline"]].to_dict("records")
    rows = [row | {"range": (row["speedup_low"], row["speedup_high"])} for row in others]
    numbers = grid("sizes-data", "Speed-ups of larger runs", columns, rows)
    return picture("sizes", "Curve", pt.plots.curve, table, how, curve.sentence, numbers)


def speedup(study: Study) -> Picture:
    faster = [row for row in study.rows if pt.interval.faster(study.ratio(row))]
    slower = [row for row in study.rows if pt.interval.slower(study.ratio(row))]
    others = len(study.rows) - 1
    if study.timed:
        here = f"Of {others} policies {len(faster)} would be faster by the estimate, "
        here += f"{len(slower)} slower{study.warm}"
        how = (
            f"A dot for each policy: run time under {study.baseline} over run time under it, with "
            "mid-range assumptions; the bar spans all of them. Right of the line is faster."
        )
        how += " The bars of two policies share their assumptions: where one is high, so is the other."
        sure = [row for row in study.rows if pt.interval.faster(row["speedup_low"])]
        here += f"; for {len(sure)} the whole interval is a gain"
    else:
        here = f"Of {others} policies {len(faster)} may take fewer walk cycles, {len(slower)} more"
        how = (
            f"Without run times: cycles of page walks under {study.baseline} over those under the policy, "
            f"at most: {pt.interval.FROM_DRAM}. Right of the line is less waiting."
        )
    return picture("speedup", "Dots with intervals", pt.plots.speedup, study.ranked, how, f"{here}.")


def pareto(study: Study) -> Picture:
    rows = priced(study.ranked)
    front = rows[rows["front"]].sort_values("bytes")["label"].tolist()
    how = (
        "Up is faster, left takes less memory. Filled markers, joined by the line: no other policy is "
        "as fast for as little memory."
    )
    here = (
        f"{front[0]} is best in both: nothing is faster, nothing takes less."
        if len(front) == 1
        else f"The choice is between {listed(front, len(front))}: each other policy is no faster than one of "
        "these and takes no less memory."
    )
    if not study.timed:
        here = f"By bounds of walk cycles: {here[0].lower()}{here[1:]}"
    return picture("pareto", "Scatter plot", pt.plots.pareto, study.ranked, how, here)


def footprint(study: Study) -> Picture:
    table = study.ranked
    most = max(study.rows, key=tables_of)
    here = f"Under {study.baseline} page tables take {pt.errors.size_in_words(tables_of(study.base))}. "
    here += (
        f"Those of {most['label']} take most: {pt.errors.size_in_words(tables_of(most))}."
        if tables_of(most) > tables_of(study.base)
        else "No policy's take more."
    )
    held = max(study.rows, key=lambda row: row["held_bytes"])
    if held["held_bytes"] > 0:
        here += (
            f" Memory held unused is not drawn: {held['label']} holds most, "
            f"{pt.errors.size_in_words(int(held['held_bytes']))} beside its tables."
        )
    how = "Bytes of table pages in the end, one bar per policy; hatched parts are copies."
    columns = {
        "label": Column("Policy", "", word),
        "pt_bytes": Column("gPT" if study.nested else "Tables", "in the end", memory),
        "pt_bytes_extra": Column("of it copies", "in the end", memory),
        "pt_bytes_peak": Column("Peak", "", memory),
    }
    if study.nested:
        columns["ept_bytes"] = Column("ePT", "in the end", memory)
        columns["ept_bytes_extra"] = Column("of it copies", "in the end", memory)
    columns["aside_bytes"] = Column("Kept aside", "not walked", memory)
    columns["held_bytes"] = Column("Held unused", "beside tables", memory)
    data = grid("footprint-data", "Memory by policy", columns, study.rows)
    return picture("footprint", "Stacked bars", pt.plots.footprint, table, how, here, data)


def tables_of(row: dict[str, Any]) -> int:
    """Bytes of page tables in the end."""
    return int(row["pt_bytes"] + row["ept_bytes"] + row["aside_bytes"])


def locality(study: Study) -> Picture:
    how = (
        f"As in the first figure, but one panel per policy: the more green, the more walks end in entries on "
        f"the walker's own socket ({study.local})."
    )
    here = f"{study.baseline}: {100 * study.base['leaf_LL_share']:.0f} % {study.local}"
    if study.best is not study.base:
        here += f"; {study.best['label']}: {100 * float(study.best['leaf_LL_share']):.0f} %"
    full = [row["label"] for row in study.rows if row["leaf_LL_share"] > 0.99]
    here += f". (Nearly) all local: {', '.join(full)}." if full else "."
    shown = list(dict.fromkeys([study.baseline, study.best["policy"], *panels(study)]))[:PANELS]
    if len(shown) < len(study.rows):
        here += (
            f" Shown are {study.baseline} and the {len(shown) - 1} fastest; of equally fast ones, those that "
            "differ from it."
        )
    leaves = study.leaves[study.leaves["policy"].isin(shown)]
    return picture("locality-policies", "Stacked bars", pt.plots.locality, leaves, how, here)


def panels(study: Study) -> list[str]:
    """Policies, fastest first; of equally fast ones, those first whose locality is not the baseline's."""
    local = study.base["leaf_LL_share"]

    def order(row: dict[str, Any]) -> tuple[bool, float, bool]:
        return bool(row["over"]), -round(study.ratio(row), 3), abs(row["leaf_LL_share"] - local) < ALIKE

    return [str(row["policy"]) for row in sorted(study.rows, key=order)]


def slowdowns(study: Study) -> Grid | None:
    """A row per policy, a column per system call: time of a call over its time under the baseline."""
    if not len(study.calls):
        return None
    kinds = list(dict.fromkeys(study.calls["call"]))
    columns = {"label": Column("Policy", "", word)}
    columns |= {kind: Column(kind, "times as long", ratio) for kind in kinds}
    calls = study.calls.set_index(["policy", "call"])["slowdown"]
    rows = [
        {"label": row["label"], **{kind: calls.get((row["policy"], kind)) for kind in kinds}}
        for row in study.rows
    ]
    return grid("slowdowns", f"How long a system call takes, compared with {study.baseline}", columns, rows)


def calls_lead(study: Study) -> str:
    ratios = study.calls.dropna(subset="slowdown")
    slowest, fastest = (extreme(ratios, most) for most in (True, False))
    said = "System calls that change page tables have all copies to write and other CPUs to interrupt."
    if slowest is None:
        said = "No policy makes the trace's system calls slower."
    return " ".join(filter(None, (said, slowest, fastest)))


def extreme(calls: DataFrame, slowest: bool) -> str | None:
    """A sentence on the call that takes longest, or shortest, compared with the baseline's, and all policies
    with which it does; None where none takes longer, or shorter."""
    ratio = calls["slowdown"].max() if slowest else calls["slowdown"].min()
    if not len(calls) or not (pt.interval.faster(ratio) if slowest else pt.interval.slower(ratio)):
        return None
    written = pt.interval.shown(ratio)[0]
    first = calls.loc[calls["slowdown"].idxmax() if slowest else calls["slowdown"].idxmin()]
    alike = calls[
        (calls["call"] == first["call"])
        & calls["slowdown"].map(lambda one: pt.interval.shown(one)[0] == written)
    ]
    names = listed(list(dict.fromkeys(alike["policy"])), 6)
    return (
        f"{'Slowest' if slowest else 'Fastest'}: {first['call']} takes {written} times as long with {names}, "
        f"{first['ns']:,.0f} ns per call."
    )


def refusals(study: Study) -> dict[str, str]:
    """{why: names of the policies}."""
    by_reason: dict[str, list[str]] = {}
    for policy, why in study.refused.items():
        by_reason.setdefault(why, []).append(policy)
    return {why: ", ".join(names) for why, names in by_reason.items()}


def calls(study: Study) -> Grid | None:
    """Effects of system calls of each kind, a row per policy and kind."""
    if not len(study.calls):
        return None
    columns = {
        "policy": Column("Policy", "", word),
        "call": Column("Call", "", word),
        "calls": Column("Calls", "", count),
        "ns": Column("Time", "ns per call", plain),
        "stolen_ns": Column("Stolen", "ns per call, of others", plain),
        "slowdown": Column("Slow-down", "times", ratio),
        "entries": Column("Entries", "written", count),
        "copies": Column("Copies", "written too", count),
        "ipis_local": Column("IPIs", "own socket", count),
        "ipis_remote": Column("IPIs", "elsewhere", count),
        "saved": Column("IPIs", "spared", count),
    }
    table = study.calls.assign(saved=study.calls["saved_local"] + study.calls["saved_remote"])
    rows = [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]
    return grid("calls", "System calls by policy and kind", columns, rows, interactive=True)


def parameters(study: Study) -> Grid | None:
    """Settings of the policies that have any."""
    rows = [row for row in study.rows if row["params"]]
    columns = {"label": Column("Policy", "", word), "params": Column("Parameters", "", word)}
    return grid("parameters", "Settings of each policy", columns, rows) if rows else None


# Several captures side by side.


def lead_compared(studies: Sequence[Study]) -> str:
    advised = {study.name: study.advised for study in studies}
    if len(set(advised.values())) == 1:
        all_of = "both" if len(studies) == 2 else f"all {len(studies)}"
        return f"The advice is the same for {all_of} captures: {next(iter(advised.values()))}."
    advice = "; ".join(f"{name}: {label}" for name, label in advised.items())
    return f"The advice differs. {advice}."


def side_by_side(studies: Sequence[Study]) -> Grid:
    """A row per capture: facts, locality of its walks, advice."""
    counted = {study.counted for study in studies}
    columns = {
        "name": Column("Capture", "", word),
        "nodes": Column("Replayed on", "", word),
        "workload": Column("Workload", "", word),
        "walks": Column("Walks", counted.pop() if len(counted) == 1 else "", count),
        "local": Column("All local", "share of walks", percent),
        "remote": Column("Remote", "share of DRAM reads", percent),
        "reads": Column("Reads", "per walk", plain),
        "cycles": Column("Cycles", "per walk", plain),
        "best": Column("Advice", "", word),
        "speedup": Column("Speed-up", "middle", ratio),
        "interval": Column("Interval", "low to high", interval),
    }
    rows = [
        {
            "name": study.name,
            "nodes": study.results[0].machine,
            "workload": study.workload,
            "walks": study.base["walks"],
            "local": study.base["leaf_LL_share"],
            "remote": remote_share(study.base),
            "reads": study.base["reads_per_walk"],
            "cycles": study.base["cycles_per_walk"],
            "best": study.advised,
            "speedup": study.ratio(study.best) if study.timed else None,
            "interval": (study.best["speedup_low"], study.best["speedup_high"]) if study.timed else None,
        }
        for study in studies
    ]
    bases = listed(list(dict.fromkeys(study.baseline for study in studies)))
    return grid("captures", f"The captures under their baseline ({bases}), and the advice", columns, rows)


def by_policy(studies: Sequence[Study]) -> Grid:
    """A row per policy, a column per capture: the speed-up over that capture's baseline."""
    columns = {"label": Column("Policy", "", word)}
    columns |= {str(k): Column(study.name, over(study), ratio) for k, study in enumerate(studies)}
    by_label: dict[str, dict[str, Any]] = {}
    for k, study in enumerate(studies):
        for row in study.rows:
            by_label.setdefault(row["label"], {"label": row["label"]})[str(k)] = study.ratio(row)
    rows = sorted(by_label.values(), key=lambda row: -row.get("0", 0))
    caption = "Estimated speed-up of each policy, by capture; a dash: the capture does not allow it"
    return grid("speed-ups", caption, columns, rows, interactive=True)


def over(study: Study) -> str:
    """What the numbers of a capture are."""
    return f"over {study.baseline}" if study.timed else f"walk cycles of {study.baseline} / its own, at most"


def pictures_compared(studies: Sequence[Study]) -> Iterator[Picture]:
    """A picture of native captures and another of VMs, as their classes differ, for several of a kind."""
    for nested in (False, True):
        alike = [study for study in studies if study.nested is nested and study.leaves["count"].sum()]
        if len(alike) > 1:
            yield locality_compared(alike)


def locality_compared(studies: Sequence[Study]) -> Picture:
    parts = [study.of(study.leaves, study.baseline).assign(policy=study.name, params="") for study in studies]
    shares = [f"{study.name}: {100 * study.base['leaf_LL_share']:.0f} %" for study in studies]
    how = (
        "A panel per capture, a bar per socket, each under its own baseline. Green is the share of walks "
        "whose leaf entries are on the walker's socket."
    )
    key = f"locality-{'vm' if studies[0].nested else 'native'}"
    return picture(key, "Stacked bars", pt.plots.locality, concat(parts), how, f"{'; '.join(shares)}.")


# What a reader can do: today, on mainline Linux, and with the kernels of research.


class Action(NamedTuple):
    """`label`: a policy; `gain` in words; `when`: ", for ..." or ""; `line` to type, or what it takes;
    `caveat` what to know first."""

    label: str
    gain: str
    when: str
    line: str
    caveat: str


def worth_it(study: Study) -> str:
    """Which share of the run page tables take, and, where no limits tell it, whether anything is worth it;
    "" without run times."""
    worth = None if study.limits else pt.analysis.ranking.verdict(study.results, study.over)
    return " ".join(filter(None, (pt.analysis.ranking.share_sentence(study.results[0]), worth)))


def today(study: Study) -> list[Action]:
    """Policies that mainline Linux has and that may gain, fastest first, within the budget."""
    return list(actions(study, True))


def research(study: Study) -> str:
    """A sentence on the policies that gain and that no mainline kernel has."""
    found = [f"{one.label} {one.gain}" for one in actions(study, False)]
    if not found:
        return (
            f"No policy of a {pt.policies.RESEARCH} is estimated to gain here ({pt.policies.NOT_MAINLINE})."
        )
    return f"With a {pt.policies.RESEARCH} ({pt.policies.NOT_MAINLINE}): {listed(found)}."


def actions(study: Study, on_mainline: bool) -> Iterator[Action]:
    for row in study.rows:
        how = pt.policies.availability(str(row["policy"]), study.params_of(row), study.results[0].host_nodes)
        if (
            row is study.base
            or row["over"]
            or not pt.interval.faster(study.ratio(row))
            or row["policy"] == pt.policies.BOUND
        ):
            continue
        if study.cached and not pt.analysis.ranking.reshapes(str(row["policy"])):
            continue
        if bool(how.line) == on_mainline:
            careful = [f.text for one in study.results if one.policy == row["policy"] for f in one.careful]
            first = "; ".join(filter(None, (pt.policies.caveat(str(row["policy"])), *dict.fromkeys(careful))))
            yield Action(
                str(row["label"]),
                study.written(row),
                f", {how.when}" if how.when else "",
                how.line or str(how),
                first,
            )
