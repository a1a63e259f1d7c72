"""The command line: one file per subcommand, imported when it is asked for; the help imports none of them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple

import click

from ..core.errors import PtanalyzeError, printable, this_program
from ..core.errors import program as this
from ..core.process import forget_what_is_no_number, seen_signals
from ..core.version import __version__


class Entry(NamedTuple):
    """A subcommand: the module that defines it as `command`, relative to ours; its line in the help."""

    module: str
    summary: str


COMMANDS = {  # heading of the help -> {subcommand: Entry}
    "Capture": {
        "record": Entry(".record", "Run a program; record trace and page tables."),
        "dump": Entry(".dump", "Dump the page tables of a process or VM."),
        "join": Entry(".join", "Join a VM's host dump and guest capture."),
        "cache": Entry(".cache", "List or clear the caches on disk."),
    },
    "Inspect": {
        "info": Entry(".info", "Describe a capture."),
        "check": Entry(".check", "Verify that a capture is usable."),
        "walk": Entry(".walk", "Explain one address translation."),
        "classify": Entry(".classify", "Show local and remote page-table entries."),
        "fragmentation": Entry(".fragmentation", "Measure the scatter of ePT cache lines."),
    },
    "Ask": {
        "whatif": Entry(".whatif", "Replay page walks under other placements."),
        "timeline": Entry(".timeline", "Show locality over time."),
        "sweep": Entry(".sweep", "Replay every combination of parameters."),
        "hugepages": Entry(".hugepages", "Rank mappings by gain from huge pages."),
        "advise": Entry(".advise", "Rank all policies within a budget."),
    },
    "Model": {
        "policies": Entry(".policies", "List placement policies and parameters."),
        "machines": Entry(".machines", "List machine models, or show one."),
        "completion": Entry(".complete", "Print a shell completion script."),
    },
}
FIRST = (
    "doctor",
    "survey",
    "record",
    "dump",
    "check",
    "whatif",
    "advise",
    "report",
)  # in the help, in this order
SATELLITES = "ptanalyze.commands"  # entry points of tables {heading: {subcommand: (module, summary)}}

SHORT_IN_HELP = 20  # characters of a path in an example
SETTINGS = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "PTANALYZE"}
EPILOG = "Exit codes: 0 ok, 1 a capture failed a check, 2 wrong usage or input, 3 only partial data."


@cache
def groups() -> dict[str, dict[str, Entry]]:
    """COMMANDS and those of other packages, which no table of ours names; none of them is imported."""
    from importlib.metadata import entry_points  # takes as long as all of the rest of a help

    whole = {heading: dict(group) for heading, group in COMMANDS.items()}
    for point in entry_points(group=SATELLITES):
        for heading, group in point.load().items():
            rows = whole.setdefault(heading, {})
            rows.update((name, Entry(*row)) for name, row in group.items() if name not in rows)
    return whole


def entries() -> dict[str, Entry]:
    """{subcommand: Entry} of groups()."""
    return {name: entry for group in groups().values() for name, entry in group.items()}


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
        context.meta["typed"] = list(arguments)
        if arguments[:1] == ["help"]:
            arguments = [*arguments[1:], "--help"]
        elif arguments == ["version"]:
            arguments = ["--version"]
        return super().parse_args(context, arguments)

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        if self.get_command(context, name) is None and not name.startswith("-"):
            from ..core.errors import meant

            near = meant(name, entries()) or "`ptanalyze help` lists them. "
            context.fail(f"No such command {name!r}; {near.strip()}")
        found, command, rest = super().resolve_command(context, arguments)
        return found, command and as_sudo_finds_it(command), rest

    def list_commands(self, context: click.Context) -> list[str]:
        return list(entries())

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        for group in COMMANDS.values():  # without asking for the commands of other packages
            if entry := group.get(name):
                break
        else:
            entry = entries().get(name)
        if entry is None:
            return None
        command: click.Command = import_module(entry.module, __name__).command
        command.short_help = entry.summary
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        every = entries()
        widest = max(map(len, every))
        shown = {"From a program to an answer": [name for name in FIRST if name in every]}
        shown |= {
            heading: [name for name in group if name not in FIRST] for heading, group in groups().items()
        }
        for heading, names in shown.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(widest), every[name].summary) for name in names])


def as_sudo_finds_it(command: click.Command) -> click.Command:
    """A copy whose help has this program in the place of "sudo ptanalyze": sudo searches no environment."""
    command = copy(command)
    command.help = (command.help or "").replace("sudo ptanalyze", f"sudo {this_program(SHORT_IN_HELP)}")
    if isinstance(command, click.Group):
        command.commands = {name: as_sudo_finds_it(one) for name, one in command.commands.items()}
    else:
        command.format_options = partial(in_groups, command)  # type: ignore[method-assign]
    return command


def in_groups(command: click.Command, context: click.Context, formatter: click.HelpFormatter) -> None:
    """Options of the command's own, then those that all replays have, then those of its output."""
    from ..core.options import EVERYWHERE, OF_OUTPUT, as_options

    replay = {one.parameter for name in EVERYWHERE for one in as_options(name)}
    groups: dict[str, list[tuple[str, str]]] = {"Options": [], "Machine, run and model": [], "Output": []}
    for one in command.get_params(context):
        if record := one.get_help_record(context):
            heading = "Machine, run and model" if one.name in replay else "Options"
            groups["Output" if one.name in OF_OUTPUT else heading].append(record)
    for heading, records in groups.items():
        if records:
            with formatter.section(heading):
                formatter.write_dl(records)


@click.command(cls=Commands, epilog=EPILOG, context_settings=SETTINGS)
@click.version_option(
    __version__, "-V", "--version", prog_name="ptanalyze", help="Show the version and exit."
)
@click.help_option("-h", "--help", help="Show this help and exit.")
def ptanalyze() -> None:
    """Where do page walks go on a NUMA machine, and what would another page-table placement change?

    Record a program with its page tables, then ask: ptanalyze whatif --policy hydra
    """


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
    try:
        return exit_code_of(partial(ptanalyze.main, arguments, prog_name="ptanalyze", standalone_mode=False))
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


def next_step(*words: object) -> str:
    """What to type next, as the shell takes it: "next: ptanalyze check app"."""
    return f"next: {this()} {shlex.join(map(str, words))}"


# A line for whoever runs a command, on standard output or standard error.


def echo(line: str, err: bool = False) -> None:
    """Print one line, what it names being printable."""
    click.echo(printable(line), err=err)
