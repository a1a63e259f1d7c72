"""The command line: one file per subcommand, imported when it is asked for; the help imports none of them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from copy import copy
from decimal import Decimal
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from ..core.errors import PtanalyzeError, UsageError, meant, printable, this_program
from ..core.errors import program as this
from ..core.process import forget_what_is_no_number, seen_signals
from ..core.safe_files import TRUST
from ..core.version import __version__


class Entry(NamedTuple):
    """A subcommand: the module of this package that defines it as `command`, and its line in the help."""

    module: str
    summary: str


COMMANDS = {  # heading of the help -> {subcommand: Entry}
    "Capture": {
        "record": Entry("record", "Run a program; record trace and page tables."),
        "dump": Entry("dump", "Dump the page tables of a process or VM."),
        "heat": Entry("heat", "Sample the pages a process uses."),
        "import": Entry("import_", "Import traces and dumps of other tools."),
        "synth": Entry("synth", "Generate a capture of a synthetic workload."),
        "join": Entry("join", "Join a VM's host dump and guest capture."),
        "doctor": Entry("doctor", "Check what this host supports."),
        "cache": Entry("cache", "List or clear the caches on disk."),
        "redact": Entry("redact", "Copy a capture without identifying data."),
    },
    "Inspect": {
        "survey": Entry("survey", "List processes by remote page tables."),
        "relocate": Entry("relocate", "Move leaf tables to a process's threads."),
        "info": Entry("info", "Describe a capture."),
        "check": Entry("check", "Verify that a capture is usable."),
        "walk": Entry("walk", "Explain one address translation."),
        "diff": Entry("diff", "Compare the page tables of two captures."),
        "classify": Entry("classify", "Show local and remote page-table entries."),
        "fragmentation": Entry("fragmentation", "Measure the scatter of ePT cache lines."),
    },
    "Ask": {
        "whatif": Entry("whatif", "Replay page walks under other placements."),
        "timeline": Entry("timeline", "Show locality over time."),
        "sweep": Entry("sweep", "Replay every combination of parameters."),
        "compare": Entry("compare", "List the differences between two results."),
        "hugepages": Entry("hugepages", "Rank mappings by gain from huge pages."),
        "advise": Entry("advise", "Rank all policies within a budget."),
        "report": Entry("report", "Write an HTML report about captures."),
    },
    "Model": {
        "policies": Entry("policies", "List placement policies and parameters."),
        "machines": Entry("machines", "List machine models, or show one."),
        "topology": Entry("topology", "Measure CPU and memory latencies."),
        "calibrate": Entry("calibrate", "Fit the run-time model to perf counters."),
        "trial": Entry("trial", "Measure a program with tables far and near."),
        "predict": Entry("predict", "Predict run times from a calibration."),
        "validate": Entry("validate", "Compare results with published figures."),
        "completion": Entry("complete", "Print a shell completion script."),
    },
}
ENTRIES = {name: entry for group in COMMANDS.values() for name, entry in group.items()}

SHORT_IN_HELP = 20  # characters of a path in an example
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
            context.default_map = {name: defaults_of(context, self, name)}
        found, command, rest = super().resolve_command(context, arguments)
        return found, command and as_sudo_finds_it(command), rest

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


# Options as they were given, to be typed again.


def retyped(
    context: click.Context, only: Collection[str] | None = None, without: Collection[str] = ()
) -> list[str]:
    """Words of what was given on the command line, in the order of the help, and no more.

    only     names of the parameters that are wanted, default: all; without: names that are not
    """
    words: list[str] = []
    for parameter in context.command.params:
        name = str(parameter.name)
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not given or name in without or (only is not None and name not in only):
            continue
        value = context.params[name]
        values = value if isinstance(value, (tuple, list)) else [value]
        if isinstance(parameter, click.Option):
            flag = max(parameter.opts, key=len)
            words += [flag] if parameter.is_flag else [word for one in values for word in (flag, typed(one))]
        else:
            words += map(typed, values)
    return words


def typed(value: object) -> str:
    """A value as options take it: 0.00001 and not 1e-05."""
    return format(Decimal(str(value)), "f") if isinstance(value, float) else str(value)


def next_step(*words: object) -> str:
    """What to type next, as the shell takes it: "next: ptanalyze check app"."""
    return f"next: {this()} {shlex.join(map(str, words))}"


# A line for whoever runs a command, on standard output or standard error.


def echo(line: str, err: bool = False) -> None:
    """Print one line, what it names being printable."""
    click.echo(printable(line), err=err)


# Defaults of options from the user's own file: ~/.config/ptanalyze/config.toml.


def config_file() -> Path:
    """$XDG_CONFIG_HOME/ptanalyze/config.toml, by default in ~/.config; it need not exist."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home, "ptanalyze", "config.toml")


def defaults_of(context: click.Context, program: click.Group, name: str) -> dict[str, Any]:
    """What the file says of a command, as click's default_map has it: {parameter: value}, groups nested.

    Keys are long options without their dashes. At the top they are of every command that has such an option,
    in a table of the command's name of that command: [whatif], [dump.vm]. UsageError names file and key for
    anything else.
    """
    path = config_file()
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except PermissionError:  # of another user, as under setpriv or sudo -u without a HOME of its own
        echo(f"ptanalyze: {path}: may not be read, so no defaults are taken from it", err=True)
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    import tomllib

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: no TOML: {error}") from None
    own = {key: value for key, value in table.items() if isinstance(value, dict)}
    commands = program.list_commands(context)
    for key in own.keys() - set(commands):
        raise UsageError(f"{path}: [{key}]: no such command; {meant(key, commands)}".rstrip("; "))
    shared = {key: value for key, value in table.items() if key not in own}
    command = program.get_command(context, name)
    assert command is not None
    if shared.keys() - options_of(command).keys():
        known = {key for one in commands for key in options_of(program.get_command(context, one))}
        for key in shared.keys() - known:
            raise UsageError(f"{path}: {key}: no command has this option; {meant(key, known)}".rstrip("; "))
    return of_command(command, shared, own.get(name, {}), f"{path}: [{name}")


def options_of(command: click.Command | None) -> dict[str, click.Option]:
    """{long name without dashes: Option} of a command, or of all below a group; not --json and its like."""
    if isinstance(command, click.Group):
        return {name: one for under in command.commands.values() for name, one in options_of(under).items()}
    return {
        long.removeprefix("--"): one
        for one in (command.params if command else ())
        for long in one.opts
        if isinstance(one, click.Option) and long.startswith("--") and one.is_flag == one.is_bool_flag
    }


def of_command(
    command: click.Command, shared: Mapping[str, Any], own: Mapping[str, Any], where: str
) -> dict[str, Any]:
    if isinstance(command, click.Group):
        for key, value in own.items():
            if key in command.commands and isinstance(value, dict):
                continue
            raise UsageError(f"{where}]: {key}: no such command; {meant(key, command.commands)}".rstrip("; "))
        return {
            name: of_command(under, shared, own.get(name, {}), f"{where}.{name}")
            for name, under in command.commands.items()
        }
    known = options_of(command)
    for key in own.keys() - known.keys():
        raise UsageError(f"{where}]: {key}: no such option; {meant(key, known)}".rstrip("; "))
    asked = {key: value for key, value in shared.items() if key in known} | dict(own)
    return {
        str(known[key].name): checked(known[key], value, f"{where}]: {key} = {value!r}")
        for key, value in asked.items()
    }


def checked(option: click.Option, value: Any, where: str) -> Any:
    """The value, if the option takes it."""
    if option.is_flag != isinstance(value, bool):
        raise UsageError(f"{where}: write {'true or false' if option.is_flag else 'a value'}")
    value = [value] if option.multiple and not isinstance(value, list) else value
    try:
        option.type_cast_value(click.Context(click.Command("")), value)
    except (click.BadParameter, TypeError) as error:
        raise UsageError(f"{where}: {error}") from None
    return value
