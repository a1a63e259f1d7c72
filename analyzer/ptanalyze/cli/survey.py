"""`ptanalyze survey`: the page tables of every process and VM of this host."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import plural, program, relocation, this_program
from . import echo
from .options import DURATION
from .output import Output, emit, must_end_with, output_options

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..capture.live.survey import Placed, Surveyed
    from ..capture.live.survey_guest import GuestProcess, GuestSurvey
    from ..core.columns import Answer, Cell, Section


# What `survey` and `survey --guest` print of page tables by node.


def by_node(numbers: Mapping[str, float]) -> str:
    """ "0:12 1:3"."""
    return " ".join(f"{node}:{number:.15g}" for node, number in numbers.items())


def as_record(one: Placed) -> dict[str, object]:
    return {
        "remote_share": one.remote_share,
        "upper_remote_share": one.upper_remote_share,
        "leaf_tables": {str(node): count for node, count in sorted(one.leaf.items())},
        "upper_tables": {str(node): count for node, count in sorted(one.upper.items())},
        "runs_on": {str(node): share for node, share in one.runs.items()},
    }


def flat(record: Mapping[str, Any]) -> dict[str, object]:
    """A record as a row of a table: mappings by node as text."""
    return {key: by_node(value) if isinstance(value, dict) else value for key, value in record.items()}


def as_row(one: Placed) -> dict[str, str | float | None]:
    leaf = sum(one.leaf.values())
    shares = {str(node): round(100 * count / leaf) for node, count in sorted(one.leaf.items())}
    return {
        "remote %": percent(one.remote_share),
        "upper remote %": percent(one.upper_remote_share),
        "leaf tables on, %": by_node(shares),
    }


def percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)


ROWS = 20  # to print
REPAIRS = 5  # lines on a first screen
LONG_ID = re.compile(r"([0-9a-f]{12})[0-9a-f]{20,}")


@click.command("survey")
@click.option(
    "--top",
    type=click.IntRange(1),
    metavar="N",
    help="The first N only, in every form of output. Default: 20 rows on a terminal; all in JSON, CSV and "
    "FILE.prom.",
)
@click.option(
    "--watch",
    type=DURATION,
    metavar="TIME",
    help="Repeat the survey, 10s or 5m apart; with --json one line each, with the time. Default: once.",
)
@click.option(
    "--prometheus",
    type=click.Path(),
    callback=must_end_with("prom"),
    metavar="FILE.prom",
    help="Also write a file for node_exporter's textfile collector. Default: none.",
)
@click.option(
    "--counters",
    "seconds",
    type=DURATION,
    metavar="TIME",
    help="Also count walk cycles of the printed processes for this long, 2s. Default: off.",
)
@click.option(
    "--guest",
    metavar="VM",
    help="Survey the processes inside this VM: its PID, or its name as survey prints it. Default: none.",
)
@click.option(
    "--qmp",
    type=click.Path(),
    metavar="SOCKET",
    help="With --guest: QMP socket of QEMU, for CR3s and memory. Default: what KVM knows.",
)
@click.option(
    "--for",
    "sampled",
    type=DURATION,
    default="3s",
    show_default=True,
    metavar="TIME",
    help="With --guest: time to sample CR3s if the guest's kernel is not found.",
)
@click.option(
    "--vm",
    "descriptor",
    type=click.IntRange(0),
    default=None,
    help="With --guest: file descriptor of the VM. Default: the only VM.",
)
@output_options()
def command(
    top: int | None,
    watch: float | None,
    prometheus: str | None,
    seconds: float | None,
    guest: str | None,
    qmp: str | None,
    sampled: float,
    descriptor: int | None,
    output: Output,
) -> None:
    """List the processes and VMs of this host by remote page tables, most first, then by size.

    eBPF counts the page tables: no process is stopped, no entry is stored. The remote share is that of walks,
    assuming that every leaf table is walked equally often and that threads stay on the nodes where they last
    ran. --counters adds, on CPUs that count walks, their current cost and the most that local tables can
    save. Needs root.

    --guest lists the processes inside a VM, read from outside: by name for a Linux guest; for other guests,
    the address spaces (CR3) seen on its vCPUs while sampling. Nodes are the host's.

    \b
    Examples:
      sudo ptanalyze survey --top 5
      sudo ptanalyze survey --watch 30s
      sudo ptanalyze survey --guest web1
    """
    from ..capture.live import survey

    if guest is None and (qmp is not None or descriptor is not None):
        raise click.UsageError("--qmp and --vm go with --guest VM")
    if watch is not None and watch < 1:
        raise click.UsageError(f"--watch: {watch:g} s is too often for a host at work; give 1s or more")
    if guest is not None and (prometheus is not None or seconds is not None):
        raise click.UsageError("--prometheus and --counters are about this host: leave them out, or --guest")

    def surveyed() -> Answer:
        if guest is not None:
            from ..capture.live.survey_guest import survey_guest

            inside = survey_guest(guest, seconds=sampled, socket=qmp, descriptor=descriptor)
            return survey_guest_answer(inside, top, qmp)
        found = survey.survey()
        if seconds is not None:
            from ..capture.live.cacheline import with_walk_cost

            found = with_walk_cost(found, seconds, top or ROWS)
        if prometheus is not None:
            from ..show.cpu_groups import write_prometheus

            write_prometheus(prometheus, found, survey.host_nodes(), time.time(), top)
            if watch is None:
                echo(f"ptanalyze: wrote {prometheus}", err=True)
        return answer(found, top, survey.host_nodes())

    while True:
        made = surveyed()
        if watch is not None and output.form == "table":
            click.clear()  # on a terminal
        if watch is None:
            return emit(made, output)
        emit(made, output, line=True)
        time.sleep(watch)


def answer(found: Sequence[Surveyed], top: int | None, nodes: int) -> Answer:
    """top: how many to give away; None: all, and ROWS of them on a terminal."""
    from ..core.columns import Answer

    def table() -> DataFrame:
        from pandas import DataFrame

        from ..core.columns import described

        return described(DataFrame([flat(record(one)) for one in found[:top]]))

    return Answer(
        "survey",
        table,
        lambda: [record(one) for one in found[:top]],
        lambda: view(found, top or ROWS, nodes),
        {"survey": table},
    )


def record(one: Surveyed) -> dict[str, object]:
    return {
        "pid": one.pid,
        "name": one.name,
        "kind": one.kind,
        "cgroup": one.cgroup,
        "pt_bytes": one.table_bytes,
        "rss_bytes": one.rss_bytes,
        "huge_bytes": one.huge_bytes,
        **as_record(one),
        "slow_tables": one.slow_tables,
        "walk_cycles_share": one.walk_share,
        "ideal_saves_at_most_share": one.ideal_saves,
        "left_behind": one.left_behind,
    }


def called(one: Surveyed) -> str:
    return f"PID {one.pid} ({one.name})"


def view(found: Sequence[Surveyed], top: int, nodes: int = 2) -> Iterator[Section]:
    """A sentence, the table, and what to type next. nodes: NUMA nodes of the host."""
    from ..core.columns import Section
    from ..show.terminal import next_steps

    said, lines, steps = "No process of this host has page tables of its own.", [], {}
    behind = [one for one in found if one.left_behind]
    if behind:
        said = (
            f"{plural(len(behind), 'process or VM', 'processes or VMs')} moved and left page tables behind:"
        )
        lines = list(reasons(behind))
        for one in behind[:REPAIRS]:
            steps[called(one)] = repair(one)
    elif worst := next((one for one in found if one.remote_bytes), None):
        share = f"{100 * (worst.remote_share or 0.0):.0f} %"
        said = f"Most remote: {called(worst)}, {share} of its walks read a remote leaf table."
        steps = closer(worst, found)
    elif found and nodes == 1:
        said = "This host has one NUMA node, so no page table is remote. Huge pages may still help."
        most = next((one for one in found if one.leaf and one.kind != "vm" and one.pid != os.getpid()), None)
        steps = measured(most) if most else {}
    elif found:
        said = "No leaf table is expected to be remote: all are on the nodes where their threads run."
    yield Section(lines=[said, *lines, ""])
    below = [f"{len(found) - top} more: --top {len(found)}"] if len(found) > top else []
    yield Section("Page tables of this host", rows(found[:top], nodes), [*below, *on_slow_nodes(found)])
    if steps:
        yield Section(lines=[""])
        yield next_steps(steps)


def on_slow_nodes(found: Sequence[Surveyed]) -> Iterator[str]:
    """How much of the page tables is on nodes without CPUs, where the host has some."""
    if slow := [one for one in found if one.slow_tables]:
        mib = sum(one.slow_tables or 0 for one in slow) / 256
        most = max(slow, key=lambda one: one.slow_tables or 0)
        yield (
            f"{mib:.1f} MiB of page tables of {plural(len(slow), 'process', 'processes')} are on nodes "
            f"without CPUs, most of PID {most.pid}"
        )
    elif any(one.slow_tables is not None for one in found):
        yield "no page tables are on the nodes without CPUs"


def reasons(behind: Sequence[Surveyed]) -> Iterator[str]:
    """Why, one line each."""
    for one in behind[:REPAIRS]:
        share = f"{100 * (one.remote_share or 0.0):.0f} % of walks remote"
        yield f"  {called(one)}, {share}: {one.left_behind}"
    if len(behind) > REPAIRS:
        yield f"  {len(behind) - REPAIRS} more with --json: left_behind"


def repair(one: Surveyed) -> str:
    if one.kind == "vm":
        return f"sudo {this_program()} dump vm {one.pid} -o {one.pid}.capture"
    return relocation(one.pid)


def closer(one: Surveyed, found: Sequence[Surveyed]) -> dict[str, str]:
    """What to type next about a process or VM; of several VMs with its name the PID tells it apart."""
    if one.kind != "vm":
        return measured(one)
    sudo = f"sudo {this_program()}"
    alone = sum(other.name == one.name for other in found if other.kind == "vm") == 1
    return {
        "its processes": f"{sudo} survey --guest {quote(one.name) if alone else one.pid}",
        "its own page tables": f"{sudo} dump vm {one.pid} -o {one.pid}.capture",
    }


def measured(one: Surveyed) -> dict[str, str]:
    """What its walks cost: without a tracer, and without a pause."""
    out = f"{one.pid}.capture"
    return {
        f"sample {called(one)}": f"sudo {this_program()} record -p {one.pid} --for 10s -o {out}",
        "then": f"{program()} advise {out}",
    }


PLACES = ("remote %", "upper remote %", "leaf tables on, %", "runs on, %")  # the same for all on one node


def rows(found: Sequence[Surveyed], nodes: int) -> list[dict[str, Cell]]:
    """A row each, with the columns that any of them has a number for, and can differ in."""
    slow = any(one.slow_tables for one in found)
    grouped = any(one.cgroup not in ("", "/") for one in found)
    counted = any(one.walk_share is not None for one in found)
    made = []
    for one in found:
        more: dict[str, Cell] = {"tables on slow nodes": one.slow_tables} if slow else {}
        more |= {"cgroup": short(one.cgroup)} if grouped else {}
        if counted:
            share, saves = one.walk_share, one.ideal_saves
            more["walks, % of cycles"] = percent(share)
            more["ideal saves, %"] = None if saves is None else f"0 to {100 * saves:.1f}"
        made.append({key: cell for key, cell in (row(one) | more).items() if nodes > 1 or key not in PLACES})
    return made


def short(cgroup: str) -> str:
    """Last part of a cgroup's path, ids of containers to 12 digits: "docker-0123456789ab.scope"."""
    return LONG_ID.sub(r"\1", cgroup.rpartition("/")[2]) or cgroup


def row(one: Surveyed) -> dict[str, Cell]:
    return {
        "PID": str(one.pid),
        "name": one.name,
        "tables MiB": round(one.table_bytes / 2**20, 1),
        **as_row(one),
        "runs on, %": by_node({str(node): round(100 * share) for node, share in one.runs.items()}),
        "huge, % of RSS": percent(min(one.huge_bytes / one.rss_bytes, 1) if one.rss_bytes else None),
    }


# `ptanalyze survey --guest VM`: the answer about the address spaces of a guest.


def survey_guest_answer(guest: GuestSurvey, top: int | None, socket: str | None = None) -> Answer:
    """top: as of `answer`; socket: that of QEMU which the user named, for the command that looks closer."""
    from ..core.columns import Answer

    def table() -> DataFrame:
        from pandas import DataFrame

        from ..core.columns import Finding, described

        return described(
            DataFrame([flat(survey_guest_record(one)) for one in guest.found[:top]]),
            [Finding("survey", one) for one in guest.notes],
        )

    def drawn() -> DataFrame:
        """An address space without a PID is called by its CR3."""
        found = table()
        found["pid"] = found["pid"].astype(object).where(found["pid"].notna(), found["cr3"])
        return found

    return Answer(
        "survey-guest",
        table,
        lambda: as_json(guest, top),
        lambda: view_survey_guest(guest, top or ROWS, socket),
        {"survey": drawn},
    )


def as_json(guest: GuestSurvey, top: int | None) -> dict[str, object]:
    return {
        "vmm_pid": guest.pid,
        "by": "kernel" if guest.by_kernel else "cr3",
        "samples": guest.samples,
        "notes": [*guest.notes],
        "found": [survey_guest_record(one) for one in guest.found[:top]],
    }


def survey_guest_record(one: GuestProcess) -> dict[str, object]:
    return {
        "cr3": f"{one.cr3:#x}",
        "pid": one.pid,
        "name": one.name,
        "tables": one.tables,
        "mapped_bytes": one.mapped_bytes,
        "huge_bytes": one.huge_bytes,
        **as_record(one),
        "seen": one.seen,
        "unread": one.unread,
    }


def view_survey_guest(guest: GuestSurvey, top: int, socket: str | None) -> Iterator[Section]:
    """A sentence, the table with its notes, and what to type next."""
    from ..core.columns import Section
    from ..show.terminal import next_steps

    found, lines = guest.found, [*guest.notes]
    if worst := next((one for one in found if one.remote_bytes), None):
        named = f"guest PID {worst.pid} ({worst.name})" if guest.by_kernel else f"CR3 {worst.cr3:#x}"
        share = f"{100 * (worst.remote_share or 0.0):.0f} %"
        said = f"Most remote: {named}, {share} of its walks read a remote leaf table."
    else:
        said = "No leaf table is expected to be remote: all are on the nodes where the vCPUs run."
    yield Section(lines=[said, ""])
    if len(found) > top:
        lines.append(f"{len(found) - top} more: --top {len(found)}")
    if unread := sum(one.unread for one in found):
        lines.append(
            f"not counted: {unread} tables that lie outside the guest's memory, were freed meanwhile, or are "
            "too many"
        )
    how = "its kernel's list" if guest.by_kernel else f"CR3s in {guest.samples} samples"
    yield Section(
        f"Page tables of the guest of PID {guest.pid}, by {how}",
        [survey_guest_row(one, guest.by_kernel) for one in found[:top]],
        lines,
    )
    if found:
        yield Section(lines=[""])
        yield next_steps({"dump the first": survey_guest_closer(guest.pid, found[0], socket)})


def survey_guest_closer(pid: int, one: GuestProcess, socket: str | None) -> str:
    by = f" --qmp {socket}" if socket else ""
    return f"sudo {this_program()} dump vm {pid} --guest-tables{by} --cr3 {one.cr3:#x} -o {pid}.capture"


def survey_guest_row(one: GuestProcess, by_kernel: bool) -> dict[str, Cell]:
    named: dict[str, Cell] = (
        {"guest PID": str(one.pid), "name": one.name} if by_kernel else {"seen": one.seen}
    )
    return {
        "CR3": f"{one.cr3:#x}",
        **named,
        "tables": one.tables,
        **as_row(one),
        "huge, %": percent(one.huge_bytes / one.mapped_bytes if one.mapped_bytes else None),
    }
