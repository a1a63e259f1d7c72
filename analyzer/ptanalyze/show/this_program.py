"""What to type after sudo, which does not search virtual environments, for the program that runs."""

import shlex
import sys
from pathlib import Path


def this_program() -> str:
    """Short, as it stands on a screen of 80 columns: a path below here, or what the shell makes one of."""
    path, here = Path(sys.prefix, "bin", "ptanalyze"), Path.cwd()
    if sys.prefix == sys.base_prefix:
        return "ptanalyze"
    return shlex.quote(str(path.relative_to(here))) if path.is_relative_to(here) else '"$(which ptanalyze)"'
