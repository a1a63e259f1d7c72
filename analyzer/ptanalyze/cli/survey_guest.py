"""`ptanalyze survey --guest VM`: the answer about the address spaces of a guest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .node_columns import as_record, as_row, flat, percent

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..analysis.answer import Answer, Cell, Section
    from ..capture.live.survey_guest import GuestProcess, GuestSurvey


def answer(guest: GuestSurvey, top: int, socket: str | None = None) -> Answer:
    """socket: that of QEMU which the user named, for the command that looks closer."""
    from ..analysis.answer import Answer

    def table() -> DataFrame:
        from pandas import DataFrame

        from ..core.units import described

        return described(DataFrame([flat(record(one)) for one in guest.found]), guest.notes)

    def drawn() -> DataFrame:
        """An address space without a PID is called by its CR3."""
        found = table()
        found["pid"] = found["pid"].astype(object).where(found["pid"].notna(), found["cr3"])
        return found

    return Answer(
        "survey-guest", table, lambda: as_json(guest), lambda: view(guest, top, socket), {"survey": drawn}
    )


def as_json(guest: GuestSurvey) -> dict[str, object]:
    return {
        "vmm_pid": guest.pid,
        "by": "kernel" if guest.by_kernel else "cr3",
        "samples": guest.samples,
        "notes": [*guest.notes],
        "found": [record(one) for one in guest.found],
    }


def record(one: GuestProcess) -> dict[str, object]:
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


def view(guest: GuestSurvey, top: int, socket: str | None) -> Iterator[Section]:
    from ..analysis.answer import Section

    found, lines = guest.found, [*guest.notes]
    if len(found) > top:
        lines.append(f"{len(found) - top} more; --top {len(found)} prints all")
    if unread := sum(one.unread for one in found):
        lines.append(
            f"{unread} tables lie in no memory of the guest, were freed meanwhile, "
            "or are too many: not counted"
        )
    if found:
        lines.append(f"look closer: {closer(guest.pid, found[0], socket)}")
    if not any(one.remote_bytes for one in found):
        lines.append("no leaf table is expected to be remote: all are on the nodes where the vCPUs run")
    how = "its kernel's list" if guest.by_kernel else f"CR3s in {guest.samples} samples"
    yield Section(
        f"Page tables of the guest of PID {guest.pid}, by {how}",
        [row(one, guest.by_kernel) for one in found[:top]],
        lines,
    )


def closer(pid: int, one: GuestProcess, socket: str | None) -> str:
    by = f" --qmp {socket}" if socket else ""
    return f"ptanalyze dump vm {pid} --guest-tables{by} --cr3 {one.cr3:#x} -o {pid}.capture"


def row(one: GuestProcess, by_kernel: bool) -> dict[str, Cell]:
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
