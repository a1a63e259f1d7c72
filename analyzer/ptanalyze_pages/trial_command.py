"""`ptanalyze trial`: the user's program with its page tables far and near, or with small and huge pages."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click

import ptanalyze as pt

if TYPE_CHECKING:
    from .blocks import Blocks
    from .far_tables import Trial
    from .trial import Measured, Ratio


WARM_UP, PAIRS = 10.0, 3  # seconds; of measurements
BLOCK_OPTIONS = (
    click.option(
        "--least",
        type=click.IntRange(1, 100),
        default=round(100 * pt.law.PageTrial.FILLED),
        show_default=True,
        metavar="PERCENT",
        help="Blocks of 2 MiB to change: those of which this much is in use; the rest is filled up.",
    ),
    click.option(
        "--memory",
        type=pt.options.size,
        default="256M",
        show_default=True,
        help="Memory that filling up blocks may take.",
    ),
    click.option(
        "--pause",
        type=click.FloatRange(0, 10_000),
        metavar="MS",
        help="Milliseconds between two blocks that are made huge; 0: 16 of them per call. Default: 20 with "
        "hugepages, 0 with trial.",
    ),
)


def block_options(command: Callable[..., None]) -> Callable[..., None]:
    """Which blocks of a process may become huge pages, and how."""
    for option in reversed(BLOCK_OPTIONS):
        command = option(command)
    return command


@click.command("trial")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option(
    "-p",
    "--pid",
    type=pt.options.pid,
    metavar="PID",
    help="Measure a running process, by PID or unique name: its tables alone are moved, and left on the "
    "--near node, that of its threads. Default: none, with --pages COMMAND.",
)
@click.option(
    "--figure-of",
    "figure",
    metavar="CMD",
    help="Shell command that prints the work done so far, a growing total; its increase per second is "
    "measured, with --pages per CPU second. Default: none; with --pages COMMAND is run to its end each time.",
)
@click.option("--near", type=click.IntRange(0, 63), default=0, show_default=True, help="Node of the threads.")
@click.option("--far", type=click.IntRange(0, 63), default=1, show_default=True, help="Node of far tables.")
@click.option(
    "--warm-up",
    type=pt.options.duration,
    help="With --pages: time for COMMAND to allocate its memory, 10s, 5m. Default: 10s; of a COMMAND that is "
    "run to its end, until it has what a first run had.",
)
@click.option("--user", metavar="NAME", help="Run COMMAND as this user. Default: you, also under sudo.")
@click.option(
    "--for",
    "seconds",
    type=pt.options.duration,
    help="Length of each measurement. Default: 10s; with --pages 500ms, or 1s for a coarse figure.",
)
@click.option(
    "--pairs", type=click.IntRange(1, 100), default=PAIRS, show_default=True, help="Pairs of measurements."
)
@click.option(
    "--pages",
    is_flag=True,
    help="Measure 4 KiB against 2 MiB pages on any machine, in place of tables. Default: off.",
)
@click.option(
    "--time",
    "limit",
    type=pt.options.duration,
    help="With --pages: time for all measurements. Default: 60 times --for, 30s or 60s.",
)
@click.option(
    "--precision",
    type=click.FloatRange(0.01, 100),
    default=1.0,
    show_default=True,
    metavar="PERCENT",
    help="With --pages: end before --time when the range of the ratio is narrower than this.",
)
@block_options
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(),
    callback=pt.options.must_end_with("toml"),
    metavar="FILE.toml",
    help="Calibration to write, for whatif --calibration. Default: none.",
)
def command(
    words: tuple[str, ...],
    pid: int | None,
    figure: str | None,
    near: int,
    far: int,
    warm_up: float | None,
    user: str | None,
    seconds: float | None,
    pairs: int,
    pages: bool,
    limit: float | None,
    precision: float,
    least: int,
    memory: int,
    pause: float | None,
    file: str | None,
) -> None:
    """Measure a process with its leaf page tables alternately on a far and on the near node, or with --pages.

    Its data stay where they are; a dump verifies the nodes of tables and data for each measurement. Cycles of
    page walks are counted, too, where the CPU counts them. Needs root and two nodes.

    --pages needs root and Linux 6.1, no second node. Filled blocks of 2 MiB become huge and small in turns
    while the program runs on, and are left as found. The figure is --figure-of, else system calls per CPU
    second, else instructions per cycle; COMMAND without it is run to its end, and its CPU time measured.

    \b
    Examples:
      sudo ptanalyze trial --figure-of 'cat done' -p 1234 -o app.toml
      sudo ptanalyze trial --pages -p redis-server -o app.toml
      sudo ptanalyze trial --pages -o app.toml -- ./app
      ptanalyze whatif app.capture --calibration app.toml
    """
    from ptanalyze_host.dump import alive

    from . import trial
    from .far_tables import largest, refused, try_live, two_nodes

    if words and "--" not in click.get_current_context().meta["typed"]:
        ways = f"-p {words[0]} tries one that runs, -- {shlex.join(words)} starts a new one"
        raise pt.UsageError(f"trial {words[0]}: a process or a command? {ways}")
    if (pid is None) == (not words) or (user and not words):
        need = ", as --user needs" if user else ""
        raise pt.UsageError(f"trial: give a command after --{need}, or a process with -p PID")
    say = partial(pt.options.echo, err=True)
    if pages:
        length = seconds or 0.0, limit or 0.0, precision / 100
        every = click.get_current_context().params.keys() - {"words", "limit", "pairs"}
        asked = [*pt.replay_options.given(*every), *(["--", *words] if words else [])]
        with ExitStack() as stack:
            progress = stack.enter_context(pt.terminal.lines_of_progress(first=pt.terminal.STILL))
            who = pt.live.as_typed(user)
            how = trial.How(least / 100, memory, (pause or 0) / 1000, *length, say, who, progress)
            running = pid
            if pid is None and figure is None:
                measured = trial.try_runs(words, warm_up, pairs, how)
            else:
                pid = pid or largest(trial.start(stack, words, warm_up or WARM_UP, how).pid)
                words = words or tuple(pt.live.command_line(pid))
                measured = trial.try_pages(pid, figure, how)
        unfit = False
        try:
            if file is not None:
                made = trial.record(measured, words)
                made.must_fit(True, gain=made.answer)
                pt.measured.write_calibration(file, made)
        except pt.law.UnfitError as error:
            unfit = True
            say(f"{file}: not written: {error.why}")
        finally:  # a pipe may end before
            for line in lines_of(measured, running if running and alive(running) else None, asked):
                pt.options.echo(line)
        raise click.exceptions.Exit(3 if measured.left or unfit or not measured.gain else 0)  # as was said
    two_nodes(near, far)
    if pid is None or figure is None:
        raise refused("of-a-process")
    seconds = seconds or 10.0
    with ExitStack() as stack:
        done = try_live(stack, pid, figure, near=near, far=far, seconds=seconds, pairs=pairs, say=say)
    each = done.slowdowns
    of_each = f", {pt.errors.plural(len(each), 'pair')} of {seconds:g} s each"
    few = len(each) < pt.law.PageTrial.LEAST_PAIRS
    pt.options.echo(written(trial.paired(each), "run time with far tables", "near ones", of_each, few=few))
    if file is not None:
        write(file, done)


def measure(command: Sequence[str], user: str | None, file: Path) -> None:
    """Write the trial of a command that is run to its end in turns, for `record --pages`.

    user  whom it runs as, None: whoever typed this
    UsageError, PartialDataError where nothing is measured, or where noise is all there is.
    """
    from . import trial

    how = trial.How(say=partial(pt.options.echo, err=True), run_as=pt.live.as_typed(user))
    with pt.terminal.lines_of_progress(first=pt.terminal.STILL) as progress:
        measured = trial.try_runs(command, None, PAIRS, how._replace(progress=progress))
    how.say(lines_of(measured)[0])
    made = trial.record(measured, command)
    pt.measured.write_calibration(file, made)
    if made.gain.middle >= made.LEAST_GAIN:
        made.must_fit(True)


def written(ratio: Ratio, what: str, of: str, numbers: str, *, few: bool) -> str:
    gain = f"{ratio[1]:.3g}x, too few for a range," if few else pt.Interval(*ratio)
    return str(pt.columns.message("trial", "answer", gain=gain, what=what, of=of, numbers=numbers))


def lines_of(done: Measured, pid: int | None = None, asked: Sequence[str] = ()) -> list[str]:
    """The answer, then how it was come by. pid: of a process that runs on, and may have huge pages; asked:
    words of the trial, but for its length."""
    from .trial import BUSY, LEAST_PAIRS, paired

    rates, blocks, share = done.rates, done.blocks, done.share.get("found", 0.0)
    count, least = {state: len(each) for state, each in rates.items()}, pt.law.PageTrial.LEAST_PAIRS
    partly = f"its pages as found ({100 * share:.0f} % of its memory huge)"
    in_row = blocks and not done.runs and 2 * blocks.in_row.sum() > len(blocks.address)
    found = f"small pages as found{', in contiguous frames already' * bool(in_row)}"
    found = partly if share > pt.law.PageTrial.PARTLY else found
    whole = paired(done.whole[::2], done.whole[1::2]) if done.whole else None
    late = f"{found}, CPU time, that of making pages huge included"
    found += f", {done.figure}" * bool(whole)
    enough = {"found": least, "contiguous": least, "huge": LEAST_PAIRS if rates["split"] else least}
    few = any(0 < count[state] < needed for state, needed in enough.items())
    again = done.check
    pairs, split = f", {pt.errors.plural(count['huge'], 'pair')}", "small ones in contiguous frames"
    once = f", {count['contiguous']} and {pt.errors.plural(count['found'], 'window')}"
    later = f", {count['again']} and {pt.errors.plural(count['split'], 'window')}"
    ratios = (
        (done.huge_over_split, "huge pages", split, pairs),
        (done.gain, "huge pages", found, "" if done.contiguous else pairs),
        (whole, "whole runs", late, pairs),
        (done.contiguous, "contiguous frames", "pages as found", once),
        (again, "check at the end, as found again (1 expected)", split, later),
    )
    gain, first = done.answer, sorted(ratios, key=lambda one: one[0] != done.answer)
    sure = count["huge"] >= LEAST_PAIRS and gain == done.huge_over_split  # few windows of the rest or not
    lines = [written(ratio, *of, few=few and not (sure and ratio == gain)) for ratio, *of in first if ratio]
    lines = lines or ["huge pages: not measured"]
    if done.fixed_time:
        lines = [f"huge pages: {done.fixed_time}", f"if its work is fixed: {lines[0]}"]
    lines.append(f"figure         {done.figure}; {done.ended}")
    for number, what, why in (
        (done.thrown, "thrown away    ", ": huge pages came or went meanwhile"),
        (done.still, "left out       ", ": the figure did not grow (--for more time) or the load ended"),
    ):
        lines += [f"{what}{pt.errors.plural(number, 'window')}{why}"] if number else []
    if blocks:  # of a command's runs, those of the last with huge pages
        made = done.made[-1] if done.runs else max(done.made, default=0)
        lines += [
            f"blocks         {made:,} of {len(blocks.address):,} made huge, "
            f"{pt.errors.size_in_words(blocks.most_added)} added",
            *left_and_refused(blocks, ", summed over all turns"),
        ]
    if pid is not None and not few and done.contiguous and done.contiguous[0] > 1:
        stays = pt.columns.message("trial", "kept", gain=pt.Interval(*done.contiguous))
        lines.append(f"kept           {stays}")
    if again and not again[0] <= 1 <= again[2]:
        lines.append("drift          the check at the end misses 1: ratios over pages as found are less sure")
    if done.load > BUSY * (os.cpu_count() or 1):
        cpus = pt.errors.plural(os.cpu_count() or 1, "CPU")
        lines.append(f"busy           load {done.load:.1f} on {cpus}: threads wait, which widens ranges")
    time, runs = f"{max(60, 4 * done.seconds):.0f}s", str(min(3 * count["huge"], 100))
    more = ["--time", time] if rates["split"] else ["--pairs", runs]
    longer = f"; next: {pt.errors.as_root()} trial {shlex.join([*more, *asked])}"
    if pid is not None and share >= pt.law.PageTrial.MOSTLY_HUGE:
        sizes = {"huge": share * done.resident, "memory": done.resident}
        lines.append(f"no proposal    {pt.columns.message('trial', 'already', **sizes)}")
    elif gain and few and not (sure or done.fixed_time):
        lines.append(f"no proposal    measured too few times{longer}")
    elif gain and gain[0] > 1 and pid is not None and not done.fixed_time:
        lines.append("lasts          until pages are copied after a fork, as by each save of a redis")
        given = {"--least", "--memory", "--pause"}
        kept = [word for pair in pairwise(asked) if pair[0] in given for word in pair]
        line = shlex.join(["hugepages", str(pid), "--yes", *kept])
        lines.append(f"next           {pt.errors.as_root()} {line}")
    elif gain and gain[0] > 1 and not done.fixed_time:
        knob = "anonymous" if pt.live.huge_pages() == "never" else "malloc"
        named = {"gain": whole and whole[1], "knob": pt.columns.message("knob", knob)}
        way = pt.columns.message("trial", "at-first" if whole else "from-start", **named)
        lines.append(f"to have them   {way}")
    elif gain and gain[0] <= 1 and not done.fixed_time:
        why = "gain" if gain[2] < pt.law.PageTrial.LEAST_GAIN else "noisy"
        sentence = pt.columns.message("trial", why, gain=pt.Interval(*gain))
        lines.append(f"no proposal    {sentence}{longer if why == 'noisy' else ''}")
    return lines


def left_and_refused(blocks: Blocks, turns: str = "") -> list[str]:
    """What was not done, after the longest call (ADR 43)."""
    block = partial(pt.errors.plural, what="block")
    wait = f"longest call   {1000 * blocks.longest:.1f} ms; a thread may wait so long, and then for a CPU"
    wait += "" if blocks.pause else "; --pause makes calls shorter"
    return [
        *([wait] if blocks.longest else []),
        *(f"left alone     {block(count)}: {why}" for why, count in blocks.left.most_common()),
        *(f"refused        {block(count)}{turns}: {why}" for why, count in blocks.refused.most_common()),
    ]


def write(file: str, done: Trial) -> None:
    """The calibration that both placements give, by the leaf entries that were found far in each."""
    from ptanalyze_law.run_time import calibrate

    near = counters(Path(file).with_suffix(".near.csv"), done.counts(False))
    far = counters(Path(file).with_suffix(".far.csv"), done.counts(True))
    try:
        calibration = calibrate(
            near,
            far,
            placement=f"L:{1 - done.share(True):.4f},R:{done.share(True):.4f}",
            at=f"L:{1 - done.share(False):.4f},R:{done.share(False):.4f}",
            seconds=done.seconds,
            remote_seconds=done.seconds * done.slowdown,
            native=True,
        )
    except pt.errors.PtanalyzeError as error:
        pt.options.echo(f"{file}: not written: {error}", err=True)
        return
    pt.measured.write_calibration(file, calibration)
    pt.options.echo(f"{file}: written; {pt.options.next_step('calibrate', file)}")


def counters(file: Path, counts: Mapping[str, float]) -> Path | None:
    """Counts as `perf stat -x,` writes them, for `calibrate`; None without counts."""
    if not counts:
        return None
    with pt.formats.atomic_write(file, "w", given=True) as out:
        out.writelines(f"{count:.0f},,{event},1,100.00,,\n" for event, count in counts.items())
    return file
