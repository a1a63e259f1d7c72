"""Find the native tools: where $PTANALYZE_NATIVE points, `make` built or pip installed them."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from ...core.bundled import CHECKOUT
from ...core.errors import UsageError

PACKAGE = "ptanalyze_native"  # of the wheel of dumps/wheel
BUILT_IN = ("dumps/build", "pintool/build", "pintool/build/pin")
MADE_BY = {  # what builds it, in a checkout
    "ptdump": "make native",
    "ptsurvey": "make native",
    "ptheat": "make native",
    "ptpingpong": "make native",
    "ptchase": "make native",
    "libpt_qemu.so": "make native",
    "libpt_qemu_api2.so": "make native",
    "pin_tool.so": "PIN_ROOT=... make -C pintool pin",
}
FROM_OTHERS = {
    "qemu-x86_64": "install it with `apt install qemu-user`",
    "pin": "download a Pin 3 kit from Intel and put its directory on the PATH",
}


def native(name: str) -> Path:
    """Path of a native tool; UsageError that says how to get it if it is missing.

    $PTANALYZE_NATIVE names a directory with the tools in it, or a checkout in which they were built. Then
    come the checkout that is run, the package ptanalyze_native (dumps/wheel), and the PATH.
    """
    extra = os.environ.get("PTANALYZE_NATIVE")
    places = [Path(extra), *(Path(extra) / place for place in BUILT_IN)] if extra else []
    places += [CHECKOUT / place for place in BUILT_IN]
    if package := find_spec(PACKAGE):
        places += map(Path, package.submodule_search_locations or ())
    for place in places:
        if (place / name).is_file():
            return place / name
    if path := shutil.which(name):
        return Path(path)
    where = f" in PTANALYZE_NATIVE={extra} either" if extra else ""
    raise UsageError(f"{name}: not found{where}; {how_to_get(name)}")


def how_to_get(name: str) -> str:
    """Words for a person: what to type to get a native tool."""
    if name not in MADE_BY:
        return FROM_OTHERS.get(name, "install it")
    if (CHECKOUT / "dumps" / "Makefile").is_file():
        return f"build it: `{MADE_BY[name]}` in {CHECKOUT}"
    built = (
        f"build it with `{MADE_BY[name]}` in a checkout of ptanalyze, "
        "then set PTANALYZE_NATIVE to that checkout"
    )
    return f"`pip install 'ptanalyze[native]'`, or {built}" if MADE_BY[name] == "make native" else built


def qemu_version(qemu: Path) -> tuple[int, int]:
    """(major, minor) of qemu-x86_64; UsageError if it does not tell."""
    text = said_by(qemu, "--version")
    match = re.search(r"version (\d+)\.(\d+)", text)
    if not match:
        raise UsageError(f"{qemu}: --version says {text[:60]!r}, no version of QEMU")
    return int(match[1]), int(match[2])


def said_by(program: Path, option: str) -> str:
    return subprocess.run([program, option], capture_output=True, text=True, check=False).stdout


def qemu_plugin(qemu: Path) -> Path:
    """The build of the plugin that this QEMU takes: its interface begins at version 2 since QEMU 9.0.

    UsageError for a QEMU that is too old or takes none.
    """
    version = qemu_version(qemu)
    if version < (7, 2):
        raise UsageError(
            f"{qemu}: QEMU {version[0]}.{version[1]} is too old; 7.2 or later can be traced with"
        )
    if "-plugin" not in said_by(qemu, "--help"):
        raise UsageError(
            f"{qemu}: this QEMU was built without plugins, as those of Ubuntu 24.04 and Debian 13 are; "
            "trace on Debian 12, or build QEMU with --enable-plugins and put it first in PATH"
        )
    return native("libpt_qemu.so" if version < (9, 0) else "libpt_qemu_api2.so")
