"""The command line: one file per subcommand, imported when it is asked for; the help imports none of them."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from typing import NamedTuple

import click

from ..core.errors import PtanalyzeError, as_root, meant, printable, uninstalled
from ..core.process import forget_what_is_no_number, seen_signals
from ..core.version import __version__


class Entry(NamedTuple):
    """A subcommand: the module that defines it as `command`, relative to ours; its line in the help."""

    module: str
    summary: str


COMMANDS = {  # heading of the help -> {subcommand: Entry}
    "Capture": {
        "record": Entry(".record", "Run a program; record trace and page tables."),
        "join": Entry(".join", "Join a VM's host dump and guest capture."),
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
        "advise": Entry(".advise", "Rank all policies, the fastest first."),
    },
    "Model": {
        "policies": Entry(".policies", "List placement policies and parameters."),
        "machines": Entry(".machines", "List machine models, or show one."),
    },
}
# under the first heading of the help, in this order
FIRST = ("doctor", "survey", "trial", "record", "dump", "check", "whatif", "advise", "report")
SATELLITES = "ptanalyze.commands"  # entry points of tables {heading: {subcommand: (module, summary)}}

OF_OUTPUT = ("form", "table_file", "plot", "plot_kind")  # parameters of cli.options.output_options
COMPLETION = "_PTANALYZE_COMPLETE"  # set by shells, as click documents it
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


class Commands(click.Group):
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
            near = meant(name, entries()) or "`ptanalyze help` lists them. "
            context.fail(f"No such command {name!r}; {near.strip()}")
        found, command, rest = super().resolve_command(context, arguments)
        if command is not None:
            for one in (command, *getattr(command, "commands", {}).values()):
                one.help = (one.help or "").replace("sudo ptanalyze", as_root(SHORT_IN_HELP))
                if not isinstance(one, click.Group):
                    one.format_options = partial(in_groups, one)
        return found, command, rest

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
        for heading, group in groups().items():
            shown[heading] = [name for name in group if name not in FIRST]
        for heading, names in shown.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(widest), every[name].summary) for name in names])


def in_groups(command: click.Command, context: click.Context, formatter: click.HelpFormatter) -> None:
    """The options of the command's own, then those that all replays have, then those of its output."""
    from ..core.options import OF_SOME, OPTIONS

    places = dict.fromkeys([*(OPTIONS.keys() - {*OF_SOME}), "balancing"], "Machine, run and model")
    places |= dict.fromkeys(OF_OUTPUT, "Output")
    groups: dict[str, list[tuple[str, str]]] = {"Options": [], "Machine, run and model": [], "Output": []}
    for one in command.get_params(context):
        if isinstance(one, click.Option) and (record := one.get_help_record(context)):
            groups[places.get(one.name or "", "Options")].append(record)
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


HELP = getattr(click.exceptions, "NoArgsIsHelpError", ())  # a help as an error, since click 8.2


def _ran(arguments: Sequence[str] | None) -> int:
    try:
        return exit_code_of(partial(_answered, sys.argv[1:] if arguments is None else [*arguments]))
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except HELP as asked:
        asked.show()
        return 2
    except click.ClickException as error:
        return complain(in_a_line(error), 2)
    except (click.Abort, KeyboardInterrupt) as stop:
        return complain("interrupted" + "".join(map(str, stop.args)), 130)


def in_a_line(error: click.ClickException) -> str:
    """What click did not expect, what may have been meant, and the help that says more."""
    from .options import as_policy

    said, context = " ".join(error.format_message().split()).rstrip("."), getattr(error, "ctx", None)
    extra = re.fullmatch(r"Got unexpected extra arguments? \((\S+).*\)", said)
    told = type(error) is click.BadParameter  # what is right
    help_of = f"`{context.command_path} --help` shows what there is" if context and not told else ""
    way = (as_policy(extra[1]) if extra else "") or help_of
    return f"{said}; {way}" if way else said


def _answered(arguments: list[str]) -> int | None:
    """What click's main() does but for its end: nobody reads our output where `head` has what it wants."""
    if asked := os.environ.get(COMPLETION):
        from click.shell_completion import shell_complete

        return shell_complete(ptanalyze, {}, "ptanalyze", COMPLETION, asked)
    try:
        with ptanalyze.make_context("ptanalyze", arguments) as context:
            code: int | None = ptanalyze.invoke(context)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as stop:
        if not isinstance(stop, BrokenPipeError) and not isinstance(stop.__context__, BrokenPipeError):
            raise  # Rich ends by SystemExit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered goes nowhere
        return 0
    return code


def exit_code_of(main: Callable[[], int | None]) -> int:
    """Exit code that main() returns, or of the error that it raises, which is said on standard error."""
    try:
        return main() or 0
    except PtanalyzeError as error:
        return complain(error, error.exit_code)
    except ModuleNotFoundError as error:
        if not isinstance(said := uninstalled(error), PtanalyzeError):
            raise
        return complain(said, said.exit_code)
    except MemoryError as error:
        return complain(f"not enough memory: {error or 'free some, or give a smaller input'}", 2)
    except OSError as error:  # its file may have been given as bytes
        named = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "output"
        return complain(f"{named}: {error.strerror or error}", 2)


def complain(message: object, code: int) -> int:
    with suppress(OSError):  # a terminal that is gone
        print(printable(f"ptanalyze: {message}"), file=sys.stderr)
    return code
