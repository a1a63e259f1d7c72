"""`ptanalyze hugepages`: which mapping gains from huge pages, and the line to type for it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from click.core import ParameterSource

import ptanalyze as pt

from .trial_command import block_options, left_and_refused

if TYPE_CHECKING:
    from pandas import DataFrame

    from .blocks import Blocks

MAPPINGS, LINES = 8, 3  # of a first screen
PAUSE = 20.0  # ms between two blocks
WORTH_TYPING = 0.005  # of all walks saved: shown as 1 %


@click.command("hugepages")
@pt.options.capture_argument
@click.option(
    "-p", "--pid", type=pt.options.pid, metavar="PID", help="This process. Default: what CAPTURE names."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all mappings of CAPTURE.")
@click.option("--dry-run/--yes", default=True, help="PID: print the plan, or do it. Default: --dry-run.")
@click.option("--undo", is_flag=True, help="PID: make its pages as they were found. Default: off.")
@click.option(
    "--for",
    "seconds",
    type=pt.options.duration,
    metavar="TIME",
    help="PID: sample accessed bits for this long, and begin with the blocks that are accessed most. "
    "Default: by address.",
)
@click.option("--top", type=click.IntRange(1), metavar="N", help="PID: the first N blocks. Default: all.")
@block_options
@pt.replay_options.replay_options
@click.pass_context
def command(
    context: click.Context,
    /,
    capture: str | None,
    pid: int | None,
    as_json: bool,
    dry_run: bool,
    undo: bool,
    seconds: float | None,
    top: int | None,
    least: int,
    memory: int,
    pause: float | None,
    **options: Any,
) -> None:
    """Rank CAPTURE's mappings by the page walks that huge pages would save per MiB, or make those of a PID.

    All mappings get huge pages together, like under the policy thp: anonymous memory, unless the program
    forbids it. For each mapping it prints the line that enables huge pages for it alone on mainline Linux.
    CAPTURE needs a trace.

    With a PID, or the name of one process, filled blocks of 2 MiB become huge pages while it runs on: private
    anonymous memory, whatever transparent huge pages are set to. Root, Linux 6.1; exit code 3: no block
    became huge, or after --undo some are not as found.

    \b
    Examples:
      ptanalyze hugepages app.capture
      sudo ptanalyze hugepages redis-server
      sudo ptanalyze hugepages 1234 --yes --for 5s --top 200
      sudo ptanalyze hugepages 1234 --undo
    """
    if len(both := [one for one in ("--yes", "--dry-run", "--undo") if one in context.meta["typed"]]) > 1:
        raise pt.UsageError(f"hugepages: give {' or '.join(both)}, not both")
    if pid is not None and capture is not None:
        raise pt.UsageError("hugepages: give a PID or a CAPTURE, not both")
    of_either = [param for param in context.command.params if param.name not in ("capture", "pid")]
    source, given = context.get_parameter_source, ParameterSource.COMMANDLINE
    typed = [param for param in of_either if source(param.name or "") is given]
    of_pid = {"dry_run", "undo", "seconds", "top", "least", "memory", "pause"}
    if capture is not None:
        pid = process_of(capture, any(param.name in of_pid for param in typed))
    for param in typed:
        if (pid is not None) is not (param.name in of_pid):
            whose = f"a process: -p {capture or 'PID'}" if pid is None else "CAPTURE"
            option = "--yes" if param.name == "dry_run" and not dry_run else param.opts[0]
            raise pt.UsageError(f"hugepages: {option} goes with {whose}")
    if pid is not None:
        with ExitStack() as stack:
            from .blocks import Blocks

            changer = "hugepages --undo" if undo else "hugepages" if dry_run else "hugepages --yes"
            wait = (PAUSE if pause is None else pause) / 1000
            blocks = Blocks(stack, pid, 0 if undo else least / 100, memory, wait, changer)
            asked = pt.replay_options.given(*of_pid - {"dry_run", "undo"})
            for line in back(blocks) if undo else change(blocks, dry_run, seconds, top, asked):
                with suppress(BrokenPipeError):  # `| head -1`: what was asked for is done
                    pt.options.echo(line)
        return
    from .mappings import huge_pages

    opened = pt.replay_options.capture_of(capture)
    with pt.terminal.progress_bar() as progress:
        table = huge_pages(opened, pt.replay_options.setup_from(options, opened, progress))
    walks = {name: table.attrs[name] for name in ("walks", "walks_left")}
    pt.options.Output("json" if as_json else "table").emit(
        "hugepages",
        lambda: table,
        lambda: {**walks, "mappings": table.to_dict("records")},
        lambda: view(table),
    )


def process_of(words: str, asked: bool) -> int | None:
    """PID that is meant; None: a capture. asked: options say that it is a process."""
    file = os.path.exists(words) and not (os.path.isfile(words) and pt.live.named(words))
    if file or (pt.errors.bundled("samples") / (words or "-")).exists():
        return None
    if asked or not words.strip("0123456789 \n") or pt.live.named(words):
        return pt.options.pid(words)
    raise pt.UsageError(f"hugepages: no capture is at {words}, and {pt.live.not_running(words)}")


def change(
    blocks: Blocks, dry_run: bool, seconds: float | None, top: int | None, asked: Sequence[str]
) -> Iterator[str]:
    """What is made huge, or would be: lines. asked: the options given, for the next step."""
    from .blocks import HUGE, PAGE, must_be_made, record_of, state, to_undo, undone
    from .mappings import accessed, half_of

    words, plural = pt.errors.size_in_words, pt.errors.plural
    chosen, order = np.flatnonzero(~blocks.was_huge), "by address"
    undo = f"undo with: {to_undo(blocks.pid)}"
    if not len(chosen):
        way = f"; {undo}" if record_of(blocks) else ", as found"
        yield f"{pt.live.called(blocks.pid)}: all of {plural(len(blocks.address), 'filled block')} huge{way}"
        return
    if seconds is not None:
        pt.options.echo(f"sampling PID {blocks.pid} for {seconds:g} s", err=True)
        halves = accessed(blocks.pid, blocks.address, max(round(seconds), 1))[:, chosen]
        chosen = chosen[np.argsort(-halves.sum(0), kind="stable")]
        order = f"most accessed first (half of the accesses are to {half_of(halves):,} of {len(chosen):,})"
    chosen = blocks.allowed(chosen[:top])
    yield (
        f"{pt.live.called(blocks.pid)}: {plural(len(blocks.address), 'filled block')} of 2 MiB, "
        f"{np.count_nonzero(blocks.was_huge):,} of them huge; {'would make' if dry_run else 'making'} "
        f"{len(chosen):,} huge, {order}"
    )
    for area in blocks.areas:
        mine = chosen[(blocks.address[chosen] >= area.start) & (blocks.address[chosen] < area.end)]
        if len(mine):
            sizes = ", ".join(map(words, (HUGE * len(mine), PAGE * int(blocks.holes[mine].sum()))))
            name = area.name[:20] or "anonymous"
            yield f"{area.start:<14x} {name:20} {plural(len(mine), 'block')}, {sizes} more"
    if dry_run:
        yield from left_and_refused(blocks)
        if record_of(blocks):
            yield f"pages were changed before; {undo}"
        again = shlex.join(["hugepages", str(blocks.pid), "--yes", *asked])
        if not len(chosen):
            yield "nothing was changed"
            return
        takes = pt.errors.show_duration(round(blocks.takes(len(chosen)), 1))
        yield f"takes          about {takes}, with {1000 * blocks.pause:g} ms between two blocks (--pause)"
        yield "longest wait   in tests of redis and memcached, not of this: 10 to 200 ms"
        yield f"meanwhile      {pt.columns.message('trial', 'meanwhile')}"
        yield f"nothing was changed; next: {pt.errors.as_root()} {again}"
        return
    must_be_made(blocks, len(chosen))
    yield f"if this is killed (kill -9), {undo}"
    try:
        with pt.terminal.progress_bar() as blocks.progress, undone(blocks, kept=True) as left:
            made = must_be_made(blocks, blocks.collapse(chosen))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"; {state(left)}") from None
    yield f"made huge      {plural(made, 'block')}, {words(blocks.added)} more memory"
    yield from left_and_refused(blocks)
    yield "lasts          until pages are given back, or copied after a fork, as by each save of a redis"
    yield undo


def back(blocks: Blocks) -> Iterator[str]:
    from .blocks import ANEW, state, undo

    before = blocks.address[blocks.was_huge]
    if not (wrong := undo(blocks)):
        yield f"{pt.live.called(blocks.pid)}: nothing to undo: no change of its pages is recorded"
        return
    before, after = np.intersect1d(before, blocks.address), blocks.address[blocks.huge()]
    changed = np.setdiff1d(before, after), np.setdiff1d(after, before)
    theirs = np.setdiff1d([*blocks.theirs], blocks.address[blocks.was_huge])
    small, huge, other = (pt.errors.plural(len(some), "block") for some in (*changed, theirs))
    left = [*filter(None, wrong.values()), *([f"{other} {ANEW}"] if len(theirs) else [])]
    yield f"{pt.live.called(blocks.pid)}: {'as found: ' * (not left)}{small} small again, {huge} huge again"
    yield from left_and_refused(blocks)
    if left:
        raise pt.errors.PartialDataError(state(left))


def view(table: DataFrame) -> Iterator[pt.columns.Section]:
    """The mapping that saves most, the mappings (`huge_pages`), and what to type for the best of them."""
    from .mappings import NO_LINE

    message, walks = pt.columns.message, max(table.attrs["walks"], 1)
    rows = [
        {
            "mapping": f"{row.start:x}",
            "name": (row.name.rpartition("/")[2] or "anonymous")[:20],
            "walks": f"{100 * row.walks / walks:.0f} %",
            "saved": f"{100 * row.saved_share:.0f} %",
            "huge pages": pt.errors.size_in_words(row.huge_bytes),
            "waste": pt.errors.size_in_words(row.waste_bytes),
            "saved/MiB": f"{row.saved_per_mib:,.0f}",
        }
        for row in table.head(MAPPINGS).itertuples(index=False)
    ]
    best = table[(table.huge_bytes > 0) & (table.walks_saved > 0)].nlargest(1, "walks_saved")
    gains = [
        message("hugepages", "best", name=name or "anonymous memory", start=start, share=share)
        for name, start, share in best[["name", "start", "saved_share"]].itertuples(index=False)
    ]
    findings = [pt.columns.Finding(**{**one, "policy": ""}) for one in table.attrs["findings"]]
    careful = [finding.sentence for finding in findings if finding.weight == pt.columns.CAREFUL]
    yield pt.columns.Section(lines=[str(gains[0] if gains else message("hugepages", "none")), *careful, ""])
    more = [str(message("hugepages", "more", rows=left))] if (left := len(table) - MAPPINGS) > 0 else []
    yield pt.columns.Section("", rows, [*more, ""])
    worth = table[(table.saved_share >= WORTH_TYPING) & (table.walks_saved > 0)]
    lines = [
        line
        for row in worth[~worth["line"].isin([NO_LINE])].head(LINES).itertuples(index=False)
        for line in pt.terminal.typed(f"{row.start:x}", row.line)
    ]
    yield pt.columns.Section("Type" if lines else "", [], lines)
