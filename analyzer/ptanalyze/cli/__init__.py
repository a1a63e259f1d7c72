"""The command line: one file per subcommand, imported when it is asked for; the help imports none of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import click

from ..core.errors import PtanalyzeError, printable
from ..core.progress import __version__, forget_what_is_no_number, seen_signals
from ..core.regular import TRUST


class Entry(NamedTuple):
    """A subcommand: the module of this package that defines it as `command`, and its line in the help."""

    module: str
    summary: str


COMMANDS = {  # heading of the help -> {subcommand: Entry}
    "Capture": {
        "record": Entry("record", "Run a program; record trace and page tables."),
        "dump": Entry("dump", "Dump the page tables of a process or VM."),
        "heat": Entry("heat", "Sample which pages a process uses."),
        "import": Entry("import_", "Read what other tools recorded or dumped."),
        "synth": Entry("synth", "Generate a capture of a synthetic workload."),
        "join": Entry("join", "Join a VM's host dump and guest capture."),
        "doctor": Entry("doctor", "Say what of this host can be used."),
        "redact": Entry("redact", "Copy a capture without identifying data."),
    },
    "Inspect": {
        "survey": Entry("survey", "List processes by remote page tables."),
        "info": Entry("info", "Describe a capture."),
        "check": Entry("check", "Verify that a capture is usable."),
        "walk": Entry("walk", "Explain one address translation."),
        "diff": Entry("diff", "Compare the page tables of two captures."),
        "classify": Entry("classify", "Count local and remote leaf entries."),
        "fragmentation": Entry("fragmentation", "Measure how scattered ePT cache lines are."),
    },
    "Ask": {
        "whatif": Entry("whatif", "Replay page walks under other placements."),
        "timeline": Entry("timeline", "Show locality over time."),
        "sweep": Entry("sweep", "Replay every combination of parameters."),
        "compare": Entry("compare", "List the differences between two results."),
        "degrees": Entry("degrees", "Choose a prefetch degree for each VMA."),
        "advise": Entry("advise", "Rank all policies within a budget."),
        "report": Entry("report", "Write an HTML report about captures."),
    },
    "Model": {
        "policies": Entry("policies", "List placement policies and parameters."),
        "machines": Entry("machines", "List machine models, or show one."),
        "topology": Entry("topology", "Measure CPU and memory latencies."),
        "calibrate": Entry("calibrate", "Fit the run-time model to perf counters."),
        "predict": Entry("predict", "Predict run times from a calibration."),
        "validate": Entry("validate", "Compare results with published figures."),
        "completion": Entry("completion", "Print a shell completion script."),
    },
}
ENTRIES = {name: entry for group in COMMANDS.values() for name, entry in group.items()}

EPILOG = "Exit codes: 0 ok, 1 a capture failed a check, 2 wrong usage or input, 3 only partial data."


class Unread(Exception):
    """Whoever read our output has gone, as `head` does: no OSError, which click would make exit code 1."""


@contextmanager
def unread_is_no_error() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise Unread from None
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # how Rich ends then
            raise Unread from None
        raise


class Commands(click.Group):
    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        with unread_is_no_error():
            return super().make_context(*arguments, **more)

    def invoke(self, context: click.Context) -> Any:
        with unread_is_no_error():
            code = super().invoke(context)
            sys.stdout.flush()
        return code

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """`help`, `help COMMAND` and `version` as other programs have them."""
        if arguments[:1] == ["help"]:
            arguments = [*arguments[1:], "--help"]
        elif arguments == ["version"]:
            arguments = ["--version"]
        return super().parse_args(context, arguments)

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        if name not in ENTRIES and not name.startswith("-"):
            from ..core.errors import meant

            near = meant(name, ENTRIES) or "`ptanalyze help` lists them. "
            context.fail(f"No such command {name!r}; {near.strip()}")
        if name in ENTRIES:
            from .defaults import defaults_of

            context.default_map = {name: defaults_of(context, self, name)}
        return super().resolve_command(context, arguments)

    def list_commands(self, context: click.Context) -> list[str]:
        return list(ENTRIES)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in ENTRIES:
            return None
        command: click.Command = import_module(f".{ENTRIES[name].module}", __name__).command
        command.short_help = ENTRIES[name].summary
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, ENTRIES))
        for heading, group in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(widest), entry.summary) for name, entry in group.items()])


@click.command(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    __version__, "-V", "--version", prog_name="ptanalyze", help="Show the version and exit."
)
@click.help_option("-h", "--help", help="Show this help and exit.")
@click.option(
    "--trust", is_flag=True, help="Do not compare files of captures with their checksums. Default: compare."
)
def ptanalyze(trust: bool) -> None:
    """Where do page walks go on a NUMA machine, and what would another page-table placement change?

    Record a program with its page tables, then ask: ptanalyze whatif --policy hydra
    """
    if trust:
        from .echo import echo

        TRUST.set(True)
        echo("ptanalyze: --trust: files of captures are not compared with their checksums", err=True)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code and prints no traceback for anything a user can cause."""
    forget_what_is_no_number()
    with seen_signals() as asked:
        try:
            return _ran(arguments)
        except Exception:
            if not asked:
                raise
            return complain("interrupted", 130)


def _ran(arguments: Sequence[str] | None) -> int:
    try:  # in a context of its own: --trust is of this call
        main = partial(ptanalyze.main, arguments, prog_name="ptanalyze", standalone_mode=False)
        return exit_code_of(partial(copy_context().run, main))
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        message = printable(error.format_message())
        error.format_message = lambda: message  # type: ignore[method-assign]
        error.show()
        return 2
    except click.Abort:
        return complain("interrupted", 130)
    except KeyboardInterrupt:
        return complain("interrupted", 130)
    except Unread:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered goes nowhere
        return 0


def exit_code_of(main: Callable[[], int | None]) -> int:
    """Exit code that main() returns, or of the error that it raises, which is said on standard error."""
    try:
        return main() or 0
    except PtanalyzeError as error:
        return complain(error, error.exit_code)
    except MemoryError as error:
        return complain(f"not enough memory: {error or 'free some, or give a smaller input'}", 2)
    except OSError as error:
        return complain(f"{named(error)}: {error.strerror or error}", 2)


def named(error: OSError) -> str:
    """The file of an OSError, which may have been given as bytes."""
    return os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "output"


def complain(message: object, code: int) -> int:
    with suppress(OSError):  # a terminal that is gone
        print(printable(f"ptanalyze: {message}"), file=sys.stderr)
    return code
