"""`ptanalyze classify`: how local page-table leaves are, seen from each socket."""

from collections.abc import Iterator
from functools import partial

import click

from .options import Output, capture_argument, open_or_default, output_options
from .replay_options import machine_for, option, steps


@click.command("classify")
@capture_argument
@click.option(
    "--weight",
    "weights",
    multiple=True,
    type=click.Choice(["leaf", "walks", "heat", "samples"]),
    help="Weight: each leaf entry once, each walk of the trace, walks estimated from "
    "accessed bits, or each sample of accesses; repeatable. Default: leaf, and what else was captured; by "
    "thread walks or samples; by page heat.",
)
@click.option(
    "--by",
    type=click.Choice(["all", "vma", "thread", "process", "page"]),
    default="all",
    show_default=True,
    help="Groups to count: all together, each VMA, each thread of the trace, each process of the capture, or "
    "each page that `ptanalyze record -p` found used.",
)
@option("machine")
@option("threads_on")
@option("jobs")
@output_options("locality")
def command(
    capture: str | None,
    weights: tuple[str, ...],
    by: str,
    machine: str | None,
    threads_on: str,
    jobs: int,
    output: Output,
) -> None:
    """Share of local and remote leaf entries of CAPTURE's page table, for an observer on each socket.

    By mapped pages as in the vMitosis paper (section 2.2, Figure 2), and weighted by the trace's TLB misses.

    \b
    Examples:
      ptanalyze classify app.capture
      ptanalyze classify app.capture --by vma --weight walks --csv
      ptanalyze classify postgres --by process
      ptanalyze classify db --by page
    """
    from ..analysis.classify import classified, remote_by_first_touch, weight_of, where
    from ..analysis.frames import classes_frame
    from ..analysis.setup import Setup, counted, heated, others
    from ..core.columns import Section
    from ..show.classify import as_record, title, view
    from ..show.terminal import progress_bar

    opened = open_or_default(capture)
    if not weights:
        there = {
            "leaf": by not in ("thread", "page"),
            weight_of(opened.trace.facts) if opened.has_trace else "walks": opened.has_trace
            and by not in ("process", "page"),
            "heat": by == "page" or (opened.has_heat and by in ("all", "vma", "process")),
        }
        weights = tuple(weight for weight, has in there.items() if has) or ("walks",)
    found, by_touch = [], None
    with progress_bar() as progress:
        model = machine_for(opened, machine)
        setup = Setup.of(machine=model, threads_on=threads_on, jobs=jobs, progress=progress)
        for weight in weights:
            classes, walked = classified(opened, weight, by, setup)
            found.append((classes, title(weight, where(walked))))
            alone = by == "all" and classes.native and len(classes.nodes) == 1 < len(classes.sockets)
            if walked and alone and weight == "walks":
                by_touch = remote_by_first_touch(walked)

    def of_which(weight: str) -> str:
        if by == "process":
            return ""
        of = heated(opened) if weight == "heat" else others(opened) if weight == "leaf" else {}
        return counted(opened, len(of) if by == "all" else 0, weight == "heat")

    def shown() -> Iterator[Section]:
        whose = [f"Note: {one}." for one in dict.fromkeys(map(of_which, weights)) if one]
        yield Section(lines=[*whose, ""] if whose else [])
        finer = {"the same by VMA": "classify --by vma"} if by == "all" else {}
        further = steps(capture, {"what would be faster": "advise", **finer}, opened)
        yield from view(found, by, further, by_touch)

    table = partial(classes_frame, [classes for classes, _ in found], opened.source)
    output.emit("classify", table, lambda: [as_record(*one) for one in found], shown, {"locality": table})
