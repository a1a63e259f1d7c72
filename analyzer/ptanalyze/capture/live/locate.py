"""Find the native tools: where $PTANALYZE_NATIVE points, `make` built or pip installed them."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from ...core.errors import CHECKOUT, UsageError

PACKAGE = "ptanalyze_native"  # of the wheel of dumps/wheel
BUILT_IN = ("dumps/build", "pintool/build", "pintool/build/pin")
TOOLS = ("ptdump", "ptsurvey", "ptheat", "ptrelocate", "ptchase")
PLUGINS = ("libpt_qemu.so", "libpt_qemu_api2.so")
MADE_BY = {  # what builds it, in a checkout
    **dict.fromkeys((*TOOLS, *PLUGINS), "make native"),
    "pin_tool.so": "PIN_ROOT=... make -C pintool pin",
}
# by that file alone: the name of the wheel is on no index, where anybody could take it
BY_WHEEL = (
    "in a clone of ptanalyze: `make wheels`, then `"
    f"{shlex.quote(sys.executable)} -m pip install --no-index --find-links dist ptanalyze-native`"
)
FROM_OTHERS = {
    "qemu-x86_64": f"{BY_WHEEL}; on Debian 12 `apt install qemu-user` will do",
    "pin": "download a Pin 3 kit from Intel and put its directory on the PATH",
}


def native(name: str) -> Path:
    """Path of a native tool; UsageError that says how to get it if it is missing.

    $PTANALYZE_NATIVE names a directory with the tools in it, or a checkout in which they were built. Then
    come the checkout that is run, the package ptanalyze_native (dumps/wheel), and the PATH.
    """
    if path := first(name, [*named(), *(CHECKOUT / place for place in BUILT_IN), *packaged()]):
        return path
    if found := shutil.which(name):
        return Path(found)
    extra = os.environ.get("PTANALYZE_NATIVE")
    where = f" in PTANALYZE_NATIVE={extra} either" if extra else ""
    raise UsageError(f"{name}: not found{where}; {how_to_get(name)}")


def first(name: str, places: Iterable[Path]) -> Path | None:
    """The file of that name in the first of the directories that has one."""
    return next((place / name for place in places if (place / name).is_file()), None)


def named() -> list[Path]:
    """Directories that $PTANALYZE_NATIVE stands for."""
    extra = os.environ.get("PTANALYZE_NATIVE")
    return [Path(extra), *(Path(extra) / place for place in BUILT_IN)] if extra else []


def packaged() -> list[Path]:
    """The directory of the package ptanalyze_native, where it is installed."""
    package = find_spec(PACKAGE)
    return [Path(place) for place in package.submodule_search_locations or ()] if package else []


def how_to_get(name: str) -> str:
    """Words for a person: what to type to get a native tool."""
    if name not in MADE_BY:
        return FROM_OTHERS.get(name, "install it")
    if (CHECKOUT / "dumps" / "Makefile").is_file():
        return f"build it: `{MADE_BY[name]}` in {CHECKOUT}"
    where = "in a clone of ptanalyze, then set PTANALYZE_NATIVE to that clone"
    built = f"build it with `{MADE_BY[name]}` {where}"
    return f"{BY_WHEEL}; or {built}" if MADE_BY[name] == "make native" else built
