"""Several captures side by side."""

from collections.abc import Iterator, Sequence
from typing import Any

from pandas import concat

from .. import plots
from .cautions import listed
from .grid import Column, Grid, count, grid, interval, percent, plain, ratio, word
from .picture import Picture, picture
from .study import Study, remote_share


def lead(studies: Sequence[Study]) -> str:
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


def pictures(studies: Sequence[Study]) -> Iterator[Picture]:
    """A picture of native captures and another of VMs, as their classes differ, for several of a kind."""
    for nested in (False, True):
        alike = [study for study in studies if study.nested is nested and study.leaves["count"].sum()]
        if len(alike) > 1:
            yield locality(alike)


def locality(studies: Sequence[Study]) -> Picture:
    parts = [study.of(study.leaves, study.baseline).assign(policy=study.name, params="") for study in studies]
    shares = [f"{study.name}: {100 * study.base['leaf_LL_share']:.0f} %" for study in studies]
    how = (
        "A panel per capture, a bar per socket, each under its own baseline. Green is the share of walks "
        "whose leaf entries are on the walker's socket."
    )
    key = f"locality-{'vm' if studies[0].nested else 'native'}"
    return picture(key, "Stacked bars", plots.locality, concat(parts), how, f"{'; '.join(shares)}.")
