"""`ptanalyze fragmentation`: over how many ePT cache lines neighbouring pages are scattered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from ..core.bundled import DEFAULT_MACHINE
from .options import capture_argument, complete_machines, json_option, open_or_default
from .plotting import plot_option, write_plot
from .replaying import pair_of

if TYPE_CHECKING:
    from ..world.fragmentation import Fragmentation
    from ..world.world import World

    Found: TypeAlias = Mapping[str, Fragmentation]


@click.command("fragmentation")
@capture_argument
@click.option("--by", type=click.Choice(["all", "vma"]), default="all", show_default=True)
@click.option("--after", is_flag=True, help="Measure again with PTEMagnet's allocator in the guest.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="With --after: group or reserve_limit, see `ptanalyze policies`.",
)
@click.option(
    "-m",
    "--machine",
    default=DEFAULT_MACHINE,
    show_default=True,
    help="Name or TOML file; for --after.",
    shell_complete=complete_machines,
)
@click.option("--csv", "as_csv", is_flag=True, help="Print the histograms as CSV in tidy form.")
@plot_option()
@json_option
def command(
    capture: str | None,
    by: str,
    after: bool,
    settings: tuple[str, ...],
    machine: str,
    as_csv: bool,
    plot: str | None,
    as_json: bool,
) -> None:
    """How scattered over ePT cache lines the neighbours of each gPT cache line of CAPTURE are: 1 to 8.

    The metric of the PTEMagnet paper (section 3.2). CAPTURE is of a VM. With --after also what reservations
    of aligned groups of guest frames would make of it (section 4), in the order of the trace's faults.

    Example: ptanalyze fragmentation vm --after --set reserve_limit=4096
    """
    from ..analysis.fragmentation import fragmented
    from ..analysis.setup import Setup
    from ..core.errors import UsageError
    from ..show.progress import progress_bar

    if settings and not after:
        raise UsageError(f"--set {settings[0]}: parameters are for --after")
    opened = open_or_default(capture)
    chosen = dict(map(pair_of, settings)) if after else None
    with progress_bar() as progress:
        found, shaped = fragmented(opened, by, chosen, Setup.of(machine=machine, progress=progress))
    show(found, shaped, as_json, as_csv)
    if plot:
        from ..analysis import answers as frames
        from ..show import plots

        where = {"capture": str(opened.directory)}
        write_plot(plot, plots.fragmentation(frames.fragmentation_frame(found, where)))


def show(found: Found, shaped: World | None, as_json: bool, as_csv: bool) -> None:
    from ..show.terminal import console, print_json, print_rows, print_sections

    if as_json:
        record = {when: as_record(seen) for when, seen in found.items()}
        facts = {"facts": shaped.facts, "notes": shaped.notes} if shaped else {}
        return print_json("fragmentation", {**record, **facts})
    if as_csv:
        for when, seen in found.items():
            table = seen.frame().assign(state=when)
            click.echo(table.to_csv(index=False, header=when == "before"), nl=False)
        return None
    if rows := [*rows_of(found, False), *rows_of(found, True)]:
        print_rows("ePT cache lines for each gPT cache line; full ones have all eight pages", rows)
        histograms = [*histogram_rows(found, False), *histogram_rows(found, True)]
        print_rows("Share of gPT cache lines that have 1 to 8 ePT cache lines", histograms)
    else:
        console().print("no page of 4 KiB that the host maps: nothing to measure")
    for line in asides(found["before"]):
        console().print(f"- {line}")
    if shaped:
        print_sections({"Reservations": reservation_rows(shaped.facts)})
        for note in shaped.notes:
            console().print(f"- {note}")
    return None


def as_record(seen: Fragmentation) -> dict[str, Any]:
    return {
        "all": seen.summary(),
        "full": seen.summary(full=True),
        "histogram": seen.frame().to_dict("records"),
        "huge_leaves": [dict(zip(("2m", "1g"), row, strict=True)) for row in seen.huge.tolist()],
        "unresolved": seen.unresolved.tolist(),
    }


def rows_of(found: Found, full: bool) -> list[dict[str, Any]]:
    """One row a group that has lines: number, mean, shares; what comes after stands beside it."""
    before, *later = (seen.summary(full) for seen in found.values())
    rows = []
    for k, row in enumerate(before):
        if row["gPT lines"]:
            named = {"of": row["of"], "lines": "full" if full else "all", "gPT lines": row["gPT lines"]}
            then = {f"{name} after": value for after in later for name, value in metrics(after[k]).items()}
            rows.append(named | metrics(row) | then)
    return rows


def metrics(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "mean": row["mean"],
        "scattered": percent(row["scattered"]),
        "over all 8": percent(row["fully scattered"]),
    }


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def histogram_rows(found: Found, full: bool) -> list[dict[str, Any]]:
    """One row a group and state with the share of lines that have 1, 2, ... 8 ePT lines."""
    rows = []
    for when, seen in found.items():
        for group, counts in zip(seen.groups, seen.histogram(full), strict=True):
            if total := counts.sum():
                named = {"of": group, "lines": "full" if full else "all", "state": when}
                rows.append(named | {str(k + 1): percent(n / total) for k, n in enumerate(counts)})
    return rows


def asides(seen: Fragmentation) -> Iterator[str]:
    """What has no gPT line or no ePT line, one line each."""
    for size, count in zip(("2 MiB", "1 GiB"), seen.huge.sum(axis=0).tolist(), strict=True):
        if count:
            yield f"not measured: {count:,} guest leaves of {size}"
    if missing := int(seen.unresolved.sum()):
        yield f"not measured: {missing:,} gPTEs whose frame the host does not map"


def reservation_rows(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "made": facts["reservations"],
        "reclaimed": facts["reservations_reclaimed"],
        "faults that found one": facts["faults_served_from_a_reservation"],
        "faults without a block": facts["faults_without_a_block"],
        "pages that stay": facts["pages_kept"],
        "unused, peak": f"{mib(facts['unused_bytes_peak'])}, {100 * facts['unused_share_at_peak']:.2f} % "
        "of what was mapped then",
        "unused, mean": mib(facts["unused_bytes_mean"]),
        "unused, end": f"{mib(facts['unused_bytes_end'])}, {100 * facts['unused_share_end']:.2f} %",
    }


def mib(size: float) -> str:
    return f"{size / (1 << 20):,.2f} MiB"
