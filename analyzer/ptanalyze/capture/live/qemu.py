"""Choose QEMU's user mode, and the build of the plugin that it takes."""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from ...core.errors import UsageError
from .native import first, named, native, packaged

PROGRAM = "qemu-x86_64"


class Qemu(NamedTuple):
    """path    of qemu-x86_64; version: (major, minor)
    plugin  the build of libpt_qemu.so that it takes"""

    path: Path
    version: tuple[int, int]
    plugin: Path


def qemu() -> Qemu:
    """QEMU's user mode with plugins; UsageError that says what is wrong if there is none.

    What PTANALYZE_NATIVE holds is taken or refused. Then comes the PATH's, then that of the package
    ptanalyze_native, as many systems' QEMU takes no plugins.
    """
    own = first(PROGRAM, [place / "qemu" for place in packaged()])
    try:
        return examined(native(PROGRAM))
    except UsageError:
        if own is None or first(PROGRAM, named()):
            raise
        return examined(own)


def examined(path: Path) -> Qemu:
    """A QEMU that can trace; UsageError if it is too old or takes no plugins.

    The interface of plugins begins at version 2 since QEMU 9.0.
    """
    version = version_of(path)
    if version < (7, 2):
        raise UsageError(
            f"{path}: QEMU {version[0]}.{version[1]} is too old; 7.2 or later can be traced with"
        )
    if "-plugin" not in said_by(path, "--help"):
        raise UsageError(
            f"{path}: this QEMU was built without plugins, as those of Ubuntu 24.04 and Debian 13 are; "
            "`pip install 'ptanalyze[native]'` brings one that has them, or build QEMU with --enable-plugins "
            "and put it first in PATH"
        )
    return Qemu(path, version, native("libpt_qemu.so" if version < (9, 0) else "libpt_qemu_api2.so"))


def version_of(path: Path) -> tuple[int, int]:
    """(major, minor) of qemu-x86_64; UsageError if it does not tell."""
    text = said_by(path, "--version")
    match = re.search(r"version (\d+)\.(\d+)", text)
    if not match:
        raise UsageError(f"{path}: --version says {text[:60]!r}, no version of QEMU")
    return int(match[1]), int(match[2])


def said_by(program: Path, option: str) -> str:
    try:
        return subprocess.run([program, option], capture_output=True, text=True, check=False).stdout
    except OSError as error:
        raise UsageError(f"{program}: cannot be run: {error.strerror}") from None
