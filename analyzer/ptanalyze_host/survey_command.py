"""`ptanalyze survey`: the page tables of every process and VM of this host."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click

import ptanalyze as pt

from .survey import FEW, Group, Surveyed, grouped

if TYPE_CHECKING:
    from pandas import DataFrame


# What `survey` prints of page tables by node.


def by_node(numbers: Mapping[str, float]) -> str:
    """ "0:12 1:3"."""
    return " ".join(f"{node}:{number:.15g}" for node, number in numbers.items())


def percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)


ROWS = 20  # to print
REPAIRS = 5  # lines on a first screen
BUSY = 0.1  # CPUs: of a process that uses less, nobody waits for page walks
LONG_ID = re.compile(r"([0-9a-f]{12})[0-9a-f]{20,}")


@click.command("survey")
@click.argument("whom", nargs=-1)
@click.option(
    "--by",
    type=click.Choice(["process", "cgroup"]),
    default="process",
    show_default=True,
    help="A row for each process, or for each cgroup: container, service.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    metavar="N",
    help="The first N only, in every form of output. Default: 20 rows on a terminal; 100 in FILE.prom; all "
    "in JSON and CSV.",
)
@click.option(
    "--prometheus",
    type=click.Path(),
    callback=pt.options.must_end_with("prom"),
    metavar="FILE.prom",
    help="Write a file for node_exporter's textfile collector, sums by name and cgroup or --by cgroup, and "
    "print no table. Default: none.",
)
@pt.options.output_options()
def command(
    whom: tuple[str, ...], by: str, top: int | None, prometheus: str | None, output: pt.options.Output
) -> None:
    """List the processes and VMs of this host, or those whose name or PID is WHOM: those with the most remote
    page tables first, then those that used the most CPU time within a second.

    eBPF counts the page tables: no process is stopped, no entry is stored. The remote share is that of walks,
    assuming that every leaf table is walked equally often and that threads stay on the nodes where they last
    ran. Needs root.

    \b
    Examples:
      sudo ptanalyze survey redis-server
      sudo ptanalyze survey --by cgroup --top 5
    """
    from . import survey

    if prometheus is not None and Path(prometheus).exists() and not Path(prometheus).is_file():
        raise pt.UsageError(f"--prometheus {prometheus}: a pipe or device; name a file, it is replaced whole")
    cron = not sys.stderr.isatty() and (prometheus or output.table_file) is not None  # mails what is said
    found = survey.survey(quiet=cron or bool(whom))
    if whom:
        pids = {word: [int(word)] if word.isdecimal() else pt.live.named(word) for word in whom}
        of = {word: [one for one in found if one.pid in pids[word] or one.name == word] for word in pids}
        found = [one for one in found if any(one in each for each in of.values())]
        for word in (word for word, each in of.items() if not each):
            none = f"{word}: no process here whose page tables can be read"
            none = none if pids[word] else pt.live.not_running(word)
            if not found:
                raise pt.UsageError(none)
            pt.options.echo(f"ptanalyze: {none}", err=True)
    if prometheus is not None:
        nodes, least = survey.host_nodes(), 0 if whom else LEAST
        text = prometheus_text(found, nodes, time.time(), top or MOST_GROUPS, by == "cgroup", least)
        with pt.formats.atomic_write(prometheus, given=True) as file:
            file.write(text.encode())
            os.fchmod(file.fileno(), 0o644)  # node_exporter, another user, reads it: it holds no addresses
        if not cron:
            pt.options.echo(f"ptanalyze: wrote {prometheus}", err=True)
        if output.form == "table" and output.table_file is None:
            return
    emit(found, top, survey.host_nodes(), output, by == "cgroup")


def emit(
    found: Sequence[Surveyed], top: int | None, nodes: int, output: pt.options.Output, by_cgroup: bool
) -> None:
    """top: how many to give away; None: all, and ROWS of them on a terminal."""
    groups = grouped(found, lambda one: one.cgroup) if by_cgroup else []
    sums = [{"cgroup": one.cgroup, "processes": len(one.pids), **counted(one)} for one in groups[:top]]
    records = sums if by_cgroup else [*map(record, found[:top])]

    def table() -> DataFrame:
        from pandas import DataFrame

        rows = [
            {key: by_node(value) if isinstance(value, dict) else value for key, value in one.items()}
            for one in records
        ]
        return pt.columns.described(DataFrame(rows))

    output.emit("survey", table, lambda: records, lambda: view(found, top or ROWS, nodes, groups))


def record(one: Surveyed) -> dict[str, object]:
    return {
        "pid": one.pid,
        "name": one.name,
        "kind": one.kind,
        "cgroup": one.cgroup,
        **counted(one),
        "upper_tables": {str(node): count for node, count in sorted(one.upper.items())},
        "runs_on": {str(node): share for node, share in one.runs.items()},
        "left_behind": one.left_behind,
    }


def counted(one: Surveyed | Group) -> dict[str, object]:
    return {
        "cpus": round(one.cpus, 2),
        "pt_bytes": one.table_bytes,
        "rss_bytes": one.rss_bytes,
        "huge_bytes": one.huge_bytes,
        "remote_share": one.remote_share,
        "upper_remote_share": one.upper_remote_share,
        "leaf_tables": {str(node): count for node, count in sorted(one.leaf.items())},
    }


def called(one: Surveyed) -> str:
    return f"PID {one.pid} ({one.name})"


def view(
    found: Sequence[Surveyed], top: int, nodes: int = 2, groups: Sequence[Group] = ()
) -> Iterator[pt.columns.Section]:
    """A sentence, the table, and what to type next.

    nodes   NUMA nodes of the host
    groups  the table's rows in place of processes
    """
    said, lines, steps = "No process of this host has page tables of its own.", [], {}
    behind = [one for one in found if one.left_behind]
    if behind:
        moved = pt.errors.plural(len(behind), "process or VM", "processes or VMs")
        said = f"{moved} moved and left page tables behind:"
        for one in behind[:REPAIRS]:
            share = f"{100 * (one.remote_share or 0.0):.0f} % of walks remote"
            lines.append(f"  {called(one)}, {share}: {one.left_behind}")
            steps[called(one)] = (
                dump_of(one) if one.kind == "vm" else f"{pt.errors.as_root()} relocate {one.pid} --dry-run"
            )
    elif worst := next((one for one in found if one.remote_bytes), None):
        share = f"{100 * (worst.remote_share or 0.0):.0f} %"
        said = f"Most remote: {called(worst)}, {share} of its walks read a remote leaf table."
        steps = measured(worst) if worst.cpus >= BUSY else tried(found, nodes)
        steps = {"its page tables": dump_of(worst)} if worst.kind == "vm" else steps
    elif found:
        one_node = "One node: nothing can be remote; page size is the only question."
        said = "No leaf table is expected to be remote: all are on the nodes where their threads run."
        said, steps = one_node if nodes == 1 else said, tried(found, nodes)
    yield pt.columns.Section(lines=[said, *lines, ""])
    grouped_here = any(one.cgroup not in ("", "/") for one in found)
    sums = [{"cgroup": short(one.cgroup) or "-", "processes": len(one.pids), **sizes(one)} for one in groups]
    all_of_it = sums or [row(one) | ({"cgroup": short(one.cgroup)} if grouped_here else {}) for one in found]
    below = [f"--top {len(all_of_it)} lists {len(all_of_it) - top} more"] if len(all_of_it) > top else []
    alike = () if nodes > 1 else PLACES
    rows = [{key: cell for key, cell in one.items() if key not in alike} for one in all_of_it[:top]]
    yield pt.columns.Section("Page tables of this host", rows, below)
    if steps:
        yield pt.columns.Section(lines=[""])
        yield pt.terminal.next_steps(steps)


def dump_of(one: Surveyed) -> str:
    return f"{pt.errors.as_root()} dump vm {one.pid} -o {one.pid}.capture"


def measured(one: Surveyed) -> dict[str, str]:
    """What its walks cost: without a tracer, and without a pause."""
    out = f"{one.pid}.capture"
    return {
        f"sample {called(one)}": f"{pt.errors.as_root()} record -p {one.pid} --for 10s -o {out}",
        "then": f"{pt.errors.program()} advise {out}",
    }


def tried(found: Sequence[Surveyed], nodes: int) -> dict[str, str]:
    """What huge pages give the first busy one whose page size may matter and can be changed; its walks,
    where they can be remote."""
    for one in found:
        matters = one.mostly_small and one.cpus >= BUSY and one.kind != "vm"
        if matters and not pt.live.keeps_page_size(one.pid, 0.5):
            trial = {f"huge pages of {called(one)}": pt.live.page_trial(one.pid)}
            return trial | (measured(one) if nodes > 1 else {})
    return {}


PLACES = ("remote %", "upper remote %", "leaf tables on, %", "runs on, %")  # the same for all on one node


def sizes(one: Surveyed | Group) -> dict[str, pt.columns.Cell]:
    return {
        "busy CPUs": round(one.cpus, 2),
        "tables MiB": round(one.table_bytes / 2**20, 1),
        "remote %": percent(one.remote_share),
        "upper remote %": percent(one.upper_remote_share),
        "RSS MiB": round(one.rss_bytes / 2**20, 1),
        "huge %": percent(min(one.huge_bytes / one.rss_bytes, 1) if one.rss_bytes else None),
    }


def short(cgroup: str) -> str:
    """Last part of a cgroup's path, ids of containers to 12 digits: "docker-0123456789ab.scope"."""
    return LONG_ID.sub(r"\1", cgroup.rpartition("/")[2]) or cgroup


def row(one: Surveyed) -> dict[str, pt.columns.Cell]:
    leaf = sum(one.leaf.values())
    return {
        "PID": str(one.pid),
        "name": one.name,
        **sizes(one),
        "leaf tables on, %": by_node({str(n): round(100 * k / leaf) for n, k in sorted(one.leaf.items())}),
        "runs on, %": by_node({str(node): round(100 * share) for node, share in one.runs.items()}),
    }


# A survey as Prometheus text, for node_exporter's textfile collector.

PREFIX = "ptanalyze_"
LEAST, MOST_GROUPS = FEW * (2 << 20), 100  # memory, so that short-lived commands make no series; of a file
quoted = json.JSONEncoder(ensure_ascii=False).encode
METRICS = {  # what it is, and the field of a Group
    "processes": ("processes of these labels", "pids"),
    "page_table_bytes": ("bytes of page tables, without the root", "table_bytes"),
    "leaf_tables": ("table pages that map 4 KiB pages, by node", "leaf"),
    "leaf_remote_share": ("share of walks with a remote leaf table, if walked alike", "remote_share"),
    "upper_remote_share": ("the same of the tables above leaf tables", "upper_remote_share"),
    "huge_bytes": ("bytes mapped by huge pages", "huge_bytes"),
    "rss_bytes": ("resident memory", "rss_bytes"),
}
HOST = {
    "numa_nodes": "NUMA nodes of this host",
    "survey_processes": "processes and VMs in this survey",
    "survey_timestamp_seconds": "when this survey was made, seconds since 1970",
}


def prometheus_text(
    surveyed: Sequence[Surveyed],
    nodes: int,
    at: float,
    top: int = MOST_GROUPS,
    by_cgroup: bool = False,
    least: int = LEAST,
) -> str:
    """One gauge per metric and group, and of the host; node_exporter wants a file of its own for them.
    A PID is no label: each restart of a service would be a series of its own.

    nodes      of the host: on one, shares that are remote are left out
    at         seconds since 1970, by which an alert tells that surveys fail
    top        groups at most, so that a host with many makes few series
    by_cgroup  a group is a cgroup; else a name, kind and cgroup
    least      bytes of resident memory of each group
    """
    labels, host = (("cgroup",), '{by="cgroup"}') if by_cgroup else (("name", "kind", "cgroup"), "")
    groups = [one for one in grouped(surveyed, attrgetter(*labels)) if one.rss_bytes >= least][:top]
    lines = []
    for (metric, meaning), number in zip(HOST.items(), (nodes, len(surveyed), int(at)), strict=True):
        lines += [f"# HELP {PREFIX}{metric} {meaning}", f"# TYPE {PREFIX}{metric} gauge"]
        lines.append(f"{PREFIX}{metric}{host} {number}")
    for metric, (meaning, field) in METRICS.items():
        if nodes == 1 and metric.endswith("remote_share"):
            continue
        lines += [f"# HELP {PREFIX}{metric} {meaning}", f"# TYPE {PREFIX}{metric} gauge"]
        for one in groups:
            whose, value = {label: getattr(one, label) for label in labels}, getattr(one, field)
            if not isinstance(value, dict):
                value = {} if value is None else {"": len(value) if isinstance(value, tuple) else value}
            for node, gauge in value.items():
                named = whose if node == "" else {**whose, "node": str(node)}
                inside = ",".join(f"{key}={quoted(pt.errors.printable(text))}" for key, text in named.items())
                lines.append(f"{PREFIX}{metric}{{{inside}}} {gauge:.15g}")
    return "\n".join(lines) + "\n"
