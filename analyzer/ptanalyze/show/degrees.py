"""The chosen degrees as a view for people."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..analysis.answer import Cell, Section
from ..analysis.degrees import MOST, ONE, TIERS, Chosen, said, sentence, settings, share, tier_of
from ..core.walks import threads_placed

UNSURE = "- *: at an end of the exposed share another choice is cheaper"
CYCLES = (
    "- M cycles: the exposed share of the guest's walk cycles, and the upkeep of tables; bound: no tier with "
    "any prefetching costs less"
)


def view(found: Chosen) -> Iterator[Section]:
    """VMAs, all of them together, then the sentence and the settings."""
    order = np.argsort(-found.cycles[0], kind="stable").tolist()
    yield Section("VMAs, the costliest first", [vma_row(found, vma) for vma in order])
    title = f"All VMAs with one degree ({found.known.machine.name}; {threads_placed(found.known.placement)})"
    yield Section(title, list(together(found)), [CYCLES, *([] if found.sure.all() else [UNSURE])])
    lines = [f"- {note}" for note in found.known.notes]
    yield Section("", (), [*lines, "", sentence(found), "", *setting_lines(found)])


def vma_row(found: Chosen, vma: int) -> dict[str, Cell]:
    best = found.best(vma)
    most = found.point(tier_of(best), MOST)
    one, mine = float(found.cycles[0, vma]), float(found.cycles[found.by_vma[vma], vma])
    after = float(found.pays_back[vma])
    return {
        "VMA": found.known.names[vma],
        "walks": int(found.known.walks[vma].sum()),
        "M cycles, one copy": f"{one / 1e6:,.4g}",
        "cheapest": said(best) + ("" if found.sure[vma] else " *"),
        "of one copy": share(mine, one),
        "bound": share(float(found.bound[vma]), one),
        "copies pay after": "-" if np.isinf(after) else f"{after:,.3g} runs" if after else "at once",
        f"propagated at {MOST}": int(most.propagated[vma]),
        "never used": share(int(found.never_used(most)[vma]), int(most.propagated[vma])),
    }


def together(found: Chosen) -> Iterator[dict[str, Cell]]:
    """A row per tier and degree, then the best of each VMA and the bound."""
    total = found.cycles.sum(axis=1)
    for at, point in enumerate(found.known.points):
        yield {
            "tier": TIERS[point.tier],
            "degree": "-" if point.tier == ONE else str(point.degree),
            "M cycles": f"{total[at] / 1e6:,.4g}",
            "of one copy": share(float(total[at]), float(total[0])),
            "replica faults": int(point.faults.sum()),
            "propagated": int(point.propagated.sum()),
            "never used": share(int(found.never_used(point).sum()), int(point.propagated.sum())),
            "": "cheapest" if at == found.of_all else "",
        }
    ends = {"best of each VMA": found.of_each.sum(), "bound": found.bound.sum()}
    for name, cycles in ends.items():
        yield {
            "tier": name,
            "degree": "-",
            "M cycles": f"{cycles / 1e6:,.4g}",
            "of one copy": share(float(cycles), float(total[0])),
            "replica faults": "-",
            "propagated": "-",
            "never used": "-",
            "": "",
        }


def setting_lines(found: Chosen) -> list[str]:
    known = settings(found)
    wasp = known["wasp"]
    dearer = " (its cheapest degree; one copy costs less, without its kernel)" if wasp is None else ""
    lines = [f"Hydra's kernels:    {'; '.join(known['hydra']['commands'])}{dearer}"]
    steer = "no replicas" if wasp is None else f"PR_SET_PGTABLE_REPL_STEERING {','.join(map(str, wasp))}"
    return [*lines, f"WASP's kernel:      {steer}", f"numactl:            {known['numactl']}"]
