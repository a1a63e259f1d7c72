"""`ptanalyze record`: a program's memory trace and its page tables, in one run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import PartialDataError, UsageError, size_in_words
from ..show.terminal import FIRST, STILL
from .options import duration, echo, free_name, new_capture_option, next_step, pid, size

if TYPE_CHECKING:
    from ..capture.live.supervise import Recording, TraceSize
    from ..capture.live.tracers import Options

SAMPLERS = "ptanalyze.samplers"  # entry point: record_running of ptanalyze_host
TRIALS = "ptanalyze.trials"  # entry point: measure of ptanalyze_pages
SAMPLED = 30  # seconds, where -p is given no time
LEAST_BYTES = 1 << 16  # a trace's header and its longest chunk take 45,104
SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "busybox")


@click.command("record", context_settings={"ignore_unknown_options": True})
@new_capture_option("the program's name and .capture")
@click.option(
    "--tracer",
    type=click.Choice(["qemu", "pin", "perf", "heat"]),
    default=None,
    help="Tracer to run the program under, qemu or pin; with -p what to sample, TLB misses (perf) or "
    "accessed bits of page tables (heat). Default: qemu; with -p perf where the CPU counts TLB misses, else "
    "heat.",
)
@click.option("--no-dump", is_flag=True, help="Record only the trace, without page tables; needs no root.")
@click.option(
    "--dump-at",
    type=click.Choice(["end", "peak"]),
    help="When to read the page tables: at the end of the region, or when most memory is resident, since "
    "most programs free memory before they exit. Default: the end of a marked region, else the peak.",
)
@click.option(
    "--user",
    metavar="NAME",
    help="Run COMMAND as this user (root only). Default: you, also under sudo; for root itself, root.",
)
@click.option(
    "--roi-start-symbol",
    "start_symbol",
    default="",
    help="Function at whose entry tracing starts. Default: the program's start.",
)
@click.option(
    "--roi-end-symbol",
    "end_symbol",
    default="",
    help="Function at whose entry tracing ends. Default: the program's end.",
)
@click.option("--roi-marker", "marker", is_flag=True, help="Trace between the marks of pintool/roi.h.")
@click.option(
    "--roi-start-access",
    "start_access",
    type=int,
    default=0,
    show_default=True,
    help="Skip the first N accesses.",
)
@click.option(
    "--roi-accesses",
    "accesses",
    type=int,
    default=0,
    show_default=True,
    help="Number of accesses to trace; 0: all.",
)
@click.option(
    "--follow-fork",
    is_flag=True,
    help="Trace forked children too, each into OUTPUT/pid-PID, and wait for them. With -p: sample all "
    "descendants too, at the same time.",
)
@click.option(
    "--max-bytes",
    type=size,
    default="0",
    show_default=True,
    metavar="SIZE",
    help="Size limit of the trace: 500M, 10G; 0: none.",
)
@click.option(
    "--for",
    "seconds",
    type=duration,
    metavar="TIME",
    help="Time to trace, 30s or 5m of the traced (slower) run, from the region's start. With -p: time to "
    "sample. Default: to the end of the run; with -p 30s.",
)
@click.option(
    "--then",
    type=click.Choice(["run", "end"]),
    default="run",
    show_default=True,
    help="After the region: let the program run to its end, untraced but still under the tracer, which "
    "cannot detach; or end it like Ctrl-C.",
)
@click.option(
    "--seconds",
    "native_seconds",
    type=duration,
    metavar="TIME",
    help="Elapsed time of the region outside the tracer, which narrows the shares of the run. Default: not "
    "known.",
)
@click.option(
    "--strip",
    type=click.Choice(["on", "off"]),
    help="Drop touches that are certain first-level TLB hits and leave the TLB unchanged. Default: on.",
)
@click.option(
    "--pages",
    is_flag=True,
    help="First measure COMMAND with 4 KiB and 2 MiB pages: 7 more runs to its end, outside the tracer. The "
    "capture keeps the result, and whatif, advise and report begin with it. Default: off.",
)
@click.option(
    "-p",
    "--pid",
    type=pid,
    help="Sample this running process, by PID or unique name, instead of running COMMAND. Default: none.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def command(
    pid: int | None,
    output: str | None,
    tracer: str | None,
    no_dump: bool,
    dump_at: str | None,
    then: str,
    user: str | None,
    strip: str | None,
    seconds: float | None,
    native_seconds: float | None,
    pages: bool,
    command: tuple[str, ...],
    **region: Any,
) -> None:
    """Run COMMAND, trace its threads' memory accesses, and dump its page tables.

    Without a region the whole run is traced. Write -- before COMMAND. Dumping needs root; under sudo, COMMAND
    runs as the user who typed it and is looked up in this program's virtual environment first, and that user
    owns the capture. Tracing slows the program down 6-70x and writes up to 200 MB of trace per second and
    thread of the slower run.

    With -p nothing is traced and the process keeps running: it samples TLB misses (perf) if the machine has
    them, else accessed bits, which are cleared repeatedly and read back after delays of 1 to 300 ms; a set
    bit means that the page was walked in between. `classify`, `whatif` and `advise` weigh pages by it.

    \b
    Examples:
      sudo ptanalyze record -- ./app --threads 4
      sudo ptanalyze record --pages -- ./app --threads 4
      sudo ptanalyze record --for 30s --then end -- ./app
      sudo ptanalyze record -p redis-server --for 1m -o app
    """
    if pid is not None and pages:
        raise UsageError(f"--pages runs COMMAND several times; `trial --pages -p {pid}` measures what runs")
    if pid is not None and strip:
        raise UsageError("--strip: nothing is traced with -p, and samples are whole; leave it out")
    if pid is not None:
        whole = SAMPLED if seconds is None else seconds
        sample_running(pid, whole, output, command, tracer, region["follow_fork"])
        return
    if tracer in ("perf", "heat"):
        raise click.UsageError(f"--tracer {tracer} samples what runs already: give -p PID")
    if not command:
        way = "write it after --, or -p PID for one that runs"
        raise click.UsageError(f"Missing argument 'COMMAND...': {way}")
    if 0 < region["max_bytes"] < LEAST_BYTES:
        raise UsageError(f"max-bytes = {region['max_bytes']:.0f}: no room for a chunk; give at least 64K")
    from ..capture.live.record import MUCH, record
    from ..capture.live.supervise import typed_by
    from ..capture.live.tracers import Options

    output = output or free_name(command[0])
    options = Options(strip=strip != "off", seconds=seconds or 0, **region)
    if pages and (options.marked or options.max_bytes or no_dump):
        raise UsageError(
            "--pages measures whole runs with their pages: leave out --no-dump, --max-bytes and regions, or "
            "measure apart, `trial --pages -o app.toml -- COMMAND`, for `whatif --calibration app.toml`"
        )
    progress = Progress(waiting_for=options.begins)
    following = next_step("check", output)  # as the shell finds it: COMMAND is looked up in another PATH
    user = typed_by(user)
    recording = record(
        command,
        output,
        tracer=tracer or "qemu",
        options=options,
        dump=not no_dump,
        user=user,
        dump_at=dump_at,
        end_after=then == "end",
        seconds=native_seconds,
        watch=progress,
        sealing=progress.sealing,
        measure=partial(installed(TRIALS), command, user) if pages else None,
    )
    if ended := how_it_ended(recording):
        echo(f"ptanalyze: {ended}", err=True)
    if recording.freed >= MUCH:
        echo(f"ptanalyze: {freed(recording, options)}", err=True)
    tables = "with its page tables" if recording.snapshot else "without page tables"
    echo(f"{output}: recorded {tables}, {recording.accesses:,} accesses; {following}")
    if not region["follow_fork"] and (recording.children or Path(command[0]).name in SHELLS):
        running = [f"PID {pid}" for pid in sorted(recording.children) if Path(f"/proc/{pid}").exists()]
        echo(
            "ptanalyze: only the program itself was traced, not what it started: name that program in the "
            f"command, or take --follow-fork{'; still running: ' * bool(running)}{', '.join(running)}",
            err=True,
        )
    if recording.exit_status and not (recording.ended or recording.interrupted):
        status = f"the program itself failed, with status {recording.exit_status}"
        raise PartialDataError(f"{output}: {status}; if that is not as usual, record it again")


def sample_running(
    pid: int, seconds: float, output: str | None, command: tuple[str, ...], tracer: str | None, children: bool
) -> None:
    from ..capture.live.process import shown, state

    if command:
        raise click.UsageError("give -p PID or a COMMAND, not both")
    if tracer in ("qemu", "pin"):
        raise click.UsageError(f"--tracer {tracer} starts a COMMAND; with -p PID give perf or heat")
    output = output or free_name(str(pid))
    for line in installed(SAMPLERS)(pid, output, max(round(seconds), 1), tracer, children):
        echo(line, err=True)
    echo(f"{output}: sampled; {next_step('advise', output)}")
    if state(shown(pid)) in "ZX":  # killed, it is a zombie until its parent takes notice
        raise PartialDataError(f"{output}: PID {pid} ended early; what was sampled until then is kept")


def installed(group: str) -> Any:
    """The function that a satellite has under this entry point."""
    from importlib.metadata import entry_points

    (one,) = entry_points(group=group)
    return one.load()


def freed(recording: Recording, options: Options) -> str:
    """Finding: much of what was touched had no page tables left, and the way out."""
    if recording.held == "peak":
        out = "no single moment has all of it; record a region: --roi-start-symbol, or --for"
    elif options.marked:
        out = "end the region before that, or read them at the peak: --dump-at peak"
    else:
        out = "read them at the peak: --dump-at peak"
    return (
        f"{100 * recording.freed:.0f} % of the memory that it touched (in 2 MiB) was freed before its page "
        f"tables were read, or mapped after; {out}"
    )


def how_it_ended(recording: Recording) -> str:
    """ "" where it ended by itself."""
    if recording.ended:
        return "the program was ended when its region was over"
    if recording.interrupted:
        return "the program was ended by Ctrl-C or a signal to record; what it did until then is recorded"
    return ""


# What a person sees while a program is recorded: how far its trace is, and whether the disk will do.

LOW = 2 << 30  # bytes free below which one line warns


class Progress:
    """Call it with each TraceSize: lines at intervals, and a warning about the disk."""

    def __init__(self, waiting_for: str = "") -> None:
        """waiting_for: what the region begins with, "work()"; "" where it begins with the program."""
        self.waiting_for, self.warned = waiting_for, False
        self.next = FIRST

    def __call__(self, grown: TraceSize) -> None:
        if grown.free < LOW and not self.warned:
            self.warned = True
            left = f"ptanalyze: only {size_in_words(grown.free)} are left on the disk"
            echo(f"{left}; Ctrl-C ends the program and keeps what is recorded", err=True)
        if grown.seconds >= self.next:
            echo(f"ptanalyze: {line(grown, self.waiting_for)}", err=True)
            self.next += min(self.next, STILL)

    def sealing(self, grown: TraceSize) -> None:
        """The program has ended; what follows takes long for a large trace."""
        if self.next > FIRST:
            echo(f"ptanalyze: checking and sealing {size_in_words(grown.bytes)} of trace", err=True)


def line(grown: TraceSize, waiting_for: str = "") -> str:
    """ "recording: 1:05, 366 MiB, 5.6 MiB/s"; "waiting for work(): 0:12" before anything is written."""
    from ..formats.trace import HEADER_BYTES

    minutes, seconds = divmod(int(grown.seconds), 60)
    if waiting_for and grown.bytes <= HEADER_BYTES:
        return f"waiting for {waiting_for}: {minutes}:{seconds:02}"
    rate = grown.bytes / max(grown.seconds, 1e-9)
    return f"recording: {minutes}:{seconds:02}, {size_in_words(grown.bytes)}, {size_in_words(int(rate))}/s"
