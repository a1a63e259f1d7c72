"""The command line: one file a subcommand, each imported only when it is asked for by name or help."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from ..core.errors import PtanalyzeError
from ..core.version import __version__

# subcommand -> module of this package that defines it as `command`
COMMANDS = {
    "record": "record",
    "dump": "dump",
    "import": "import_",
    "synth": "synth",
    "join": "join",
    "diff": "diff",
    "redact": "redact",
    "info": "info",
    "check": "check",
    "walk": "walk",
    "classify": "classify",
    "fragmentation": "fragmentation",
    "whatif": "whatif",
    "timeline": "timeline",
    "sweep": "sweep",
    "compare": "compare",
    "advise": "advise",
    "report": "report",
    "calibrate": "calibrate",
    "predict": "predict",
    "validate": "validate",
    "topology": "topology",
    "policies": "policies",
    "machines": "machines",
    "completion": "completion",
}

EPILOG = "Exit codes: 0 ok, 1 a capture failed a check, 2 wrong usage or input, 3 only partial data."


class Commands(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        found: click.Command = import_module(f".{COMMANDS[name]}", __name__).command
        return found


@click.command(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ptanalyze")
def ptanalyze() -> None:
    """Where do page walks go on a NUMA machine, and what would another page-table placement change?

    Record a program with its page tables, then ask: ptanalyze whatif --policy hydra
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code and prints no traceback for anything a user can cause."""
    try:
        return ptanalyze.main(arguments, prog_name="ptanalyze", standalone_mode=False) or 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except click.Abort:
        return complain("interrupted", 130)
    except KeyboardInterrupt:
        return complain("interrupted", 130)
    except PtanalyzeError as error:
        return complain(error, error.exit_code)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - the reader of our output has gone
        return 0
    except OSError as error:
        return complain(f"{error.filename or 'output'}: {error.strerror or error}", 2)


def complain(message: object, code: int) -> int:
    print(f"ptanalyze: {message}", file=sys.stderr)
    return code
