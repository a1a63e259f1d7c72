"""What-if results for people: one row a policy, in a few tables that fit a terminal each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core.walks import GUEST_BIT
from .terminal import Cell, console, number, print_rows

if TYPE_CHECKING:
    from ..cost.result import CallCost, Result


def print_results(results: Sequence[Result]) -> None:
    """Locality, reads by level and node, cost and price, then what was assumed."""
    first = results[0]
    rows = [{**result.row(), "label": name} for result, name in zip(results, labels(results), strict=True)]
    nested = any(row["host_reads_per_walk"] for row in rows)
    paid = [key for key in HOST_PRICES if any(row[key] for row in rows)]
    accesses = f" of {number(int(first.hits.sum()))} accesses" if first.hits.any() else ""
    title = f"{first.machine}; threads {first.placement}; {number(first.walks)} walks{accesses}"
    print_rows(f"Where walks go ({title})", [locality(row, nested) for row in rows])
    by_level = [reads(row, result, nested) for row, result in zip(rows, results, strict=True)]
    print_rows("Reads per walk, by level and by the node that serves them", by_level)
    print_rows(f"What walks cost (speed-up over {first.baseline})", [cost(row, nested) for row in rows])
    print_rows("Page-table memory", [memory(row, nested) for row in rows])
    print_rows("At what price", [price(row, paid) for row in rows])
    calls = [
        system_call(row, one)
        for row, result in zip(rows, results, strict=True)
        for one in result.price.system_calls
    ]
    if calls:
        print_rows(f"What system calls cost (slow-down over {first.baseline})", calls)
    found = [fact for row, result in zip(rows, results, strict=True) for fact in facts(row, result)]
    if found:
        print_rows("What the policies found", found)
    out = console()
    for row in rows:
        if row["params"]:
            out.print(f"- {row['policy']}: {row['params']}")
    for note in dict.fromkeys(
        note for result in results for note in (*result.notes, result.price.assumptions)
    ):
        out.print(f"- {note}")


def labels(results: Sequence[Result]) -> list[str]:
    """A name for each Result: its policy, and of several of one policy the parameters that differ."""
    found = []
    for result in results:
        alike = [other.params for other in results if other.policy == result.policy]
        differ = [key for key in result.params if len({str(params.get(key)) for params in alike}) > 1]
        found.append(" ".join([result.policy, *(f"{key}={result.params[key]}" for key in differ)]))
    return found


def facts(named: dict[str, Any], result: Result) -> list[dict[str, Cell]]:
    """One row a number that the policy found; series are for programs."""
    return [
        {**label(named), "what": fact.replace("_", " "), "number": number(value)}
        for fact, value in result.facts.items()
        if isinstance(value, int | float)
    ]


def label(row: dict[str, Any]) -> dict[str, Cell]:
    return {"policy": row["label"]}


def percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def locality(row: dict[str, Any], nested: bool) -> dict[str, Cell]:
    """`nested`: some policy's walks have two dimensions (shadow paging has one where others have two)."""
    classes = {name: row[f"leaf_{name}_share"] for name in ("LL", "LR", "RL", "RR")}
    shown = {f"leaf {name}": share for name, share in classes.items()}
    if not nested:
        shown = {"leaf local": classes["LL"], "leaf remote": classes["RL"]}
    remote = row["remote_dram_reads"] / max(row["dram_reads"], 1)
    both = {"in gPT": row["guest_reads_per_walk"], "in ePT": row["host_reads_per_walk"]}
    return {
        **label(row),
        **{name: percent(share) for name, share in shown.items()},
        "reads/walk": row["reads_per_walk"],
        **(both if nested else {}),
        "from DRAM": row["dram_reads_per_walk"],
        "DRAM reads remote": percent(remote),
    }


def reads(named: dict[str, Any], result: Result, nested: bool) -> dict[str, Cell]:
    """Reads per walk at each level of each dimension, and served by each node."""
    walks = max(int(result.classes.sum()), 1)
    by_bit = result.reads.sum(axis=(1, 2, 3))
    row = label(named)
    for level in range(5, 0, -1):
        guest = int(by_bit[GUEST_BIT * level])
        if guest:
            row[f"{'gPT' if nested else 'PT'} L{level}"] = guest / walks
    for level in range(5, 0, -1):
        host = int(by_bit[level::GUEST_BIT].sum())
        if host:
            row[f"ePT L{level}"] = host / walks
    for node, count in enumerate(result.reads.sum(axis=(0, 1, 3))):
        row[f"node {node}"] = int(count) / walks
    return row


def cost(row: dict[str, Any], nested: bool) -> dict[str, Cell]:
    """Cycles; by dimension where there are two."""
    both = {"in gPT": row["guest_walk_cycles"], "in ePT": row["host_walk_cycles"]}
    speedup = "-"
    if row["speedup"] is not None:
        speedup = f"{row['speedup']:.3f} ({row['speedup_low']:.3f} to {row['speedup_high']:.3f})"
    return {
        **label(row),
        "cycles/walk": row["cycles_per_walk"],
        "walk cycles": row["walk_cycles"],
        **(both if nested else {}),
        "management cycles": row["management_cycles"],
        "estimated speed-up (interval)": speedup,
    }


def memory(row: dict[str, Any], nested: bool) -> dict[str, Cell]:
    """KiB of table pages; by dimension where there are two, and what walks no longer go through."""
    ept = {"ePT KiB": row["ept_bytes"] >> 10, "extra ePT": row["ept_bytes_extra"] >> 10}
    return {
        **label(row),
        "gPT KiB" if nested else "table KiB": row["pt_bytes"] >> 10,
        "extra": row["pt_bytes_extra"] >> 10,
        "peak": row["pt_bytes_peak"] >> 10,
        **(ept if nested else {}),
        **({"not walked KiB": row["aside_bytes"] >> 10} if row["aside_bytes"] else {}),
    }


HOST_PRICES = {
    "ept_pte_writes": "ePT writes",
    "ept_pte_fanout": "ePT fanned out",
    "ept_replica_faults": "ePT violations",
    "ept_pte_copies": "ePT copies",
    "vm_exits": "VM exits",
    "tables_moved": "tables moved",
    "ept_tables_moved": "ePT tables moved",
}


def price(row: dict[str, Any], paid: Sequence[str]) -> dict[str, Cell]:
    """What keeping the tables up took; `paid`: those of HOST_PRICES that some policy paid."""
    return {
        **label(row),
        "PTE writes": row["pte_writes"],
        "fanned out": row["pte_fanout"],
        "copies": row["pte_copies"],
        "faults": row["faults"],
        "replica faults": row["replica_faults"],
        "IPIs": row["ipis"],
        "IPIs remote": row["ipis_remote"],
        "IPIs saved": row["ipis_saved"],
        **{HOST_PRICES[key]: row[key] for key in paid},
    }


def system_call(row: dict[str, Any], one: CallCost) -> dict[str, Cell]:
    """One kind of call: what it changes, whom it interrupts, and how long that takes."""
    return {
        **label(row),
        "call": one.call,
        "calls": one.calls,
        "entries": one.entries,
        "fanned out": one.copies,
        "IPIs local": one.ipis_local,
        "remote": one.ipis_remote,
        "saved": one.saved_local + one.saved_remote,
        "ns/call": one.ns,
        "stolen ns/call": one.stolen_ns,
        "slow-down": one.slowdown,
    }
