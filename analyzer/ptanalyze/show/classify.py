"""Classes of leaf entries as a view for people, and as a record for JSON."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..analysis.classify import TRACED
from ..analysis.leaf_classes import Classification
from ..core.columns import Message, Section, message, plain
from ..core.trace import threads_placed
from ..world.reservations import Fragmentation
from ..world.scenario import Scenario
from .terminal import percent

UNITS = {  # what a classification counts, by its weight
    "walks": "page walks",
    "samples": "samples",
    "heat": "page walks",
    "leaf": "leaf entries",
}
TOP, FEW = 10, 0.001  # groups shown, of those with more than FEW of the count of the largest
GROUPS = {"vma": "VMAs", "thread": "threads", "process": "processes", "page": "pages"}


def title(weight: str, how: Mapping[str, str]) -> str:
    """`how`: machine and placement of threads; for walks and samples only."""
    threads = threads_placed(how["placement"]) if how else ""
    return str(message("classified", weight, machine=how.get("machine"), threads=threads))


def view(
    found: Sequence[tuple[Classification, str]],
    by: str = "all",
    further: Section | None = None,
    first_touch: float | None = None,
) -> Iterator[Section]:
    """A sentence, a table, what was not counted, and what to type next.

    found        (Classification, its title) of each weight; by: as of classify
    first_touch  share of the walks that would be remote by first touch; None: not known
    """
    counted = [(classes, named) for classes, named in found if classes.by_class().any()]
    first = [str(sentence(counted[-1][0], first_touch)), ""] if counted else []
    yield Section(lines=[*(line for classes, _ in found for line in caution(classes)), *first])
    if by == "all" and counted:
        rows = [row for classes, _ in counted for row in rows_of(classes, "counted", UNITS[classes.weight])]
        lines = [f"- {named}" for _, named in counted]
        lines += [f"- {jointly(classes)}" for classes, _ in counted[-1:] if not classes.native]
        yield Section("", rows, [*lines, *(line for classes, _ in found for line in asides_of(classes))])
    elif counted:
        for classes, named in counted:
            rows, lines = largest(classes, by)
            yield Section(named, rows, [*lines, *asides_of(classes)])
    for classes, named in found:
        if not classes.by_class().any():
            left = asides_of(classes) if not counted else ()
            yield Section(lines=[str(message("classify", "nothing", of=named)), *left])
    if further is not None:
        yield Section(lines=[""])
        yield further


def sentence(classes: Classification, first_touch: float | None = None) -> Message:
    """The share of what was counted that has a remote leaf entry, and where the page tables are."""
    counts = classes.by_class().sum(axis=(0, 1))
    remote, total, alone = int(counts[1:].sum()), int(counts.sum()), len(classes.nodes) == 1
    if alone and not remote:
        return message("classify", "single")
    both, share = ("none", 0.0) if first_touch is None else ("first-touch", first_touch)
    if not classes.native and remote:
        both, share = "dimensions", counts[3] / total
    return message(
        "classify",
        classes.weight,
        basis=message("basis", "one-node" if alone else "nodes"),
        remote=percent(remote / total),
        both=message("both", both, share=percent(share)),
        gain=message("both", "none" if remote else "all-local"),
    )


def jointly(classes: Classification) -> Message:
    """How often the leaf entries of both dimensions are local together, beside chance (section 2.2)."""
    counts = classes.by_class().reshape(-1, 4)
    counts = counts[counts.any(axis=1)]
    both, guest, host, _ = (counts / counts.sum(axis=1, keepdims=True)).T
    local, chance = percent(both.mean()), percent(((both + guest) * (both + host)).mean())
    return message("classify", "together", local=local, chance=chance, units=UNITS[classes.weight])


def largest(classes: Classification, by: str) -> tuple[list[dict[str, Any]], list[str]]:
    """(rows of the TOP groups with the largest counts, those first; lines on the others)."""
    every, total = rows_of(classes), Counter[str]()
    for row in every:
        total[row["of"]] += row["count"]
    ranked = total.most_common()
    order = {group: k for k, (group, count) in enumerate(ranked[:TOP]) if count > FEW * ranked[0][1]}
    rows = sorted((row for row in every if row["of"] in order), key=lambda row: order[row["of"]])
    if len(rows) == len(every):
        return rows, []
    half = int(np.searchsorted(np.cumsum([count for _, count in ranked]), total.total() / 2)) + 1
    numbers = {"left": len(every) - len(rows), "half": half, "number": len(ranked)}
    words = {"units": UNITS[classes.weight], "groups": GROUPS.get(by, "rows")}
    return rows, [str(message("classify", code, **numbers, **words)) for code in ("more", "half")]


def asides_of(classes: Classification) -> Iterator[str]:
    """What has no class, and what was not counted."""
    for why, count in classes.unresolved.items():
        if count:
            yield str(message("classify", "without", count=count, why=why))
    if classes.tracers:
        yield str(message("classify", "tracers", count=classes.tracers, units=UNITS[classes.weight]))


def caution(classes: Classification) -> list[str]:
    """A line where a tenth or more of what was counted has no class."""
    known = int(classes.by_class().sum())
    if classes.weight not in TRACED:  # each entry is seen from every socket
        known //= max(len(classes.sockets), 1)
    missing = sum(classes.unresolved.values())
    if not missing or missing * 10 < known + missing:
        return []
    code = "careful" if classes.weight == "leaf" else "careful-freed"
    return [str(message("classify", code, share=missing / (known + missing), units=UNITS[classes.weight]))]


def as_record(classes: Classification, title: str) -> dict[str, Any]:
    return {
        "title": title,
        "weight": classes.weight,
        "rows": classes.frame().to_dict("records"),
        "unresolved": classes.unresolved,
        "tracers": classes.tracers,
    }


def rows_of(classes: Classification, head: str = "of", name: str = "") -> list[dict[str, Any]]:
    """One row per group and socket with the share and number of each class.

    head  of the groups' column; name: instead of each group's
    """
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for group, socket, kind, count, share, *ends in classes.frame().itertuples(index=False):
        where, _, file = group.partition(" ")  # of a VMA, or a page
        short = f"{where} {file.rpartition('/')[2]}" if file.startswith("/") else group
        at = {head: name or short, "from socket": str(socket), "count": 0}
        row = rows.setdefault((group, socket), at)
        row["count"] += int(count)
        low, high = (percent(end).removesuffix(" %") for end in ends or (share, share))
        row[kind] = percent(share) + (f" ({low}-{high})" if low != high else "")
    return list(rows.values())


# Fragmentation as a view for people, and as a record for JSON.

States: TypeAlias = Mapping[str, Fragmentation]  # before, after


def view_fragmentation(
    states: States, shaped: Scenario | None, further: Section | None = None
) -> Iterator[Section]:
    """A sentence, a table of shares, what reservations cost, and what to type next."""
    before = states["before"]  # some of its pages have no gPT line, or no ePT line
    huge = zip(("2 MiB", "1 GiB"), before.huge.sum(axis=0).tolist(), strict=True)
    lines = [message("fragmentation", "huge", count=count, size=size) for size, count in huge if count]
    if missing := int(before.unresolved.sum()):
        lines.append(message("fragmentation", "unmapped", count=missing))
    aside = [f"- {line}" for line in lines]
    if rows := [*histogram_rows(states, False), *histogram_rows(states, True)]:
        yield Section(lines=[*(str(scattered(when, seen)) for when, seen in states.items()), ""])
        title, full = (str(message("fragmentation", code)) for code in ("title", "full"))
        yield Section(title, rows, [full, *aside])
    else:
        yield Section(lines=[str(message("fragmentation", "nothing")), *aside])
    if shaped:
        said = [f"- {one.line}" for one in shaped.findings]
        yield Section("Reservations", reservation_rows(shaped.facts), said)
    if further is not None:
        yield Section(lines=[""])
        yield further


def scattered(when: str, seen: Fragmentation) -> Message:
    """Over how many lines the host's entries are scattered."""
    counts = seen.histogram(False).sum(axis=0)
    return message("fragmentation", when, mean=seen.mean(), share=percent(1 - counts[0] / counts.sum()))


def fragmentation_record(states: States, shaped: Scenario | None) -> dict[str, Any]:
    facts = {"facts": shaped.facts, "findings": plain(shaped.findings)} if shaped else {}
    return {
        when: {
            "all": seen.summary(),
            "full": seen.summary(full=True),
            "histogram": seen.frame().to_dict("records"),
            "huge_leaves": [dict(zip(("2m", "1g"), row, strict=True)) for row in seen.huge.tolist()],
            "unresolved": seen.unresolved.tolist(),
        }
        for when, seen in states.items()
    } | facts


def histogram_rows(states: States, full: bool) -> list[dict[str, Any]]:
    """One row per group and state with the mean, and the share of lines that have 1, 2, ... 8 ePT lines."""
    rows = []
    for when, seen in states.items():
        for row, counts in zip(seen.summary(full), seen.histogram(full), strict=True):
            if total := counts.sum():
                named = {"of": row["of"]} if len(seen.groups) > 1 else {}
                named |= {"lines": "full" if full else "all"}
                named |= {"state": when} if len(states) > 1 else {}
                named |= {"count": row["gPT lines"], "mean": f"{row['mean']:.2f}"}
                shares = [percent(n / total).removesuffix(" %") for n in counts.tolist()]
                rows.append(named | {str(k): share for k, share in enumerate(shares, 1)})
    return rows


def reservation_rows(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "made": facts["reservations"],
        "reclaimed": facts["reservations_reclaimed"],
        "faults that used a reservation": facts["faults_served_from_a_reservation"],
        "faults without a block": facts["faults_without_a_block"],
        "pages that stay": facts["pages_kept"],
        "unused, peak": f"{mib(facts['unused_bytes_peak'])}, {100 * facts['unused_share_at_peak']:.2f} % "
        "of the memory mapped then",
        "unused, mean": mib(facts["unused_bytes_mean"]),
        "unused, end": f"{mib(facts['unused_bytes_end'])}, {100 * facts['unused_share_end']:.2f} %",
    }


def mib(size: float) -> str:
    return f"{size / (1 << 20):,.2f} MiB"
